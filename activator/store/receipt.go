package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// KeepReceipts is how many receipts are kept of an app.
const KeepReceipts = 20

// Receipt is the account of one attempt, from its admission to the end of the
// drain.
type Receipt struct {
	Attempt   uint64 `json:"attempt"` // also the number of its generation
	Operation string `json:"operation,omitempty"`
	Revision  uint64 `json:"revision"`
	Cause     string `json:"cause,omitempty"`
	Mode      string `json:"mode,omitempty"`   // the mode it really ran in
	Canary    bool   `json:"canary,omitempty"` // its release is one that settles before the switch
	Outcome   string `json:"outcome,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Executed  bool   `json:"executed"`
	Build     string `json:"build,omitempty"`
	Digest    string `json:"digest,omitempty"`

	// Tries takes this receipt in the place of those of the tries before it.
	Tries Tries `json:"tries,omitzero"`

	// From is what served at the admission; the zero value: nothing did.
	From Predecessor `json:"from,omitzero"`
	// CacheFrom and CacheTo are cache generations, "REVISION.RESTARTS"; equal or
	// empty if there was no switch.
	CacheFrom string `json:"cache_from,omitempty"`
	CacheTo   string `json:"cache_to,omitempty"`

	Opened time.Time `json:"opened,omitzero"`
	Closed time.Time `json:"closed,omitzero"`

	// Incomplete says why the window did not come to its end; empty: it did.
	Incomplete string `json:"incomplete,omitempty"`
	// Counts is nil if they are not known.
	Counts *Counts `json:"counts,omitempty"`

	Health *HealthProof  `json:"health,omitempty"` // nil: not checked
	Steps  []ReceiptStep `json:"steps,omitempty"`
	// Proof is what "the old one is gone" rests on, "cgroup" or "session",
	// "unproven" while it is not, empty if there was nothing to prove.
	Proof string `json:"proof,omitempty"`
}

// Predecessor is the generation that an attempt moves away from.
type Predecessor struct {
	Generation uint64 `json:"generation"`
	Revision   uint64 `json:"revision"`
	Build      string `json:"build,omitempty"`
}

// HealthProof is what the health check of an attempt came to.
type HealthProof struct {
	Tries  int           `json:"tries"`
	Passed time.Duration `json:"passed,omitempty"` // from the go-byte to the first good answer; 0: never
	Status int           `json:"status,omitempty"`
	Last   string        `json:"last,omitempty"` // the last answer, or why there was none
	Exit   string        `json:"exit,omitempty"` // how the process ended before the attempt did; empty: it did not
}

// ReceiptStep is how long a step took.
type ReceiptStep struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took"`
}

// Counts are the requests of a window, each number counted by itself.
type Counts struct {
	Accepted uint64 `json:"accepted"`
	Served   uint64 `json:"served"`
	Cached   uint64 `json:"cached"`
	Refused  uint64 `json:"refused"`
	Failed   uint64 `json:"failed"`
	Gone     uint64 `json:"gone"`
	Own      uint64 `json:"own,omitempty"` // answered by usher itself
	Open     uint64 `json:"open"`          // still open at the close

	// Of those served.
	Incumbent uint64 `json:"incumbent"`
	Successor uint64 `json:"successor"`
	Parked    uint64 `json:"parked"` // after they had waited, whoever served them

	RefusedBy map[string]uint64 `json:"refused_by,omitempty"`
	FailedBy  map[string]uint64 `json:"failed_by,omitempty"`

	ParkP50 time.Duration `json:"park_p50,omitempty"`
	ParkP99 time.Duration `json:"park_p99,omitempty"`
	ParkMax time.Duration `json:"park_max,omitempty"`

	Upgrades Upgrades `json:"upgrades"`

	// Mismatch says what does not add up; none: all does.
	Mismatch []string `json:"mismatch,omitempty"`
}

// Upgrades are the upgraded connections of a window: those that were open before
// and those opened since, by how they ended.
type Upgrades struct {
	Before uint64 `json:"before"`
	Opened uint64 `json:"opened"`
	Client uint64 `json:"client"` // closed by the client
	App    uint64 `json:"app"`
	Usher  uint64 `json:"usher"` // asked to end, WebSockets with 1012
	Cut    uint64 `json:"cut"`
	Open   uint64 `json:"open"` // still open at the close
}

// bucketReceipts holds receipts: app name, 0, attempt → receipt. It is made with
// the first one. What is damaged in it costs receipts and nothing else.
const bucketReceipts = "receipts"

const receiptKeyTail = 1 + 8

func receiptPrefix(app string) []byte { return append([]byte(app), 0) }

func receiptKey(app string, attempt uint64) []byte {
	return binary.BigEndian.AppendUint64(receiptPrefix(app), attempt)
}

// receiptApp is the app of a key.
func receiptApp(key []byte) string { return string(key[:max(0, len(key)-receiptKeyTail)]) }

