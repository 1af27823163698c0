package store_test

import (
	"path/filepath"
	"testing"

	"github.com/usher-edge/usher/activator/store"
)

// withReceipts makes a state directory with two apps and three receipts each.
func withReceipts(t *testing.T) (dir, path string) {
	t.Helper()
	dir = t.TempDir()
	filled(t, dir, 2)
	s := openBolt(t, dir, store.Options{NoSync: true})
	for _, app := range []string{"app-0", "app-1"} {
		for n := range uint64(3) {
			must(t, s.PutReceipt(app, store.Receipt{Attempt: n + 1}))
		}
	}
	must(t, s.Close())
	return dir, filepath.Join(dir, "usher.db")
}

func attempts(t *testing.T, s *store.Bolt, app string) (out []uint64) {
	t.Helper()
	list, err := s.Receipts(app)
	must(t, err)
	for _, r := range list {
		out = append(out, r.Attempt)
	}
	return out
}

func TestADamagedReceiptCostsItselfAndNothingElse(t *testing.T) {
	dir, path := withReceipts(t)
	store.DamageReceipt(t, path, "app-0", 2)
	s := openBolt(t, dir, store.Options{NoSync: true})
	if err := s.Damage(); err != nil {
		t.Errorf("the database counts as damaged: %v", err)
	}
	if got := attempts(t, s, "app-0"); len(got) != 2 || got[0] != 1 || got[1] != 3 {
		t.Errorf("attempts %v are left", got)
	}
	must(t, s.Close())
}

func TestReceiptsOfAppsThatAreWholeOutliveADamagedDatabase(t *testing.T) {
	dir, path := withReceipts(t)
	store.DropNumber(t, path, "floor")
	s := openBolt(t, dir, store.Options{NoSync: true})
	if s.Damage() == nil {
		t.Fatal("the damage was not found")
	}
	for _, app := range []string{"app-0", "app-1"} {
		if got := attempts(t, s, app); len(got) != 3 {
			t.Errorf("%s has the receipts of %v", app, got)
		}
	}
	must(t, s.Close())
}

func TestADatabaseOfBeforeThereWereReceiptsGetsThem(t *testing.T) {
	dir, path := withReceipts(t)
	store.DropReceipts(t, path)
	s := openBolt(t, dir, store.Options{NoSync: true})
	if got := attempts(t, s, "app-0"); s.Damage() != nil || len(got) != 0 {
		t.Fatalf("damage %v, receipts %v", s.Damage(), got)
	}
	must(t, s.PutReceipt("app-0", store.Receipt{Attempt: 9}))
	if got := attempts(t, s, "app-0"); len(got) != 1 {
		t.Errorf("receipts %v", got)
	}
	must(t, s.Delete("app-0", 0))
	must(t, s.Close())
}
