package daemon

import (
	"context"
	"fmt"
	"strconv"

	"github.com/usher-edge/usher/activator"
	"github.com/usher-edge/usher/activator/store"
	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/edge"
)

// account is the edge's books as the activator sees them.
type account struct{ *edge.Account }

func (f *front) OpenAccount(app string, gen uint64) activator.Account {
	a := f.app(app)
	if a == nil {
		return nil
	}
	return account{a.OpenAccount(gen)}
}

func (a account) Look() store.Counts  { return counts(a.Account.Look()) }
func (a account) Close() store.Counts { return counts(a.Account.Close()) }

func counts(t edge.Tally) store.Counts {
	return store.Counts{
		Accepted: t.Accepted, Served: t.Served, Cached: t.Cached, Refused: t.Refused, Failed: t.Failed, Gone: t.Gone,
		Own: t.Own, Open: t.Open, Incumbent: t.ByIncumbent, Successor: t.BySuccessor, Parked: t.AfterParking,
		RefusedBy: t.RefusedBy, FailedBy: t.FailedBy, ParkP50: t.Parked.P50, ParkP99: t.Parked.P99, ParkMax: t.Parked.Max,
		Upgrades: store.Upgrades(t.Upgrades), Mismatch: t.Mismatch,
	}
}

func (c *control) Receipts(_ context.Context, app string) ([]admin.Receipt, error) {
	all, err := c.d.act.Receipts(app)
	if err != nil {
		return nil, publicError(err)
	}
	out := make([]admin.Receipt, 0, len(all))
	for _, r := range all {
		out = append(out, receipt(app, r))
	}
	return out, nil
}

func (c *control) Receipt(ctx context.Context, app string, attempt uint64) (admin.Receipt, error) {
	all, err := c.Receipts(ctx, app)
	if err != nil {
		return admin.Receipt{}, err
	}
	for _, r := range all {
		if r.Attempt == attempt {
			return r, nil
		}
	}
	return admin.Receipt{}, &admin.Error{
		Kind: admin.NotFound, Code: admin.CodeReceiptNotFound,
		Detail: fmt.Sprintf("app %s has no receipt of attempt %d", app, attempt),
		Hint:   "the last " + strconv.Itoa(store.KeepReceipts) + " are kept, and a wake has none; see usher receipts " + app,
	}
}

func receipt(app string, r activator.Receipt) admin.Receipt {
	out := admin.Receipt{
		App: app, Attempt: r.Attempt, State: admin.ReceiptClosed, Summary: activator.Summary(r.Receipt), Operation: r.Operation,
		Revision: r.Revision, Cause: r.Cause, Mode: r.Mode, Canary: r.Canary, Outcome: r.Outcome, Reason: r.Reason, Executed: r.Executed,
		Build: r.Build, Digest: r.Digest, CacheFrom: r.CacheFrom, CacheTo: r.CacheTo,
		OpenedAt: some(r.Opened), ClosedAt: some(r.Closed), Incomplete: r.Incomplete, Proof: r.Proof,
		Tries: r.Tries.N, FirstTriedAt: some(r.Tries.Since), Steps: []admin.ReceiptStep{},
	}
	switch {
	case r.Open && r.Closed.IsZero():
		out.State, out.Summary = admin.ReceiptOpen, "its window is open"
	case r.Open:
		out.State = admin.ReceiptOpen
		out.Summary += "; that the old process is gone is not proven yet"
	case r.Incomplete != "":
		out.State = admin.ReceiptIncomplete
	}
	if r.From.Generation != 0 {
		out.From = &admin.Predecessor{Generation: r.From.Generation, Revision: r.From.Revision, Build: r.From.Build}
	}
	if h := r.Health; h != nil {
		out.Health = &admin.HealthProof{Tries: h.Tries, PassedMS: admin.Milliseconds(h.Passed), Status: h.Status, Last: h.Last, Exit: h.Exit}
	}
	for _, s := range r.Steps {
		out.Steps = append(out.Steps, admin.ReceiptStep{Name: s.Name, TookMS: admin.Milliseconds(s.Took)})
	}
	if r.Counts != nil {
		out.Counts = receiptCounts(r.Counts)
	}
	return out
}

func receiptCounts(c *store.Counts) *admin.ReceiptCounts {
	out := &admin.ReceiptCounts{
		Accepted: c.Accepted, Served: c.Served, ServedByIncumbent: c.Incumbent, ServedBySuccessor: c.Successor,
		ServedAfterParking: c.Parked, Cached: c.Cached, Refused: c.Refused, RefusedBy: c.RefusedBy,
		Failed: c.Failed, FailedBy: c.FailedBy, ClientGone: c.Gone, Own: c.Own, StillOpen: c.Open,
		Upgraded: admin.UpgradeCounts{
			Before: c.Upgrades.Before, Opened: c.Upgrades.Opened, ClosedByClient: c.Upgrades.Client, ClosedByApp: c.Upgrades.App,
			ClosedByUsher: c.Upgrades.Usher, Cut: c.Upgrades.Cut, StillOpen: c.Upgrades.Open,
		},
		Mismatch: c.Mismatch,
	}
	if c.Parked > 0 {
		out.Park = &admin.ParkTimes{
			P50MS: admin.Milliseconds(c.ParkP50), P99MS: admin.Milliseconds(c.ParkP99), MaxMS: admin.Milliseconds(c.ParkMax),
		}
	}
	return out
}
