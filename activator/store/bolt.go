package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Names inside the database. Every value is framed with a checksum.
const (
	bucketApps = "apps" // app name → record
	bucketMeta = "meta"

	keyFormat     = "format"     // number: layout of this database
	keyGeneration = "generation" // number: highest generation reserved
	keyFloor      = "floor"      // number: highest version that a deleted record had
	keySum        = "sum"        // number: recordSum of all records, xored

	format = 1
)

// Bolt is Commits on a bbolt database in the state directory.
type Bolt struct {
	*eventLog
	*fence
	dir    string
	db     *bbolt.DB
	damage error
	owned  []owned // the database and the lock, as they were opened

	closeOnce sync.Once
	closeErr  error
}

var _ Commits = (*Bolt)(nil)

// Damage is nil, or a *DamageError if Open found a database that it had to set
// aside.
func (b *Bolt) Damage() error { return b.damage }

// Apps implements Commits.
func (b *Bolt) Apps() ([]string, error) {
	var names []string
	err := b.view("list apps", func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketApps)).ForEach(func(k, _ []byte) error {
			names = append(names, string(k))
			return nil
		})
	})
	return names, err
}

// Get implements Commits.
func (b *Bolt) Get(app string) (a App, err error) {
	err = b.view("read app", func(tx *bbolt.Tx) error {
		data := tx.Bucket([]byte(bucketApps)).Get([]byte(app))
		if data == nil {
			return notFound(app)
		}
		var err error
		a, err = decodeApp(app, data)
		return err
	})
	return a, err
}

// Update implements Commits.
func (b *Bolt) Update(app string, ifVersion uint64, fn func(*App) error) (a App, err error) {
	var own error // of change: passed on as it is
	err = b.write("commit app "+app, func(tx *bbolt.Tx) error {
		floor, err := getNumber(tx, keyFloor)
		if err != nil {
			return err
		}
		var data []byte
		old := tx.Bucket([]byte(bucketApps)).Get([]byte(app))
		a, data, own = change(app, old, floor, ifVersion, fn)
		if own != nil || data == nil {
			return errNothing
		}
		return putRecord(tx, app, data)
	})
	if own != nil {
		return App{}, own
	}
	if err != nil {
		return App{}, err
	}
	return a, nil
}

// UpdateAll implements Commits.
func (b *Bolt) UpdateAll(apps []string, fn func(*App) (bool, error)) (all []App, err error) {
	var own error // of changeAll: passed on as it is
	err = b.write(fmt.Sprintf("commit %d apps", len(apps)), func(tx *bbolt.Tx) error {
		floor, err := getNumber(tx, keyFloor)
		if err != nil {
			return err
		}
		bucket := tx.Bucket([]byte(bucketApps))
		var writes []write
		all, writes, own = changeAll(apps, func(name string) []byte { return bucket.Get([]byte(name)) }, floor, fn)
		if own != nil || len(writes) == 0 {
			return errNothing
		}
		for _, w := range writes {
			if err := putRecord(tx, w.name, w.data); err != nil {
				return err
			}
		}
		return nil
	})
	if err = errors.Join(own, err); err != nil {
		return nil, err
	}
	return all, nil
}

// Delete implements Commits.
func (b *Bolt) Delete(app string, ifVersion uint64) error {
	return b.write("delete app "+app, func(tx *bbolt.Tx) error {
		data := tx.Bucket([]byte(bucketApps)).Get([]byte(app))
		if data == nil {
			return notFound(app)
		}
		a, err := decodeApp(app, data)
		if err != nil {
			return err
		}
		if err := compare(app, ifVersion, a.Version); err != nil {
			return err
		}
		if err := raiseNumber(tx, keyFloor, a.Version); err != nil {
			return err
		}
		if bucket := tx.Bucket([]byte(bucketReceipts)); bucket != nil {
			if err := dropReceipts(bucket, app, 0); err != nil {
				return err
			}
		}
		return putRecord(tx, app, nil)
	})
}

// Generations implements Commits.
func (b *Bolt) Generations(n uint64) (first uint64, err error) {
	err = b.write("reserve generations", func(tx *bbolt.Tx) error {
		last, err := getNumber(tx, keyGeneration)
		if err != nil {
			return err
		}
		if first, err = reserve(last, n); err != nil {
			return err
		}
		return putNumber(tx, keyGeneration, last+n)
	})
	if err != nil {
		return 0, err
	}
	return first, nil
}

// RaiseGenerations implements Commits.
func (b *Bolt) RaiseGenerations(above uint64) error {
	return b.write("raise generations", func(tx *bbolt.Tx) error {
		is, err := getNumber(tx, keyGeneration)
		if err == nil && is >= above {
			err = errNothing
		}
		if err != nil {
			return err
		}
		return putNumber(tx, keyGeneration, above)
	})
}

// Check reads the whole database and returns everything that is wrong with it.
func (b *Bolt) Check() error {
	return b.write("check", func(tx *bbolt.Tx) error { // the library's check must not meet a writer
		if err := checkTx(tx); err != nil {
			return err
		}
		return errNothing
	})
}

