package store

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Files in the state directory.
const (
	dbName     = "usher.db"
	freshName  = "usher.db.new"     // a database being made; complete when renamed
	asideName  = "usher.db.corrupt" // and "-<time>": evidence, never touched again
	eventsName = "events.jsonl"
)

// openTimeout bounds the wait for another process that has the database open
// without holding the lock of the state directory (a tool that looks inside).
const openTimeout = 2 * time.Second

// Options of Open. The zero value is what a server uses.
type Options struct {
	// NoSync leaves out syncing: commits do not survive a power cut then. For
	// tests that commit thousands of times.
	NoSync bool

	// Events is how many events are kept; 0, and more than DefaultEvents,
	// mean DefaultEvents.
	Events int

	// Now is the clock that names set-aside files; nil means time.Now.
	Now func() time.Time

	// Lock is the lock of the state directory: it must stay what its path names,
	// as the database must. nil: only the database is looked at.
	Lock *StateLock
}

// DamageError says that the database was damaged and has been replaced.
type DamageError struct {
	Path    string // the database
	Aside   string // where the damaged file is now; empty if there was none
	Reasons []error
	Kept    []string // apps whose records were whole and are in the new database, sorted
}

func (e *DamageError) Error() string {
	var b strings.Builder
	if e.Aside == "" {
		fmt.Fprintf(&b, "database %s is missing", e.Path)
	} else {
		fmt.Fprintf(&b, "database %s was damaged and has been moved to %s", e.Path, e.Aside)
	}
	for i, r := range e.Reasons {
		if i == 3 {
			fmt.Fprintf(&b, "; and %d more", len(e.Reasons)-i)
			break
		}
		fmt.Fprintf(&b, "; %v", r)
	}
	if len(e.Kept) == 0 {
		b.WriteString("; a new, empty one is in use: running apps are found again, others start over from the config file")
	} else {
		fmt.Fprintf(&b, "; a new one is in use that has the records of %s: other apps start over from the config file", strings.Join(e.Kept, ", "))
	}
	return b.String()
}

func (e *DamageError) Unwrap() []error { return e.Reasons }

// Open opens the database in the state directory dir, which must exist and
// whose lock the caller holds (see Lock); it makes one if there is none.
//
// A damaged database is no error: the file is kept aside as
// usher.db.corrupt-<time>, records that are whole are taken over into a new
// one, and Damage says all that. Numbers that may have been lost with it
// (generations, versions) go on from the Unix time in seconds, which is above
// what any counter can have reached. A database that cannot be read or written,
// or that a newer usher wrote, is an error and is left as it is.
func Open(dir string, o Options) (*Bolt, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	b := &Bolt{dir: dir, fence: newFence()}
	damage, err := b.openDB(o)
	if err != nil {
		return nil, fmt.Errorf("open state in %s: %w", dir, explain(err))
	}
	if damage != nil {
		b.damage = damage
	}
	if o.Lock != nil {
		b.owned = append(b.owned, o.Lock.owned)
	}
	file, err := openEventFile(filepath.Join(dir, eventsName), b.Owned)
	if err != nil {
		return nil, errors.Join(err, b.db.Close())
	}
	b.eventLog = newEventLog(o.Events, file)
	return b, nil
}

