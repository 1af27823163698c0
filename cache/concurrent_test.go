package cache

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Everybody does everything at once, on a cache that is too small. A body says
// which space it was stored for, so an answer from another one shows.
func TestConcurrentUseKeepsSpacesApartAndTheBooksRight(t *testing.T) {
	const apps, workers, rounds = 2, 8, 1500
	c := New(Config{MaxBytes: 300_000, Shards: 4})
	var current [apps]atomic.Pointer[generation]
	for i := range current {
		current[i].Store(&generation{c.Space(fmt.Sprint(i), 0), 0})
	}
	var done sync.WaitGroup
	for w := range workers {
		done.Go(func() {
			for i := range rounds {
				app := (w + i) % apps
				g := current[app].Load()
				serve(t, g, app, i)
				switch n := w*rounds + i; {
				case n%401 == 0:
					next := &generation{c.Space(fmt.Sprint(app), uint64(n)), n}
					current[app].Store(next)
					g.space.Close()
					wantRefusal(t, g.space)
				case n%97 == 0:
					g.space.Purge()
				case n%53 == 0:
					g.space.Invalidate(ask("POST", fmt.Sprintf("/%d", i%40)))
				case n%1501 == 0:
					c.Forget(fmt.Sprint(app))
				case n%31 == 0:
					if st := c.Stats(); st.Filling > st.Limit/fillShare {
						t.Errorf("%d bytes filling", st.Filling)
					}
				}
				if used := c.ledger.used.Load(); used > c.ledger.limit {
					t.Errorf("%d bytes used, %d allowed", used, c.ledger.limit)
				}
			}
		})
	}
	done.Wait()
	wantConsistent(t, c)
}

type generation struct {
	space *Space
	n     int
}

// serve looks one of forty URIs up and stores an answer on a miss.
func serve(t *testing.T, g *generation, app, i int) {
	r := get(fmt.Sprintf("/%d", i%40), fmt.Sprintf("Accept: %d", i%3))
	name := fmt.Appendf(nil, "app %d, generation %d, %s", app, g.n, r.Target)
	found := g.space.Lookup(r, t0)
	if found.State == Hit {
		if !bytes.HasPrefix(found.Object.Body, name) {
			t.Errorf("%q was answered with %q", name, found.Object.Body)
		}
		return
	}
	body := append(append([]byte{}, name...), text(100*(i%100))...)
	resp := okay(string(body), "Vary: Accept")
	if i%2 == 0 {
		resp.Length = -1
	}
	f := g.space.Begin(r, resp, t0)
	_, _ = f.Write(body[:len(name)])
	_, _ = f.Write(body[len(name):])
	if i%7 == 0 {
		f.Abort()
	}
	f.Commit()
}

func wantRefusal(t *testing.T, s *Space) {
	if found := s.Lookup(get("/1"), t0); found.State != Bypass {
		t.Errorf("a closed space answered with state %d", found.State)
	}
	if s.Begin(get("/1"), okay("x"), t0) != nil {
		t.Error("a closed space takes answers")
	}
}

// Purge and Close return only when what was stored before can no longer be
// found; a store that races with them is refused or swept.
func TestStoresThatRaceWithAPurgeNeverSurviveIt(t *testing.T) {
	c := New(Config{Shards: 2})
	for round := range 200 {
		s := c.Space("app", uint64(round))
		var fills []*Fill
		for i := range 8 {
			fills = append(fills, begun(t, s, get(fmt.Sprintf("/%d", i)), "old"))
		}
		var done sync.WaitGroup
		for _, f := range fills {
			done.Go(func() { f.Commit() })
		}
		end := s.Purge
		if round%2 == 0 {
			end = s.Close
		}
		end()
		for i := range 8 {
			if s.Lookup(get(fmt.Sprintf("/%d", i)), t0.Add(time.Second)).State == Hit {
				t.Fatal("a hit on what was stored before")
			}
		}
		done.Wait()
		for i := range 8 {
			if s.Lookup(get(fmt.Sprintf("/%d", i)), t0).State == Hit {
				t.Fatal("a store landed after the end")
			}
		}
		s.Close()
	}
	wantConsistent(t, c)
}
