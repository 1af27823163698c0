package clients

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAClientIsAnAddressOrASlash64(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.7":                "192.0.2.7",
		"192.0.2.7:4711":           "192.0.2.7",
		"::ffff:192.0.2.7":         "192.0.2.7",
		"[::ffff:192.0.2.7]:80":    "192.0.2.7",
		"2001:db8:1:2:3:4:5:6":     "2001:db8:1:2::",
		"[2001:db8:1:2:ffff::1]":   "2001:db8:1:2::",
		"[2001:db8:1:2::9]:443":    "2001:db8:1:2::",
		"fe80::1%eth0":             "fe80::",
		"":                         "",
		"unknown":                  "",
		"_hidden":                  "",
		"[192.0.2.7":               "",
		"192.0.2.7]":               "",
		"192.0.2":                  "",
		"192.0.2.7, 192.0.2.8":     "",
		"2001:db8:1:2:3:4:5:6:7:8": "",
	} {
		got := Parse([]byte(text))
		if (want == "") != !got.IsValid() || want != "" && got != netip.MustParseAddr(want) {
			t.Errorf("%q is the client %v, want %q", text, got, want)
		}
	}
}

func TestNoClientHasMoreThanTheLimitAndNobodyIsRemembered(t *testing.T) {
	var c Counts
	const limit, tries = 5, 200
	client := func(i int) netip.Addr { return Of(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})) }
	var inside [8]atomic.Int32
	var all sync.WaitGroup
	for i := range inside {
		for range 4 {
			all.Go(func() {
				for range tries {
					if !c.Enter(client(i), limit) {
						continue
					}
					if n := inside[i].Add(1); n > limit {
						t.Errorf("client %d is inside %d times", i, n)
					}
					inside[i].Add(-1)
					c.Leave(client(i))
				}
			})
		}
	}
	all.Wait()
	if n := c.Inside(); n != 0 {
		t.Errorf("%d clients are remembered though nobody is inside", n)
	}
	for range limit {
		if !c.Enter(client(1), limit) {
			t.Fatal("refused below the limit")
		}
	}
	if c.Enter(client(1), limit) {
		t.Error("let in beyond the limit")
	}
	if !c.Enter(client(2), limit) {
		t.Error("one client's limit refused another")
	}
	if n := c.Inside(); n != 2 {
		t.Errorf("%d clients are inside, want 2", n)
	}
	c.Leave(client(1))
	if !c.Enter(client(1), limit) {
		t.Error("a place that was given back is not free")
	}
}

func TestNobodyIsNotCounted(t *testing.T) {
	var c Counts
	for range 10 {
		if !c.Enter(netip.Addr{}, 1) {
			t.Fatal("refused")
		}
	}
	if n := c.Inside(); n != 0 {
		t.Errorf("%d", n)
	}
	c.Leave(netip.Addr{})
}

func BenchmarkEnterLeave(b *testing.B) {
	var c Counts
	a := netip.MustParseAddr("192.0.2.1")
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Enter(a, 1<<30)
			c.Leave(a)
		}
	})
}
