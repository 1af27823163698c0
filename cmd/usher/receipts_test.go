package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/admin/admintest"
)

// holdReceipt is a receipt with something in every line.
func holdReceipt() admin.Receipt {
	opened, closed := admintest.Epoch(), admintest.Epoch().Add(1500*time.Millisecond)
	return admin.Receipt{
		App: "hello", Attempt: 6, State: admin.ReceiptClosed, Summary: "revision 3 done: all is well", Operation: "op-1",
		Revision: 3, Cause: "release", Mode: "hold", Canary: true, Outcome: "done", Executed: true, Build: "4f2a9c01d3e5", Digest: "sha256:4f2a9c01d3e5",
		From: &admin.Predecessor{Generation: 5, Revision: 2, Build: "0a1b2c3d4e5f"}, CacheFrom: "2.0", CacheTo: "3.0",
		OpenedAt: &opened, ClosedAt: &closed, Proof: "cgroup",
		Health: &admin.HealthProof{Tries: 4, PassedMS: 812.5, Status: 200, Last: "GET / answered 200"},
		Steps:  []admin.ReceiptStep{{Name: "spawn", TookMS: 3.214}, {Name: "stop", TookMS: 120}},
		Counts: &admin.ReceiptCounts{
			Accepted: 180, Served: 150, ServedByIncumbent: 80, ServedBySuccessor: 40, ServedAfterParking: 30,
			Park:   &admin.ParkTimes{P50MS: 210, P99MS: 940.25, MaxMS: 951},
			Cached: 12, Refused: 3, RefusedBy: map[string]uint64{"park-full": 2, "draining": 1}, Failed: 1, FailedBy: map[string]uint64{"drain-cut": 1},
			ClientGone: 4, StillOpen: 10, Upgraded: admin.UpgradeCounts{Before: 3, Opened: 1, ClosedByClient: 1, ClosedByUsher: 2, StillOpen: 1},
		},
	}
}

// lostReceipt is what is left of a window in which usher was killed.
func lostReceipt() admin.Receipt {
	return admin.Receipt{
		App: "hello", Attempt: 7, State: admin.ReceiptIncomplete, Revision: 4, Cause: "release", Mode: "overlap", Executed: true,
		Incomplete: "usher ended while its window was open: what was counted is lost", Steps: []admin.ReceiptStep{},
	}
}

const holdBlock = `attempt 6: release of revision 3, a canary, hold: done, 1m28s ago
  build             sha256:4f2a9c01d3e5
  window            2026-03-01T12:00:00Z, 1.5s
  from              generation 5, revision 2 (build 0a1b2c3d4e5f)
  cache generation  2.0 -> 3.0
  health            4 tries, passed after 813ms (GET / answered 200)
  steps             spawn 3.21ms, stop 120ms
  stop proof        cgroup
        180  accepted
         80  = served by the incumbent
         40  + served by the successor
         30  + parked, then served (waited p50 210ms, p99 940ms, max 951ms)
         12  + from the cache
          3  + refused (1 draining, 2 park-full)
          1  + failed (1 drain-cut)
          4  + client gone
         10  + still open at the close
          4  upgraded connections (3 from before, 1 closed by the client, 2 closed by usher with 1012, 1 still open)
`

const lostBlock = `attempt 7: release of revision 4, overlap: -
  incomplete: usher ended while its window was open: what was counted is lost
`

