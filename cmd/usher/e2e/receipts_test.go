package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/usher-edge/usher/admin"
)

// receipt waits until the receipt of the attempt is closed, and checks its sums.
func (u *usher) receipt(name string, attempt uint64) admin.Receipt {
	u.t.Helper()
	var rc admin.Receipt
	u.eventually(10*time.Second, fmt.Sprintf("the receipt of attempt %d is closed", attempt), func() error {
		rc = admin.Receipt{}
		if err := u.getJSON(fmt.Sprintf("/v1/apps/%s/receipts/%d", name, attempt), &rc); err != nil {
			return err
		}
		if rc.State == admin.ReceiptOpen {
			return errors.New("it is open")
		}
		return nil
	})
	if c := rc.Counts; c != nil && (len(c.Mismatch) > 0 ||
		c.Accepted != c.ServedByIncumbent+c.ServedBySuccessor+c.ServedAfterParking+c.Cached+c.Refused+c.Failed+c.ClientGone+c.Own+c.StillOpen) {
		u.t.Errorf("the receipt of attempt %d does not add up: %+v", attempt, *c)
	}
	return rc
}

// swapsWithReceipts swaps under load and returns the receipt of each swap.
func swapsWithReceipts(t *testing.T, u *usher, swaps int) []admin.Receipt {
	t.Helper()
	ok(t, u.get("hello", "/"))
	run := u.load(150, "hello")
	var all []admin.Receipt
	for i := range swaps {
		s := u.deploy("hello", hello(t, fmt.Sprint("v", 1+i%2)))
		rc := u.receipt("hello", s.Generation)
		if rc.State != admin.ReceiptClosed || rc.Outcome != "done" || rc.Revision != s.Revision || rc.Digest != s.Digest || rc.Counts == nil || rc.Health == nil {
			t.Fatalf("swap %d: %+v", i+1, rc)
		}
		if c := rc.Counts; c.Failed != 0 || c.Refused != 0 {
			t.Errorf("swap %d: %+v", i+1, *c)
		}
		all = append(all, rc)
	}
	lossless(t, run)
	return all
}

func TestTwentyOverlapSwapsLeaveTwentyReceiptsThatAddUp(t *testing.T) {
	u := start(t, options{})
	var incumbent, successor uint64
	for i, rc := range swapsWithReceipts(t, u, rounds(20, 100)) {
		if c := rc.Counts; c.ServedByIncumbent+c.ServedBySuccessor == 0 || c.Upgraded != (admin.UpgradeCounts{}) {
			t.Errorf("swap %d: %+v", i+1, *c)
		}
		incumbent += rc.Counts.ServedByIncumbent
		successor += rc.Counts.ServedBySuccessor
		if rc.From == nil || rc.From.Revision != rc.Revision-1 || rc.CacheFrom == rc.CacheTo || rc.Proof == "" || rc.Health.Status != 200 || rc.Health.Tries < 1 {
			t.Errorf("swap %d: %+v", i+1, rc)
		}
	}
	if incumbent == 0 {
		t.Error("no incumbent served anything in any window")
	}
	t.Logf("%d served by incumbents, %d by successors", incumbent, successor)
	var list struct{ Receipts []admin.Receipt }
	if err := u.getJSON("/v1/apps/hello/receipts", &list); err != nil || len(list.Receipts) != 20 {
		t.Errorf("%d receipts are kept, %v", len(list.Receipts), err)
	}
	out := u.must("receipts", "hello", "-n", "2").stdout
	for _, words := range []string{"accepted", "= served by the incumbent", "+ still open at the close", "cache generation", "drain", "proof"} {
		if !strings.Contains(out, words) {
			t.Errorf("usher receipts does not tell %q:\n%s", words, out)
		}
	}
	if r := u.must("deploy", "hello", hello(t, "v1"), "--wait=drained"); !strings.Contains(r.stderr, "hello: receipt    revision") || !strings.Contains(r.stderr, " accepted = ") {
		t.Errorf("no summary:\n%s", r.stderr)
	}
}

