package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/activator"
	"github.com/usher-edge/usher/activator/store"
	"github.com/usher-edge/usher/admin"
)

// A receipt is open until nothing more is to be learned, which is longer than its window.
func TestAReceiptSaysWhatIsStillOpenInIt(t *testing.T) {
	closed := store.Receipt{Outcome: "done", Closed: time.Now(), Counts: &store.Counts{Accepted: 3, Served: 3}}
	for _, c := range []struct {
		name  string
		open  bool
		rc    store.Receipt
		state admin.ReceiptState
		says  []string
	}{
		{"its window", true, store.Receipt{}, admin.ReceiptOpen, []string{"its window is open"}},
		{"the proof", true, closed, admin.ReceiptOpen, []string{"3 accepted", "not proven yet"}},
		{"nothing", false, closed, admin.ReceiptClosed, []string{"3 accepted"}},
	} {
		got := receipt("app", activator.Receipt{Receipt: c.rc, Open: c.open})
		if got.State != c.state {
			t.Errorf("%s: %s, want %s", c.name, got.State, c.state)
		}
		for _, words := range c.says {
			if !strings.Contains(got.Summary, words) {
				t.Errorf("%s: %q does not say %q", c.name, got.Summary, words)
			}
		}
		if proof := strings.Contains(got.Summary, "proven"); proof != (c.name == "the proof") {
			t.Errorf("%s: %q", c.name, got.Summary)
		}
	}
}
