package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
)

// maxName bounds an app's name; it is far below what the database can hold as
// a key.
const maxName = 255

// change runs one read-modify-write on the encoded record old (nil: there is
// none) and returns the record to answer with and the bytes to write (nil:
// write nothing). floor is the highest version that a deleted record had.
func change(name string, old []byte, floor, ifVersion uint64, fn func(*App) error) (App, []byte, error) {
	if name == "" || len(name) > maxName {
		return App{}, nil, fmt.Errorf("app name of %d bytes, must be 1 to %d: %w", len(name), maxName, ErrInvalid)
	}
	before, err := decodeApp(name, old)
	if err != nil {
		return App{}, nil, err
	}
	if err := compare(name, ifVersion, before.Version); err != nil {
		return App{}, nil, err
	}
	after, err := decodeApp(name, old) // a second copy, for fn to write on
	if err != nil {
		return App{}, nil, err
	}
	if err := fn(&after); err != nil {
		return App{}, nil, err
	}
	after.Name, after.Version = name, before.Version
	if old == nil && isEmpty(after) {
		return App{Name: name}, nil, nil
	}
	after.bound()
	if err := check(before, after); err != nil {
		return App{}, nil, fmt.Errorf("app %s: %w", name, err)
	}
	after.Version = before.Version + 1
	if old == nil {
		after.Version = floor + 1
	}
	return seal(name, after)
}

// write is the new content of one record.
type write struct {
	name string
	data []byte
}

// changeAll is change for several records; those that fn has not changed are not
// among the writes.
func changeAll(names []string, old func(name string) []byte, floor uint64, fn func(*App) (bool, error)) (all []App, writes []write, err error) {
	for _, name := range names {
		a, err := decodeApp(name, old(name))
		if err != nil {
			return nil, nil, err
		}
		left := a
		changed, err := fn(&left)
		if err != nil {
			return nil, nil, err
		}
		if changed {
			var data []byte
			if a, data, err = change(name, old(name), floor, 0, func(rec *App) error { *rec = left; return nil }); err != nil {
				return nil, nil, err
			}
			if data != nil {
				writes = append(writes, write{name, data})
			}
		}
		all = append(all, a)
	}
	return all, writes, nil
}

// seal encodes the record and reads it back, so that the answer is what a
// later Get returns and shares nothing with what the callback may have kept.
func seal(name string, a App) (App, []byte, error) {
	data, err := encode(a)
	if err != nil {
		return App{}, nil, fmt.Errorf("encode record of app %s (%w): %w", name, err, ErrInvalid)
	}
	a, err = decodeApp(name, data)
	return a, data, err
}

func compare(name string, ifVersion, current uint64) error {
	if ifVersion == 0 || ifVersion == current {
		return nil
	}
	return fmt.Errorf("app %s is at version %d, not %d: read it again and repeat the change: %w",
		name, current, ifVersion, ErrConflict)
}

func isEmpty(a App) bool {
	got, err := json.Marshal(a)
	if err != nil {
		return false
	}
	want, err := json.Marshal(App{Name: a.Name, Version: a.Version})
	return err == nil && bytes.Equal(got, want)
}

// bound orders the history, drops what has grown too old and marks what is good.
func (a *App) bound() {
	slices.SortStableFunc(a.Releases, func(x, y Release) int {
		switch {
		case x.Revision < y.Revision:
			return -1
		case x.Revision > y.Revision:
			return 1
		}
		return 0
	})
	old := len(a.Releases) - KeepReleases
	var kept []Release
	for i, r := range a.Releases {
		r.WasGood = r.WasGood || r.Revision == a.Good
		if i >= old || r.Revision == a.Desired || r.Revision == a.Good || r.Revision == a.Reported {
			kept = append(kept, r)
		}
	}
	a.Releases = kept
	for revision := range a.Failures {
		if _, ok := a.Release(revision); !ok {
			delete(a.Failures, revision)
		}
	}
	if n := len(a.Outcomes) - KeepOutcomes; n > 0 {
		a.Outcomes = slices.Clone(a.Outcomes[n:])
	}
}

// check holds the rules of a record and of a step from one to the next.
func check(before, after App) error {
	switch {
	case after.Reported > after.Good || after.Good > after.Desired:
		return invalid("pointers must be reported ≤ good ≤ desired, not %d, %d, %d", after.Reported, after.Good, after.Desired)
	case after.Desired < before.Desired:
		return invalid("desired must not go back from %d to %d: a rollback is a new revision", before.Desired, after.Desired)
	case after.Reported < before.Reported:
		return invalid("reported must not go back from %d to %d", before.Reported, after.Reported)
	case after.Restarts < before.Restarts:
		return invalid("restarts must not go back from %d to %d", before.Restarts, after.Restarts)
	case after.RestartsDone > after.Restarts:
		return invalid("%d restarts done but only %d asked for", after.RestartsDone, after.Restarts)
	}
	if err := checkReleases(after); err != nil {
		return err
	}
	for _, was := range before.Releases {
		is, ok := after.Release(was.Revision)
		if !ok {
			continue
		}
		if is.Kind != was.Kind || is.Digest != was.Digest || is.Target != was.Target || is.DemandHold != was.DemandHold {
			return invalid("what revision %d runs must not change: commit a new revision", was.Revision)
		}
		if was.Ran && !is.Ran {
			return invalid("revision %d has run, that cannot be taken back", was.Revision)
		}
	}
	return nil
}

func checkReleases(a App) error {
	for i, r := range a.Releases { // bound has sorted them
		switch {
		case r.Revision == 0:
			return invalid("a release has no revision")
		case i > 0 && a.Releases[i-1].Revision == r.Revision:
			return invalid("two releases have revision %d", r.Revision)
		case r.Revision > a.Desired:
			return invalid("release %d is above desired %d: commit both in one update", r.Revision, a.Desired)
		case r.Kind != KindArtifact && r.Kind != KindTarget:
			return invalid("release %d has kind %q, must be %s or %s", r.Revision, r.Kind, KindArtifact, KindTarget)
		}
	}
	for _, p := range []uint64{a.Desired, a.Good, a.Reported} {
		if _, ok := a.Release(p); p != 0 && !ok {
			return invalid("a pointer names revision %d, which has no release", p)
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, ErrInvalid)...)
}

// errFrame says that stored bytes are not what was written.
var errFrame = errors.New("checksum does not match")

// frame puts a CRC-32C before data; unframe takes it off and checks it. The
// database guards its own structure, but not the values in it.
func frame(data []byte) []byte {
	sum := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return append(binary.BigEndian.AppendUint32(nil, sum), data...)
}

func unframe(data []byte) ([]byte, error) {
	if len(data) < 4 {
		return nil, errFrame
	}
	if crc32.Checksum(data[4:], crc32.MakeTable(crc32.Castagnoli)) != binary.BigEndian.Uint32(data) {
		return nil, errFrame
	}
	return data[4:], nil
}

func encode(a App) ([]byte, error) {
	data, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	return frame(data), nil
}

// decodeApp reads a stored record; data nil gives an empty one.
func decodeApp(name string, data []byte) (App, error) {
	a := App{Name: name}
	if data == nil {
		return a, nil
	}
	body, err := unframe(data)
	if err == nil {
		err = json.Unmarshal(body, &a)
	}
	if err == nil && a.Name != name {
		err = fmt.Errorf("it is the record of %q", a.Name)
	}
	if err != nil {
		return App{}, fmt.Errorf("stored record of app %s is damaged (%w): restart usher, it sets the damaged database aside", name, err)
	}
	return a, nil
}