func TestHoldSwapsTellHowLongRequestsWereParked(t *testing.T) {
	u := start(t, options{apps: []app{{hold: true, lines: []string{`park_timeout = "55s"`}}}})
	var parked uint64
	for i, rc := range swapsWithReceipts(t, u, rounds(5, 20)) {
		parked += rc.Counts.ServedAfterParking
		p := rc.Counts.Park
		if p != nil && (p.MaxMS <= 0 || p.P50MS > p.P99MS || p.P99MS > p.MaxMS || p.MaxMS > 55_000) {
			t.Errorf("swap %d: park times %+v", i+1, *p)
		}
		steps := fmt.Sprint(rc.Steps)
		if rc.Mode != "hold" || (p == nil) != (rc.Counts.ServedAfterParking == 0) || !strings.Contains(steps, "park") || !strings.Contains(steps, "stop") {
			t.Errorf("swap %d: %+v", i+1, rc)
		}
	}
	if parked == 0 {
		t.Error("nobody was parked")
	}
}

func TestAWebSocketShowsInTheReceiptAsUpgradedAndEndedByTheDrain(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{lines: []string{`drain_timeout = "1500ms"`, `close_spread = "500ms"`}}}})
	drained, own := u.webSocket("hello"), u.webSocket("hello")
	for _, c := range []*websocket.Conn{drained, own} {
		if err := echo(c, "before"); err != nil {
			t.Fatal(err)
		}
	}
	s := u.deploy("hello", hello(t, "v2"))
	if err := own.Close(websocket.StatusNormalClosure, ""); err != nil { // while the old one drains
		t.Fatal(err)
	}
	if code, err := closing(drained, 5*time.Second); code != websocket.StatusServiceRestart {
		t.Errorf("want close 1012, got %d, %v", code, err)
	}
	rc := u.receipt("hello", s.Generation)
	if got, want := rc.Counts.Upgraded, (admin.UpgradeCounts{Before: 2, ClosedByClient: 1, ClosedByUsher: 1}); got != want {
		t.Errorf("upgraded connections %+v, want %+v", got, want)
	}
	if rc.Counts.Accepted != 0 {
		t.Errorf("%d accepted, though both came before the window: %+v", rc.Counts.Accepted, *rc.Counts)
	}
}

func TestAFailedDeployAndAKilledUsherHaveReceiptsThatSaySo(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{lines: []string{`drain_timeout = "1m"`}, health: []string{`timeout = "600ms"`}}}})
	ok(t, u.get("hello", "/"))
	u.cli("deploy", "hello", hello(t, "v2", "never-healthy"))
	var list struct{ Receipts []admin.Receipt }
	if err := u.getJSON("/v1/apps/hello/receipts?limit=1", &list); err != nil || len(list.Receipts) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	rc := u.receipt("hello", list.Receipts[0].Attempt)
	if rc.Outcome != "failed" || !rc.Executed || rc.Health == nil || rc.Health.PassedMS != 0 || rc.Health.Tries < 2 || !strings.Contains(rc.Health.Last, "503") {
		t.Errorf("failed: %+v, health %+v", rc, rc.Health)
	}

	slow := u.open("hello", "/sse") // keeps the window open
	defer slow.stop()
	s := u.deploy("hello", hello(t, "v2"))
	u.kill()
	u.serve()
	rc = u.receipt("hello", s.Generation)
	if rc.State != admin.ReceiptIncomplete || rc.Counts != nil || rc.Outcome != "done" || rc.Incomplete == "" {
		t.Errorf("killed: %+v", rc)
	}
	var again struct{ Receipts []admin.Receipt }
	if err := json.Unmarshal([]byte(u.must("receipts", "hello", "--json", "--revision", fmt.Sprint(rc.Revision)).stdout), &again); err != nil || len(again.Receipts) != 1 {
		t.Errorf("%+v, %v", again, err)
	}
}
