package admin

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// Receipt is the account of one attempt at moving an app to a generation: what
// became of every request that was accepted in its window, from the admission to
// the end of the drain. A wake has none. The last 20 of an app are kept.
type Receipt struct {
	App string `json:"app"`
	// Attempt names the receipt; it is also the number of the attempt's generation.
	Attempt uint64 `json:"attempt"`
	// State is open (it is not final: without ClosedAt its numbers still change), closed
	// or incomplete.
	State   ReceiptState `json:"state"`
	Summary string       `json:"summary"` // one line for a person
	// Operation that asked for the attempt; empty if none did.
	Operation string `json:"operation,omitempty"`
	Revision  uint64 `json:"revision"`
	Cause     string `json:"cause,omitempty"`
	Mode      string `json:"mode,omitempty"`   // that it really ran in
	Canary    bool   `json:"canary,omitempty"` // its release is one that settles before the switch
	// Outcome is done, failed, abandoned or down; empty if it is not known (yet).
	Outcome  string `json:"outcome,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Executed bool   `json:"executed"`
	Build    string `json:"build,omitempty"`
	Digest   string `json:"digest,omitempty"`
	// Tries is how many attempts in a row ended alike, from the one that ended at
	// FirstTriedAt to this one, in the place of whose receipts this is; 0: only this.
	Tries        int        `json:"tries,omitempty"`
	FirstTriedAt *time.Time `json:"first_tried_at,omitempty"`
	// From is what served at the admission; nil if nothing did.
	From *Predecessor `json:"from,omitempty"`
	// CacheFrom and CacheTo are cache generations as "REVISION.RESTARTS"; they are
	// equal if there was no switch.
	CacheFrom string `json:"cache_from,omitempty"`
	CacheTo   string `json:"cache_to,omitempty"`

	OpenedAt *time.Time `json:"opened_at,omitempty"`
	ClosedAt *time.Time `json:"closed_at,omitempty"`
	// Incomplete says why a window did not come to its end.
	Incomplete string `json:"incomplete,omitempty"`

	// Counts is nil if they are lost.
	Counts *ReceiptCounts `json:"counts,omitempty"`
	// Health is nil if the attempt did not come as far.
	Health *HealthProof  `json:"health,omitempty"`
	Steps  []ReceiptStep `json:"steps"`
	// Proof is what "the old generation is gone" rests on: cgroup, session, or
	// "stop unproven"; empty if there was none.
	Proof string `json:"proof,omitempty"`
}

// ReceiptState says how far a receipt is.
type ReceiptState string

// The states of a receipt.
const (
	ReceiptOpen       ReceiptState = "open"
	ReceiptClosed     ReceiptState = "closed"
	ReceiptIncomplete ReceiptState = "incomplete"
)

// Predecessor is a generation that an attempt moves away from.
type Predecessor struct {
	Generation uint64 `json:"generation"`
	Revision   uint64 `json:"revision"`
	Build      string `json:"build,omitempty"`
}

// ReceiptCounts are requests. Accepted is the sum of Served, Cached, Refused,
// Failed, ClientGone, Own and StillOpen, each counted by itself; if it is not,
// Mismatch says so, and requests were lost or counted twice. A request counts in
// the window that accepted it, and in no other.
type ReceiptCounts struct {
	Accepted uint64 `json:"accepted"`

	// Served is the sum of the next three.
	Served            uint64 `json:"served"`
	ServedByIncumbent uint64 `json:"served_by_incumbent"`
	ServedBySuccessor uint64 `json:"served_by_successor"`
	// ServedAfterParking had to wait, whoever served them then.
	ServedAfterParking uint64     `json:"served_after_parking"`
	Park               *ParkTimes `json:"park,omitempty"` // of those

	Cached     uint64            `json:"cached"`
	Refused    uint64            `json:"refused"`
	RefusedBy  map[string]uint64 `json:"refused_by,omitempty"`
	Failed     uint64            `json:"failed"`
	FailedBy   map[string]uint64 `json:"failed_by,omitempty"`
	ClientGone uint64            `json:"client_gone"`
	Own        uint64            `json:"own,omitempty"` // answered by usher itself
	StillOpen  uint64            `json:"still_open"`    // when the window was closed

	Upgraded UpgradeCounts `json:"upgraded"`

	Mismatch []string `json:"mismatch,omitempty"`
}

// ParkTimes are how long parked requests waited; percentiles are at most an
// eighth too long.
type ParkTimes struct {
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
	MaxMS float64 `json:"max_ms"`
}

// UpgradeCounts are upgraded connections: those that were open when the window
// was opened and those opened since, by how they ended. They are counted beside
// the requests that they began as.
type UpgradeCounts struct {
	Before         uint64 `json:"before"`
	Opened         uint64 `json:"opened"`
	ClosedByClient uint64 `json:"closed_by_client"`
	ClosedByApp    uint64 `json:"closed_by_app"`
	ClosedByUsher  uint64 `json:"closed_by_usher"` // by a drain or a hold; WebSockets get 1012
	Cut            uint64 `json:"cut"`
	StillOpen      uint64 `json:"still_open"`
}

// HealthProof is what the health check of an attempt came to.
type HealthProof struct {
	Tries int `json:"tries"`
	// PassedMS is from the start of the process to the first good answer; 0: never.
	PassedMS float64 `json:"passed_ms,omitempty"`
	Status   int     `json:"status,omitempty"`
	Last     string  `json:"last,omitempty"` // the last answer, or why there was none
	// Exit is how the process ended before the attempt did; empty: it did not.
	Exit string `json:"exit,omitempty"`
}

// ReceiptStep is how long a step took. Names: committed (it waited to be
// admitted), staged (hashed again), spawn, health, settle, park, drain, stop (hold:
// the incumbent is proven gone), switch, proof (overlap: the old one is).
type ReceiptStep struct {
	Name   string  `json:"name"`
	TookMS float64 `json:"took_ms"`
}

// Milliseconds is d as the API shows it, to the microsecond.
func Milliseconds(d time.Duration) float64 {
	const perMilli = 1000
	return math.Round(float64(d)/float64(time.Microsecond)) / perMilli
}

// receiptList leaves room for more members beside the list.
type receiptList struct {
	Receipts []Receipt `json:"receipts"`
}

// getReceipts lists receipts, newest first; ?limit=N and ?revision=N choose.
func (s *Server) getReceipts(w http.ResponseWriter, r *http.Request) error {
	limit, err := queryUint(r, "limit", 0, 0)
	if err != nil {
		return err
	}
	revision, err := queryUint(r, "revision", 1, 0)
	if err != nil {
		return err
	}
	all, err := s.control.Receipts(r.Context(), r.PathValue("app"))
	if err != nil {
		return err
	}
	out := receiptList{Receipts: []Receipt{}}
	for _, rc := range all {
		full := limit != 0 && uint64(len(out.Receipts)) == limit
		if !full && (revision == 0 || rc.Revision == revision) {
			out.Receipts = append(out.Receipts, rc)
		}
	}
	return writeJSON(w, http.StatusOK, out)
}

func (s *Server) getReceipt(w http.ResponseWriter, r *http.Request) error {
	app, id := r.PathValue("app"), r.PathValue("id")
	attempt, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return &Error{
			Kind: NotFound, Code: CodeReceiptNotFound, Detail: "app " + app + " has no receipt " + strconv.Quote(id),
			Hint: "a receipt is named by the number of its attempt",
		}
	}
	rc, err := s.control.Receipt(r.Context(), app, attempt)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, rc)
}