func encodeReceipt(r Receipt) ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode receipt of attempt %d (%w): %w", r.Attempt, err, ErrInvalid)
	}
	return frame(data), nil
}

// decodeReceipts reads what is whole, in the order given.
func decodeReceipts(stored [][]byte) []Receipt {
	var out []Receipt
	for _, data := range stored {
		var r Receipt
		if body, err := unframe(data); err == nil && json.Unmarshal(body, &r) == nil {
			out = append(out, r)
		}
	}
	return out
}

// PutReceipt implements Commits.
func (b *Bolt) PutReceipt(app string, r Receipt) error {
	data, err := encodeReceipt(r)
	if err != nil {
		return err
	}
	return b.write("store a receipt of app "+app, func(tx *bbolt.Tx) error {
		if tx.Bucket([]byte(bucketApps)).Get([]byte(app)) == nil {
			return notFound(app)
		}
		bucket, err := tx.CreateBucketIfNotExists([]byte(bucketReceipts))
		if err != nil {
			return err
		}
		if err := bucket.Put(receiptKey(app, r.Attempt), data); err != nil {
			return err
		}
		if err := dropTries(bucket, app, r); err != nil {
			return err
		}
		return dropReceipts(bucket, app, KeepReceipts)
	})
}

// replaces says that r stands in the place of the receipt of an attempt.
func (r Receipt) replaces(attempt uint64) bool {
	return r.Tries.Replaced(attempt, r.Attempt)
}

// dropTries removes those in whose place r stands.
func dropTries(bucket *bbolt.Bucket, app string, r Receipt) error {
	var keys [][]byte
	eachReceipt(bucket, app, func(k, _ []byte) {
		if r.replaces(binary.BigEndian.Uint64(k[len(k)-8:])) {
			keys = append(keys, bytes.Clone(k))
		}
	})
	var errs []error
	for _, k := range keys {
		errs = append(errs, bucket.Delete(k))
	}
	return errors.Join(errs...)
}

// dropReceipts removes all but the newest ones of an app.
func dropReceipts(bucket *bbolt.Bucket, app string, keep int) error {
	var keys [][]byte
	eachReceipt(bucket, app, func(k, _ []byte) { keys = append(keys, bytes.Clone(k)) })
	var errs []error
	for _, k := range keys[:max(0, len(keys)-keep)] {
		errs = append(errs, bucket.Delete(k))
	}
	return errors.Join(errs...)
}

// eachReceipt calls f with those of an app, oldest first.
func eachReceipt(bucket *bbolt.Bucket, app string, f func(key, data []byte)) {
	prefix := receiptPrefix(app)
	c := bucket.Cursor()
	for k, v := c.Seek(prefix); len(k) == len(prefix)+8 && bytes.HasPrefix(k, prefix); k, v = c.Next() {
		f(k, v)
	}
}

// Receipts implements Commits.
func (b *Bolt) Receipts(app string) (list []Receipt, err error) {
	err = b.view("read receipts", func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte(bucketReceipts))
		if bucket == nil {
			return nil
		}
		var stored [][]byte
		eachReceipt(bucket, app, func(_, data []byte) { stored = append(stored, data) })
		list = decodeReceipts(stored)
		return nil
	})
	return list, err
}

// memoryReceipts are the stored receipts of one app, by attempt.
type memoryReceipts map[uint64][]byte

func (m memoryReceipts) sorted() (attempts []uint64) {
	for n := range m {
		attempts = append(attempts, n)
	}
	slices.Sort(attempts)
	return attempts
}

// PutReceipt implements Commits.
func (m *Memory) PutReceipt(app string, r Receipt) error {
	if err := m.ask("receipt"); err != nil {
		return err
	}
	data, err := encodeReceipt(r)
	if err != nil {
		return err
	}
	if err := m.state.putReceipt(app, r, data); err != nil {
		return err
	}
	return m.ask("receipt.done")
}

func (s *memoryState) putReceipt(app string, r Receipt, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records[app] == nil {
		return notFound(app)
	}
	if s.receipts[app] == nil {
		s.receipts[app] = memoryReceipts{}
	}
	s.receipts[app][r.Attempt] = data
	for n := range s.receipts[app] {
		if r.replaces(n) {
			delete(s.receipts[app], n)
		}
	}
	all := s.receipts[app].sorted()
	for _, n := range all[:max(0, len(all)-KeepReceipts)] {
		delete(s.receipts[app], n)
	}
	return nil
}

// Receipts implements Commits.
func (m *Memory) Receipts(app string) ([]Receipt, error) {
	if err := m.ask("receipts"); err != nil {
		return nil, err
	}
	m.state.mu.Lock()
	defer m.state.mu.Unlock()
	var stored [][]byte
	for _, n := range m.state.receipts[app].sorted() {
		stored = append(stored, m.state.receipts[app][n])
	}
	return decodeReceipts(stored), nil
}