func TestReceiptsAreBlocksThatAddUpLineByLine(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.expect(exitOK, "", "there are no receipts of hello: the next deploy or restart makes one\n", "receipts", "hello")
	tt.ctl.SetReceipt(holdReceipt())
	tt.ctl.SetReceipt(lostReceipt())
	tt.expect(exitOK, holdBlock+"\n"+lostBlock, "", "receipts", "hello")
	tt.expect(exitOK, lostBlock, "", "receipts", "hello", "-n", "1")
	tt.expect(exitOK, holdBlock, "", "receipts", "hello", "--attempt", "6")
	tt.expect(exitOK, holdBlock, "", "receipts", "hello", "--revision", "3")
	tt.expect(exitOK, "", "hello has no receipt of revision 9; the last 20 are kept, and a wake has none; see usher receipts hello\n",
		"receipts", "hello", "--revision", "9")
	tt.expect(exitNotFound, "", "usher: receipts: app hello has no receipt of attempt 9\n", "receipts", "hello", "--attempt", "9")
	tt.expect(exitNotFound, "", "usher: receipts: there is no app \"nope\"; see usher status for those there are\n", "receipts", "nope")
	if code, _, errs := tt.run("receipts", "hello", "-n", "-1"); code != exitUsage || !strings.Contains(errs, "--lines is a number") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestAReceiptThatDoesNotAddUpSaysSoFirst(t *testing.T) {
	tt := newTerminal(t, hello())
	rc := admin.Receipt{
		App: "hello", Attempt: 6, State: admin.ReceiptClosed, Revision: 3, Cause: "release", Mode: "overlap", Outcome: "failed", Reason: "not started",
		Counts: &admin.ReceiptCounts{Accepted: 3, Served: 2, ServedByIncumbent: 2, Mismatch: []string{"3 accepted, but 2 served = 2"}},
	}
	tt.ctl.SetReceipt(rc)
	a := hello()
	a.ReceiptMismatches = 1
	tt.ctl.SetApp(a)
	if _, out, _ := tt.run("status", "hello"); !strings.Contains(out, "receipts    1 DO NOT ADD UP: see usher receipts hello\n") {
		t.Errorf("status says nothing:\n%s", out)
	}
	tt.expect(exitOK, `attempt 6: release of revision 3, overlap: failed: not started
  !! DOES NOT ADD UP: 3 accepted, but 2 served = 2
  executed  no: it is proven that nothing of the build ran
          3  accepted
          2  = served by the incumbent
          0  + served by the successor
          0  + refused
          0  + failed
          0  + still open at the close
`, "", "receipts", "hello")
}

func TestReceiptsAsJSONHaveTheDocumentedFields(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.ctl.SetReceipt(holdReceipt())
	code, out, errs := tt.run("receipts", "hello", "--json")
	var got struct {
		Receipts []map[string]any `json:"receipts"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK || errs != "" || len(got.Receipts) != 1 {
		t.Fatalf("exit %d, %v, %s%s", code, err, out, errs)
	}
	counts, _ := got.Receipts[0]["counts"].(map[string]any)
	var sum float64
	for _, field := range []string{"served_by_incumbent", "served_by_successor", "served_after_parking", "cached", "refused", "failed", "client_gone", "still_open"} {
		n, ok := counts[field].(float64)
		if !ok {
			t.Errorf("no %s in %v", field, counts)
		}
		sum += n
	}
	if sum != counts["accepted"] || counts["mismatch"] != nil || got.Receipts[0]["attempt"] != 6.0 || got.Receipts[0]["state"] != "closed" {
		t.Errorf("%v", got.Receipts[0])
	}
}

func TestADeployThatWaitsForItsDrainEndsWithItsReceipt(t *testing.T) {
	tt := newTerminal(t, hello())
	open := holdReceipt()
	open.State = admin.ReceiptOpen
	tt.ctl.SetReceipt(open)
	tt.scripted(swap)
	go func() { // ends with the operation
		tt.err.waitFor(t, "switched\n")
		tt.ctl.Step("op-1", admin.StepRetired, "generation 5")
		tt.ctl.Finish("op-1", admin.OpDone, func(op *admin.Operation) { op.Draining = false })
		tt.err.waitFor(t, "retired")
		tt.ctl.SetReceipt(holdReceipt())
	}()
	tt.expect(exitOK, "hello: deploy done, revision 3, generation 6\n",
		swapLines+"hello: retired    generation 5\nhello: receipt    revision 3 done: all is well\n",
		"deploy", "hello", "sha256:aa", "--wait=drained")
}
