package upstream

import (
	"testing"
	"time"
)

// What one app's pool keeps for later takes nothing from another app's requests.
func TestIdleConnectionsMakeRoomInWhateverPool(t *testing.T) {
	onBoth(t, func(t *testing.T, network string) {
		share := NewShare(4)
		o := newOrigin(t, network, web(echo))
		a, b, c := o.pool(Options{Share: share}), o.pool(Options{Share: share}), o.pool(Options{Share: share})
		warm(t, a, 2)
		age(a, time.Second/2)
		warm(t, b, 2)
		x := get(t, c, true)
		if s := a.Stats(); s.Idle != 1 {
			t.Errorf("%+v: what has been idle for longest is closed", s)
		}
		y := get(t, c, true)
		if s := b.Stats(); a.Stats().Idle != 0 || s.Idle != 2 {
			t.Errorf("%+v, %+v", a.Stats(), s)
		}
		if z := get(t, b, true); !z.Reused {
			t.Error("what is idle is used before there is anything to make room for")
		} else {
			b.Put(z)
		}
		held := []*Conn{x, y}
		for range 4 {
			held = append(held, get(t, c, true)) // who needs one gets one
		}
		if n := share.open.Load(); n != 6 || b.Stats().Idle != 0 {
			t.Errorf("%d connections of 4, %+v", n, b.Stats())
		}
		if err := a.Warm(t.Context(), request("GET", "/", ""), 1); err == nil || a.Stats().Open != 0 {
			t.Errorf("%v, %+v: one was made warm that there is no room for", err, a.Stats())
		}
		for _, x := range held {
			c.Discard(x)
		}
		if err := a.Warm(t.Context(), request("GET", "/", ""), 9); err == nil || a.Stats().Open != 4 {
			t.Errorf("%v, %+v: there is room for 4", err, a.Stats())
		}
		for _, p := range []*Pool{a, b, c} {
			p.Close()
		}
		if n := share.open.Load(); n != 0 || len(share.holders) != 0 {
			t.Errorf("%d connections and %d pools are left", n, len(share.holders))
		}
	})
}

func TestADialThatFailsTakesNoShare(t *testing.T) {
	share := NewShare(1)
	o := newOrigin(t, "tcp", web(echo))
	p := o.pool(Options{Share: share})
	o.stop()
	if c, err := p.Get(t.Context(), true); err == nil {
		t.Fatalf("a connection to nobody: %v", c)
	}
	if n := share.open.Load(); n != 0 {
		t.Errorf("%d connections are counted", n)
	}
}

// A pool whose idle connections have all expired is forgotten.
func TestAShareForgetsPoolsThatKeepNothing(t *testing.T) {
	share := NewShare(10)
	p := newOrigin(t, "tcp", web(echo)).pool(Options{Share: share, IdleTimeout: 10 * time.Millisecond})
	warm(t, p, 3)
	eventually(t, "the pool is forgotten", func() bool { return len(share.withIdle()) == 0 && share.open.Load() == 0 })
}
