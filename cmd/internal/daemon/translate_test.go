package daemon

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/usher-edge/usher/admin"
)

func TestAStateDirectoryThatCannotBeWrittenIsNoInternalError(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS} {
		err := publicError(fmt.Errorf("stage: write /var/lib/usher: %w: free some space", errno))
		var public *admin.Error
		if !errors.As(err, &public) || public.Kind != admin.NoSpace || !errors.Is(err, errno) {
			t.Errorf("%v has the public face %#v", errno, err)
		}
	}
}
