// Package clients counts what each client has of something that all of them
// share, so that one cannot have it all.
//
// Guarantees:
//
//   - A client is an IPv4 address, or the /64 network of an IPv6 address: whoever
//     has one of those has all of it.
//   - Nobody who is not inside is remembered: the table is as large as the number
//     of clients that have something now, and empty when nobody has.
//   - Counts that nobody has entered yet are one word.
//   - Entering and leaving take one lock of many and allocate nothing for a
//     client that is inside already.
//
// Callers may not assume that a client is one person: a whole office may share
// an address.
package clients

import (
	"hash/maphash"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
)

// network is how much of an IPv6 address tells two clients apart (RFC 6177: a
// customer gets a /64 at least).
const network = 64

// Of returns the client that an address belongs to. The zero address is nobody.
func Of(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if !a.Is6() {
		return a
	}
	p, err := a.Prefix(network)
	if err != nil {
		return netip.Addr{} // cannot be: an IPv6 address has 64 bits
	}
	return p.Addr()
}

// Parse returns the client that a proxy's word names: an address, with brackets
// or a port if it likes. Anything else is nobody.
func Parse(text []byte) netip.Addr {
	s := string(text)
	if a, err := netip.ParseAddr(s); err == nil {
		return Of(a)
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return Of(ap.Addr())
	}
	inner, found := strings.CutPrefix(s, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	if a, err := netip.ParseAddr(inner); found && closed && err == nil {
		return Of(a)
	}
	return netip.Addr{}
}

// shards is how many locks the clients share.
const shards = 16

// Counts is how many of something each client has. The zero value has none. It
// is safe for use by many goroutines.
type Counts struct{ made atomic.Pointer[table] }

// table is what there is once somebody has entered.
type table [shards]shard

type shard struct {
	mu   sync.Mutex // guards the rest
	n    map[netip.Addr]int
	most int // clients at once since the map was made
}

// worthKeeping is how many clients an empty map may have had: a map never gives
// back what it has grown to.
const worthKeeping = 64

// Enter counts one more for a client, unless it has limit already. Nobody always
// gets in, and is not counted.
func (c *Counts) Enter(client netip.Addr, limit int) bool {
	if !client.IsValid() {
		return true
	}
	s := c.shard(client)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n[client] >= limit {
		return false
	}
	if s.n == nil {
		s.n = map[netip.Addr]int{}
	}
	s.n[client]++
	s.most = max(s.most, len(s.n))
	return true
}

// Leave undoes one Enter that let the client in.
func (c *Counts) Leave(client netip.Addr) {
	if !client.IsValid() {
		return
	}
	s := c.shard(client)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.n[client]; n > 1 {
		s.n[client] = n - 1
		return
	}
	delete(s.n, client)
	if len(s.n) == 0 && s.most > worthKeeping {
		s.n, s.most = nil, 0
	}
}

// Inside is how many clients have something.
func (c *Counts) Inside() (n int) {
	have := c.made.Load()
	if have == nil {
		return 0
	}
	for i := range have {
		s := &have[i]
		s.mu.Lock()
		n += len(s.n)
		s.mu.Unlock()
	}
	return n
}

func (c *Counts) shard(client netip.Addr) *shard {
	have := c.made.Load()
	if have == nil {
		c.made.CompareAndSwap(nil, new(table))
		have = c.made.Load()
	}
	return &have[maphash.Comparable(seed, client)%shards]
}

// seed keeps clients from choosing their shard.
var seed = maphash.MakeSeed()
