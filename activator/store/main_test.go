package store_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The test binary is its own helper process: see child.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(child(role))
	}
	goleak.VerifyTestMain(m)
}
