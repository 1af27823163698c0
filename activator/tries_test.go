package activator

import (
	"testing"
	"time"
)

// A box that refuses an attempt again and again leaves one outcome and one receipt of
// all those tries, so that those of before are still there.
func TestTriesThatTheBoxRefusesAlikeAreToldAsOne(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		r.wantOp(r.deploy("v2"), OpDone)
		op := r.wantOp(r.deploy("v3 noprepare"), OpAbandoned)
		settle(time.Hour)
		rec := r.notExecuted()
		last := rec.Outcomes[len(rec.Outcomes)-1]
		if len(rec.Outcomes) != 3 || last.Revision != 3 || last.Tries.N < 100 || time.Since(last.Tries.Since) < 59*time.Minute {
			t.Errorf("outcomes %+v", rec.Outcomes)
		}
		list, err := r.act.Receipts("hello")
		if err != nil || len(list) != 2 || list[1].Outcome != "done" {
			t.Fatalf("receipts %+v (%v)", list, err)
		}
		if rc := list[0]; rc.Tries != last.Tries || rc.Operation != op.ID || rc.Attempt != last.Attempt {
			t.Errorf("receipt %+v", rc)
		}
		told := 0
		for _, e := range r.w.state.EventsSince(0, 0) {
			if e.Kind == "receipt" {
				told++
			}
		}
		if told != 2 {
			t.Errorf("%d receipts are told of", told)
		}
		r.wantOp(r.deploy("v4"), OpDone)
		if rec, _ := r.w.state.Get("hello"); len(rec.Outcomes) != 4 || rec.Outcomes[3].Tries.N != 0 {
			t.Errorf("outcomes %+v", rec.Outcomes)
		}
	})
}
