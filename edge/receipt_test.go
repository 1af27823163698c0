package edge

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// hits is a cache that has everything below /cached.
type hits struct{}

func (hits) Open(string, uint64) Space { return hits{} }
func (hits) NewVisit() Visit           { return hits{} }
func (hits) Close()                    {}

func (hits) Lookup(_ Space, q *CacheQuery, _ time.Time) Found {
	if strings.HasPrefix(string(q.Target), "/cached") {
		return Found{Result: CacheHit, Status: 200}
	}
	return Found{Result: CacheMiss}
}

func (hits) Begin(Space, *CacheAnswer, time.Time, time.Time) Fill { return nil }

func addsUp(t *testing.T, y Tally) {
	t.Helper()
	for _, m := range y.Mismatch {
		t.Error(m)
	}
}

func TestARequestCountsInTheWindowThatAcceptedItAndNowhereElse(t *testing.T) {
	e, a := one(t, Options{Cache: hits{}}, AppConfig{})
	a.Place(serving(1))
	before := open(e)
	e.Decide(before)
	first := a.OpenAccount(2)
	within, across, hit := open(e), open(e), open(e)
	e.Decide(within)
	e.Decide(across)
	hit.Target = []byte("/cached")
	e.Finish(hit, Result{Ending: Cached, Cause: e.Decide(hit).Cause})
	end(e, before, Served)
	a.Place(serving(2))
	end(e, within, Served)
	after := open(e)
	e.Decide(after)
	end(e, after, Served)
	refused := open(e)
	a.Place(Placement{State: Maintenance})
	e.Finish(refused, Result{Ending: Refused, Cause: e.Decide(refused).Cause, Status: 503})
	if y := first.Look(); y.Accepted != 5 || y.Open != 1 {
		t.Errorf("before the close: %+v", y)
	}
	y := first.Close()
	addsUp(t, y)
	second := a.OpenAccount(3)
	end(e, across, Served)
	if z := first.Close(); !reflect.DeepEqual(y, z) {
		t.Errorf("closed books changed: %+v, then %+v", y, z)
	}
	if y.Accepted != 5 || y.ByIncumbent != 1 || y.BySuccessor != 1 || y.Cached != 1 || y.Refused != 1 || y.RefusedBy["maintenance"] != 1 || y.Open != 1 {
		t.Errorf("%+v", y)
	}
	if y := second.Close(); y.Accepted != 0 || y.Served != 0 || y.Open != 0 || y.Mismatch != nil {
		t.Errorf("what an earlier window accepted shows in a later one: %+v", y)
	}
}

func TestAnAccountThatIsStillOpenIsClosedByTheNextOne(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	a.Place(serving(1))
	first := a.OpenAccount(2)
	r := open(e)
	e.Decide(r)
	second := a.OpenAccount(3)
	end(e, r, Served)
	if y := first.Close(); y.Accepted != 1 || y.Open != 1 || y.Mismatch != nil {
		t.Errorf("the first: %+v", y)
	}
	if y := second.Close(); y.Accepted != 0 || y.Mismatch != nil {
		t.Errorf("the second: %+v", y)
	}
	if a.account.Load() != nil {
		t.Error("closed books are still kept")
	}
}

func TestTheTurnWaitsForTheAnswersOfThoseWhoParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{})
		a.Place(Placement{State: Holding})
		ac := a.OpenAccount(2)
		var lanes []*Request
		parked := make(chan Cause)
		for range 3 {
			r := open(e)
			e.Decide(r)
			lanes = append(lanes, r)
			go func() { parked <- r.Park(t.Context()) }()
		}
		synctest.Wait()
		time.Sleep(time.Second)
		a.Place(serving(2))
		released := ac.Turn()
		for range lanes {
			if c := <-parked; c != CauseNone {
				t.Fatal(c)
			}
		}
		for i, r := range lanes {
			if isClosed(released) {
				t.Fatalf("released with %d unanswered", len(lanes)-i)
			}
			e.Decide(r)
			if i == 0 {
				r.Streaming(func(Haste) {}) // an answer without an end is an answer
				continue
			}
			end(e, r, Served)
		}
		if !isClosed(released) {
			t.Fatal("all are answered and nobody is told")
		}
		y := ac.Close()
		addsUp(t, y)
		if y.AfterParking != 2 || y.Open != 1 || y.Parked.Max != time.Second || y.Parked.P50 != time.Second || y.BySuccessor != 0 {
			t.Errorf("%+v", y)
		}
		end(e, lanes[0], Served)
		if empty := a.OpenAccount(3); !isClosed(empty.Turn()) {
			t.Error("nobody parked and the turn waits")
		}
	})
}