// openDB opens what is there, or a new database in its place.
func (b *Bolt) openDB(o Options) (*DamageError, error) {
	damage, err := prepare(b.dir, o)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(b.dir, dbName)
	for range 2 {
		if b.db, b.owned, err = openBolt(path, o.NoSync); err != nil {
			return nil, err
		}
		fault := b.db.View(checkTx)
		if fault == nil {
			return damage, nil
		}
		// The pages can be followed, but what they say does not fit together.
		if err := b.db.Close(); err != nil {
			return nil, err
		}
		in, err := inspect(path)
		if err != nil {
			return nil, err
		}
		in.faults = append(in.faults, fault)
		if damage, err = replace(b.dir, in, o); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("database %s is damaged again right after it was made: check the disk", path)
}

// prepare sees to it that a database is there that can be opened safely.
func prepare(dir string, o Options) (*DamageError, error) {
	fresh := filepath.Join(dir, freshName)
	in, err := inspect(filepath.Join(dir, dbName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		lost := missing(dir)
		// A complete new one is left by a crash just before its rename.
		if in, err := inspect(fresh); err != nil || len(in.faults) > 0 {
			if err := buildDB(dir, inspection{}, startNumber(lost, o)); err != nil {
				return nil, err
			}
		}
		return lost, publish(dir)
	case err != nil:
		return nil, err
	case len(in.faults) > 0:
		return replace(dir, in, o)
	}
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return nil, nil
}

// inspection is what a database file holds, read without opening it.
type inspection struct {
	records  map[string][]byte // of apps, those that are whole
	receipts map[string][]byte // by key, likewise
	faults   []error
}

// inspect reads the database at path. An error says that it could not be read
// or is not ours to touch, faults say that it is damaged.
func inspect(path string) (in inspection, err error) {
	in.records, in.receipts = map[string][]byte{}, map[string][]byte{}
	var layout []byte
	in.faults, err = walkPages(path, func(bucket string, key, value []byte) {
		switch {
		case bucket == bucketMeta && string(key) == keyFormat:
			layout = value
		case bucket == bucketApps:
			if a, err := decodeApp(string(key), value); err == nil && check(App{}, a) == nil {
				in.records[a.Name] = value
			}
		case bucket == bucketReceipts && len(decodeReceipts([][]byte{value})) == 1:
			in.receipts[string(key)] = value
		}
	})
	if err != nil {
		return in, err
	}
	switch n, err := parseNumber(layout); {
	case err != nil:
		in.faults = append(in.faults, fmt.Errorf("its format is not recorded: %w", err))
	case n != format:
		return in, fmt.Errorf("database %s has format %d and this usher knows %d: use the usher that wrote it, or a newer one", path, n, format)
	}
	return in, nil
}

// missing tells a state directory that lost its database from a new one.
func missing(dir string) *DamageError {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // making the new one will say what is wrong
	}
	for _, e := range slices.Backward(entries) { // the latest
		if strings.HasPrefix(e.Name(), asideName+"-") {
			return &DamageError{
				Path:    filepath.Join(dir, dbName),
				Reasons: []error{fmt.Errorf("an earlier one was set aside as %s", e.Name())},
			}
		}
	}
	return nil
}

// startNumber is where a new database starts counting: 0, or above all that a
// lost one can have handed out.
func startNumber(lost *DamageError, o Options) uint64 {
	if lost == nil {
		return 0
	}
	return uint64(max(o.Now().Unix(), 0))
}

// replace puts a new database with the records that are whole in the place of
// a damaged one. The damaged file gets a second name before it loses its
// first, so that at no point there is no database, and neither is ever lost.
func replace(dir string, in inspection, o Options) (*DamageError, error) {
	path := filepath.Join(dir, dbName)
	damage := &DamageError{
		Path:    path,
		Aside:   filepath.Join(dir, asideName+"-"+o.Now().UTC().Format("20060102T150405.000000000Z")),
		Reasons: in.faults,
		Kept:    slices.Sorted(maps.Keys(in.records)),
	}
	if err := buildDB(dir, in, startNumber(damage, o)); err != nil {
		return nil, err
	}
	if err := os.Link(path, damage.Aside); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		// A file system without hard links: one moment without a database,
		// which the next start would put right.
		if err := os.Rename(path, damage.Aside); err != nil {
			return nil, err
		}
	}
	return damage, publish(dir)
}

// buildDB makes a complete, synced database of what was found whole, under the
// temporary name.
func buildDB(dir string, in inspection, start uint64) error {
	fresh := filepath.Join(dir, freshName)
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	db, _, err := openBolt(fresh, false)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if _, err := tx.CreateBucket([]byte(bucketApps)); err != nil {
			return err
		}
		if _, err := tx.CreateBucket([]byte(bucketMeta)); err != nil {
			return err
		}
		err := errors.Join(
			putNumber(tx, keyFormat, format),
			putNumber(tx, keyGeneration, start),
			putNumber(tx, keyFloor, start),
			putNumber(tx, keySum, 0),
		)
		for name, record := range in.records {
			err = errors.Join(err, putRecord(tx, name, record))
		}
		return errors.Join(err, keepReceipts(tx, in))
	})
	return errors.Join(err, db.Close())
}

// keepReceipts takes over the receipts of apps that are kept.
func keepReceipts(tx *bbolt.Tx, in inspection) error {
	bucket, err := tx.CreateBucketIfNotExists([]byte(bucketReceipts))
	if err != nil {
		return err
	}
	var errs []error
	for key, data := range in.receipts {
		if in.records[receiptApp([]byte(key))] != nil {
			errs = append(errs, bucket.Put([]byte(key), data))
		}
	}
	return errors.Join(errs...)
}

// publish gives the new database its name, durably.
func publish(dir string) error {
	if err := os.Rename(filepath.Join(dir, freshName), filepath.Join(dir, dbName)); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// openBolt opens a database and says which file that is.
func openBolt(path string, noSync bool) (*bbolt.DB, []owned, error) {
	var of []owned
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:      openTimeout,
		NoSync:       noSync,
		NoStatistics: true,
		OpenFile: func(name string, flag int, mode fs.FileMode) (*os.File, error) {
			f, o, err := openOwned(name, flag, mode)
			of = []owned{o}
			return f, err
		},
	})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, nil, fmt.Errorf("database %s is open in another process: end it and start again", path)
	}
	return db, of, err
}

// explain adds what to do to an error of the system.
func explain(err error) error {
	for _, e := range []struct {
		is   error
		todo string
	}{
		{syscall.ENOSPC, "free some space"},
		{syscall.EDQUOT, "free some space or raise the quota"},
		{syscall.EROFS, "mount it writable or choose another directory"},
		{fs.ErrPermission, "give usher's user write permission or choose another directory"},
		{fs.ErrNotExist, "create the directory first"},
	} {
		if errors.Is(err, e.is) {
			return fmt.Errorf("%w: %s", err, e.todo)
		}
	}
	return err
}
