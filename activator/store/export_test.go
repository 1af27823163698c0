package store

import (
	"errors"
	"testing"

	"go.etcd.io/bbolt"
)

// SetFormat writes another format number into the database at path.
func SetFormat(t *testing.T, path string, n uint64) {
	t.Helper()
	edit(t, path, func(tx *bbolt.Tx) error { return putNumber(tx, keyFormat, n) })
}

// Damages are ways in which a database can be damaged although its pages are
// sound; each costs the record of app-3, or a number.
func Damages() map[string]func(t *testing.T, path string) {
	const app = "app-3"
	return map[string]func(t *testing.T, path string){
		"record with a flipped bit": func(t *testing.T, path string) {
			edit(t, path, func(tx *bbolt.Tx) error {
				apps := tx.Bucket([]byte(bucketApps))
				data := append([]byte(nil), apps.Get([]byte(app))...)
				data[len(data)/2] ^= 1
				return apps.Put([]byte(app), data)
			})
		},
		"record that vanished": func(t *testing.T, path string) {
			edit(t, path, func(tx *bbolt.Tx) error {
				return tx.Bucket([]byte(bucketApps)).Delete([]byte(app))
			})
		},
		"record under another name": func(t *testing.T, path string) {
			edit(t, path, func(tx *bbolt.Tx) error {
				apps := tx.Bucket([]byte(bucketApps))
				data := append([]byte(nil), apps.Get([]byte(app))...)
				return errors.Join(apps.Delete([]byte(app)), apps.Put([]byte("app-9"), data))
			})
		},
		"record that breaks the rules": func(t *testing.T, path string) {
			edit(t, path, func(tx *bbolt.Tx) error {
				data, err := encode(App{Name: app, Version: 1, Good: 2})
				return errors.Join(err, putRecord(tx, app, data))
			})
		},
	}
}

// DamageReceipt flips a bit of a stored receipt.
func DamageReceipt(t *testing.T, path, app string, attempt uint64) {
	t.Helper()
	edit(t, path, func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucketReceipts))
		data := append([]byte(nil), b.Get(receiptKey(app, attempt))...)
		data[len(data)/2] ^= 1
		return b.Put(receiptKey(app, attempt), data)
	})
}

// DropReceipts makes the database one of before there were receipts.
func DropReceipts(t *testing.T, path string) {
	t.Helper()
	edit(t, path, func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(bucketReceipts)) })
}

// DropNumber removes one of the numbers in the database at path.
func DropNumber(t *testing.T, path, key string) {
	t.Helper()
	edit(t, path, func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketMeta)).Delete([]byte(key))
	})
}

func edit(t *testing.T, path string, fn func(*bbolt.Tx) error) {
	t.Helper()
	db, _, err := openBolt(path, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(fn); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// CommitThen makes a commit, and calls after when it is on the disk and before it
// is acknowledged.
func (b *Bolt) CommitThen(after func()) error {
	return b.write("commit", func(tx *bbolt.Tx) error {
		tx.OnCommit(after)
		return raiseNumber(tx, keyGeneration, 1000)
	})
}