// upgrade opens an upgraded connection.
func upgrade(e *Edge) *Request {
	r := open(e)
	r.Upgrade = true
	e.Decide(r)
	r.Upgraded()
	r.Streaming(func(Haste) {})
	return r
}

func TestUpgradedConnectionsAreInTheBooksOfEveryWindowTheyLiveIn(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	a.Place(serving(1))
	part := func(r *Request, how Parting) { e.Finish(r, Result{Ending: Served, Parting: how}) }
	old, cut, stays := upgrade(e), upgrade(e), upgrade(e)
	part(upgrade(e), PartedByApp) // nobody keeps books
	first := a.OpenAccount(2)
	young := upgrade(e)
	part(old, PartedByUsher)
	part(young, PartedByClient)
	part(upgrade(e), PartedByApp)
	a.Cut(1)
	part(cut, PartedByClient)
	y := first.Close()
	addsUp(t, y)
	if want := (Upgrades{Before: 3, Opened: 2, Client: 1, App: 1, Usher: 1, Cut: 1, Open: 1}); y.Upgrades != want {
		t.Errorf("first window: %+v, want %+v", y.Upgrades, want)
	}
	if y.Accepted != 2 {
		t.Errorf("%d accepted, want those that were upgraded in the window", y.Accepted)
	}
	second := a.OpenAccount(3)
	part(stays, PartedByClient)
	y = second.Close()
	addsUp(t, y)
	if want := (Upgrades{Before: 1, Cut: 1}); y.Upgrades != want {
		t.Errorf("second window: %+v, want %+v", y.Upgrades, want)
	}
}

// Every counter in turn is one short, or one too many, as if its increment had
// been forgotten or made twice.
func TestACounterThatWasForgottenIsFound(t *testing.T) {
	counters := func(ac *Account) map[string]*atomic.Uint64 {
		return map[string]*atomic.Uint64{
			"accepted": &ac.accepted, "request ledger": &ac.requests.word,
			"served": &ac.ended[Served], "cached": &ac.ended[Cached], "refused": &ac.ended[Refused], "failed": &ac.ended[Failed], "gone": &ac.ended[Gone],
			"incumbent": &ac.by[byIncumbent], "successor": &ac.by[bySuccessor], "after parking": &ac.by[afterParking],
			"reasons of refusal": &ac.refused[CauseMaintenance], "reasons of failure": &ac.failed[CauseAborted],
			"park times": &ac.waits.buckets[waitBucket(time.Millisecond)],
			"before":     &ac.before, "upgraded": &ac.upgraded, "upgrade ledger": &ac.upgrades.word,
			"parted": &ac.parted[PartedByUsher],
		}
	}
	for name := range counters(&Account{}) {
		for by, delta := range map[string]uint64{"forgotten": ^uint64(0), "made twice": 1} {
			e, a := one(t, Options{Cache: hits{}}, AppConfig{})
			ac := everything(e, a)
			counters(ac)[name].Add(delta)
			if y := ac.Close(); len(y.Mismatch) == 0 {
				t.Errorf("%s: an increment was %s and nobody noticed: %+v", name, by, y)
			}
		}
	}
	e, a := one(t, Options{Cache: hits{}}, AppConfig{})
	addsUp(t, everything(e, a).Close())
}

// everything fills the books with two of each kind.
func everything(e *Edge, a *App) *Account {
	a.Place(serving(1))
	upgrade(e)
	ws := upgrade(e)
	ac := a.OpenAccount(2)
	do := func(res Result) {
		r := open(e)
		if res.Ending == Cached {
			r.Target = []byte("/cached")
		}
		e.Decide(r)
		e.Finish(r, res)
	}
	for range 2 {
		do(Result{Ending: Served})
		do(Result{Ending: Cached})
		do(Result{Ending: Failed, Cause: CauseAborted})
		do(Result{Ending: Gone, Cause: CauseClientGone})
		do(Result{Ending: Refused, Cause: CauseMaintenance})
		upgrade(e)
		r := open(e)
		e.Decide(r)
		r.parking.ticket, r.parked = 1, time.Millisecond
		end(e, r, Served)
	}
	a.Place(serving(2))
	for range 2 {
		do(Result{Ending: Served})
	}
	e.Finish(ws, Result{Ending: Served, Parting: PartedByUsher})
	return ac
}

