package daemon

import (
	"time"

	"github.com/usher-edge/usher/cache"
	"github.com/usher-edge/usher/edge"
)

// pages is the cache as the edge sees it.
type pages struct {
	cache *cache.Cache
	// limit is the largest object of an app, in bytes; 0 is the cache's own bound.
	limit func(app string) int64
}

// space is one cache generation, with what finds its app's bound on objects. It
// is a value, so that one generation is one space however often it is opened:
// the edge compares them, and closes what it has left.
type space struct {
	*cache.Space
	app   string
	pages *pages
}

func (p *pages) Open(app string, generation uint64) edge.Space {
	return space{Space: p.cache.Space(app, generation), app: app, pages: p}
}

func (p *pages) NewVisit() edge.Visit { return &visit{} }

// visit is the memory of one lane: the request that was looked up last.
type visit struct {
	req  cache.Request
	resp cache.Response
}

var resultOf = [...]edge.CacheResult{
	cache.Miss:    edge.CacheMiss,
	cache.Hit:     edge.CacheHit,
	cache.Expired: edge.CacheStale,
	cache.Bypass:  edge.CacheBypass,
}

func (v *visit) Lookup(s edge.Space, q *edge.CacheQuery, now time.Time) edge.Found {
	v.req = cache.Request{Method: q.Method, Scheme: q.Scheme, Host: q.Host, Target: q.Target, Header: q.Header}
	f := s.(space).Lookup(&v.req, now) // pages.Open made it
	out := edge.Found{Result: resultOf[f.State]}
	if f.State != cache.Hit {
		return out
	}
	a := f.Object.Answer(&v.req)
	out.Status, out.Fields, out.Extra, out.Body, out.Length = a.Status, a.Fields, a.Extra, a.Body, a.Length
	out.Age, out.TTL = f.Age, f.Object.Freshness-f.Age
	return out
}

func (v *visit) Begin(s edge.Space, a *edge.CacheAnswer, sent, now time.Time) edge.Fill {
	space := s.(space)
	v.req.Sent = sent
	if cache.Invalidates(v.req.Method, a.Status) {
		space.Invalidate(&v.req)
		return nil
	}
	v.resp = cache.Response{Status: a.Status, Header: a.Header, Fields: a.Fields, Length: a.Length}
	limit := space.pages.limit(space.app)
	if limit > 0 && a.Length > limit {
		return nil
	}
	f := space.Space.Begin(&v.req, &v.resp, now)
	switch {
	case f == nil:
		return nil
	case limit > 0 && a.Length < 0:
		return &boundFill{Fill: f, left: limit}
	}
	return f
}

// boundFill gives up an object whose length nobody knew once it is too large.
type boundFill struct {
	*cache.Fill
	left int64
}

func (f *boundFill) Write(p []byte) (int, error) {
	if f.left -= int64(len(p)); f.left < 0 {
		f.Abort()
		return len(p), nil
	}
	return f.Fill.Write(p)
}