// Close implements Commits.
func (b *Bolt) Close() error {
	b.closeOnce.Do(func() {
		b.closeErr = errors.Join(b.eventLog.close(), b.db.Close())
	})
	return b.closeErr
}

// errNothing ends a transaction that has nothing to write.
var errNothing = errors.New("nothing to write")

// write commits only what is still usher's: it looks right before the commit, so
// that nothing of another owner's is written, and right after it, so that nothing
// is acknowledged that went to what was moved away.
func (b *Bolt) write(op string, fn func(*bbolt.Tx) error) error {
	err := b.db.Update(func(tx *bbolt.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return b.Owned()
	})
	if errors.Is(err, errNothing) {
		return nil
	}
	if err == nil {
		if err = b.Owned(); err != nil {
			err = mayHold(err)
		}
	}
	return b.wrap(op, err)
}

func (b *Bolt) view(op string, fn func(*bbolt.Tx) error) error {
	return b.wrap(op, b.db.View(fn))
}

func (b *Bolt) wrap(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, berrors.ErrDatabaseNotOpen):
		return fmt.Errorf("%s: %w", op, ErrClosed)
	case errors.Is(err, ErrFenced):
		return fmt.Errorf("%s: %w", op, err)
	}
	return fmt.Errorf("%s in %s: %w", op, b.dir, explain(err))
}

func notFound(app string) error {
	return fmt.Errorf("app %s: %w", app, ErrNotFound)
}

// reserve returns the first of n numbers above last.
func reserve(last, n uint64) (uint64, error) {
	if n == 0 || last+n < last {
		return 0, invalid("cannot reserve %d generation numbers above %d", n, last)
	}
	return last + 1, nil
}

// getNumber reads a number of the meta bucket. All of them are there from the
// start: one that is missing is damage, not 0.
func getNumber(tx *bbolt.Tx, key string) (uint64, error) {
	n, err := parseNumber(tx.Bucket([]byte(bucketMeta)).Get([]byte(key)))
	if err != nil {
		return 0, fmt.Errorf("stored number %s is damaged (%w): restart usher, it sets the damaged database aside", key, err)
	}
	return n, nil
}

func parseNumber(data []byte) (uint64, error) {
	body, err := unframe(data)
	if err == nil && len(body) != 8 {
		err = errFrame
	}
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(body), nil
}

func putNumber(tx *bbolt.Tx, key string, n uint64) error {
	data := frame(binary.BigEndian.AppendUint64(nil, n))
	return tx.Bucket([]byte(bucketMeta)).Put([]byte(key), data)
}

// raiseNumber writes n if it is above what is there.
func raiseNumber(tx *bbolt.Tx, key string, n uint64) error {
	is, err := getNumber(tx, key)
	if err != nil || is >= n {
		return err
	}
	return putNumber(tx, key, n)
}

// putRecord writes a record (nil: deletes it) and keeps the sum over all of
// them. Pages have no checksum of their own, so a record that vanishes, or
// comes back in an older state, is noticed by that sum alone.
func putRecord(tx *bbolt.Tx, name string, data []byte) error {
	apps := tx.Bucket([]byte(bucketApps))
	sum, err := getNumber(tx, keySum)
	if err != nil {
		return err
	}
	sum ^= recordSum(name, apps.Get([]byte(name))) ^ recordSum(name, data)
	if data == nil {
		err = apps.Delete([]byte(name))
	} else {
		err = apps.Put([]byte(name), data)
	}
	if err != nil {
		return err
	}
	return putNumber(tx, keySum, sum)
}

// recordSum is 0 for no record.
func recordSum(name string, data []byte) uint64 {
	if data == nil {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(name)) // never fails
	h.Write([]byte{0})
	h.Write(data)
	return h.Sum64()
}

// checkTx joins the library's own check of the structure with ours of the
// records.
func checkTx(tx *bbolt.Tx) error {
	var faults []error
	for err := range tx.Check() {
		faults = append(faults, err)
	}
	for _, name := range []string{bucketApps, bucketMeta} {
		if tx.Bucket([]byte(name)) == nil {
			return errors.Join(append(faults, fmt.Errorf("bucket %q is missing", name))...)
		}
	}
	for _, key := range []string{keyFormat, keyGeneration, keyFloor} {
		if _, err := getNumber(tx, key); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(append(faults, checkRecords(tx))...)
}

func checkRecords(tx *bbolt.Tx) error {
	var faults []error
	var sum uint64
	err := tx.Bucket([]byte(bucketApps)).ForEach(func(k, v []byte) error {
		sum ^= recordSum(string(k), v)
		a, err := decodeApp(string(k), v)
		if err == nil {
			err = check(App{}, a)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("app %s: %w", k, err))
		}
		return nil
	})
	faults = append(faults, err)
	if want, err := getNumber(tx, keySum); err != nil || want != sum {
		faults = append(faults, fmt.Errorf("the records are not all that were written"))
	}
	return errors.Join(faults...)
}