func TestParkTimesAreToldWithinAnEighth(t *testing.T) {
	for d := time.Microsecond; d < 40*time.Hour; d = d*9/8 + time.Microsecond {
		i := waitBucket(d)
		if i == waitBuckets-1 {
			continue
		}
		if bound := waitBound(i); d >= bound || bound > d*9/8+time.Microsecond {
			t.Errorf("%v counts as up to %v", d, bound)
		}
		if waitBucket(waitBound(i)) != i+1 {
			t.Errorf("bucket %d ends at %v, which belongs to %d", i, waitBound(i), waitBucket(waitBound(i)))
		}
	}
	var w waits
	for i := range 1000 {
		w.observe(time.Duration(i+1) * time.Millisecond)
	}
	r := w.read()
	if r.Count != 1000 || r.Max != time.Second || r.P50 < 500*time.Millisecond || r.P50 > 563*time.Millisecond || r.P99 < 990*time.Millisecond || r.P99 > time.Second {
		t.Errorf("%+v", r)
	}
	if r = (&waits{}).read(); r != (Waits{}) {
		t.Errorf("nobody waited: %+v", r)
	}
}

// storm is requests of every kind from many lanes while windows open and close.
type storm struct {
	t    *testing.T
	e    *Edge
	a    *App
	over atomic.Bool
	gen  uint64
	wg   sync.WaitGroup

	mu  sync.Mutex // guards what the lanes know by themselves
	own map[*Account]*[endingCount]uint64
}

// note is the lane's own word about one request.
func (s *storm) note(ac *Account, e Ending) {
	if ac == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own[ac] == nil {
		s.own[ac] = &[endingCount]uint64{}
	}
	s.own[ac][e]++
}

func (s *storm) finish(r *Request, res Result) {
	ac := r.account
	if s.e.Finish(r, res) {
		res.Ending = Failed
	}
	s.note(ac, res.Ending)
}

func (s *storm) lane(seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	r := s.e.Open(&peer{})
	defer r.Close()
	for !s.over.Load() {
		begin(r)
		r.Upgrade = rnd.IntN(20) == 0
		if rnd.IntN(5) == 0 {
			r.Target = []byte("/cached")
		}
		s.answer(r, rnd)
		if r.gone.Load() { // its client has left: the next one has a lane of its own
			r.Close()
			r = s.e.Open(&peer{})
		}
	}
}

// answer does what an engine would.
func (s *storm) answer(r *Request, rnd *rand.Rand) {
	for {
		d := s.e.Decide(r)
		switch d.Kind {
		case Hit:
			s.finish(r, Result{Ending: Cached, Status: 200})
			return
		case Reply:
			s.finish(r, Result{Ending: d.Cause.Ending(), Cause: d.Cause, Status: 503})
			return
		case Park:
			leaves := make(chan struct{})
			if rnd.IntN(4) == 0 {
				s.wg.Go(func() { defer close(leaves); r.Abandon() })
			} else {
				close(leaves)
			}
			c := r.Park(s.t.Context())
			<-leaves
			if c != CauseNone {
				s.finish(r, Result{Ending: c.Ending(), Cause: c})
				return
			}
		case Proxy, Detach:
			if rnd.IntN(10) == 0 && r.Retries() == 0 && r.Retry() {
				continue
			}
			s.inside(r, d.Kind, rnd)
			return
		}
	}
}

func (s *storm) inside(r *Request, k Kind, rnd *rand.Rand) {
	if k == Detach {
		r.Upgraded()
		asked := make(chan struct{})
		once := sync.OnceFunc(func() { close(asked) })
		r.Streaming(func(Haste) { once() })
		if rnd.IntN(2) == 0 {
			for range 1000 {
				if isClosed(asked) || s.over.Load() {
					break
				}
				<-time.After(time.Microsecond)
			}
		}
	}
	cause := []Cause{CauseNone, CauseNone, CauseNone, CauseAborted, CauseClientGone, CauseConnectRefused}[rnd.IntN(6)]
	s.finish(r, Result{Ending: cause.Ending(), Cause: cause, Parting: Parting(rnd.IntN(3))})
}

// window is one attempt: overlap, hold, or a hold that fails.
func (s *storm) window(rnd *rand.Rand) *Account {
	old := s.gen
	s.gen++
	ac := s.a.OpenAccount(s.gen)
	pause := func() { <-time.After(time.Duration(rnd.IntN(300)) * time.Microsecond) }
	pause()
	switch rnd.IntN(3) {
	case 0:
		s.a.Place(Placement{State: Holding, CacheGen: s.gen})
		s.a.CloseStreams(old, 0)
		pause()
		s.a.Place(Placement{State: Down})
		pause()
	case 1:
		s.a.Place(Placement{State: Holding, CacheGen: s.gen})
		s.a.CloseStreams(old, 0)
		pause()
	}
	p := serving(s.gen)
	p.CacheGen = s.gen
	s.a.Place(p)
	pause()
	if rnd.IntN(2) == 0 {
		s.a.CloseStreams(old, 0)
		s.a.Cut(old)
	}
	return ac
}

func TestBooksAddUpWhateverHappens(t *testing.T) {
	windows, lanes := 300, 24
	if testing.Short() {
		windows = 50
	}
	e, a := one(t, Options{Cache: hits{}}, AppConfig{CacheEnabled: true, MaxInFlight: lanes - 4, ParkLimit: lanes - 4})
	a.Place(serving(1))
	s := &storm{t: t, e: e, a: a, gen: 1, own: map[*Account]*[endingCount]uint64{}}
	for i := range lanes {
		s.wg.Go(func() { s.lane(uint64(i)) })
	}
	rnd := rand.New(rand.NewPCG(99, 99))
	var all Tally
	closed := map[*Account]Tally{}
	for range windows {
		ac := s.window(rnd)
		if rnd.IntN(2) == 0 {
			<-ac.Turn()
		}
		y := ac.Close()
		addsUp(t, y)
		closed[ac] = y
		all = plus(all, y)
	}
	last := s.window(rnd)
	<-time.After(5 * time.Millisecond)
	s.over.Store(true)
	s.wg.Wait()
	y := last.Close()
	addsUp(t, y)
	closed[last] = y
	s.compare(closed, last)
	t.Logf("%d windows: %+v", windows, all)
	if slices.Contains([]uint64{all.Cached, all.Refused, all.Failed, all.Gone, all.Open, all.ByIncumbent, all.BySuccessor, all.AfterParking, all.Upgrades.Before, all.Upgrades.Opened, all.Upgrades.Usher, all.Upgrades.Open}, 0) {
		t.Error("something did not happen at all: the test proves less than it says")
	}
	if st := a.Stats(); st.Open() != 0 || st.InFlight != 0 {
		t.Errorf("the app's own counters: %+v", st)
	}
}

// compare holds the books against what the lanes know: how many a window has
// accepted, and of the last one, which nobody outlived, how each ended.
func (s *storm) compare(closed map[*Account]Tally, last *Account) {
	for ac, y := range closed {
		own := s.own[ac]
		if own == nil {
			own = &[endingCount]uint64{}
		}
		var accepted uint64
		for _, n := range own {
			accepted += n
		}
		if y.Accepted != accepted {
			s.t.Errorf("the window of generation %d accepted %d, the lanes say %d", ac.successor, y.Accepted, accepted)
		}
		got := [endingCount]uint64{Served: y.Served, Cached: y.Cached, Refused: y.Refused, Failed: y.Failed, Gone: y.Gone, Own: y.Own}
		if ac == last && (got != *own || y.Open != 0) {
			s.t.Errorf("the last window: %v and %d open, the lanes say %v", got, y.Open, *own)
		}
	}
}

func plus(a, b Tally) Tally {
	a.Accepted += b.Accepted
	a.Cached += b.Cached
	a.Refused += b.Refused
	a.Failed += b.Failed
	a.Gone += b.Gone
	a.Open += b.Open
	a.ByIncumbent += b.ByIncumbent
	a.BySuccessor += b.BySuccessor
	a.AfterParking += b.AfterParking
	a.Upgrades.Before += b.Upgrades.Before
	a.Upgrades.Opened += b.Upgrades.Opened
	a.Upgrades.Usher += b.Upgrades.Usher
	a.Upgrades.Open += b.Upgrades.Open
	return a
}

func BenchmarkDecideFinishWithAnOpenAccount(b *testing.B) {
	e, a := one(b, Options{}, AppConfig{})
	a.Place(serving(1))
	a.OpenAccount(2)
	r := open(e)
	end(e, r, Served)
	b.ReportAllocs()
	for b.Loop() {
		begin2(r)
		e.Decide(r)
		e.Finish(r, Result{Ending: Served, Status: 200})
	}
}
