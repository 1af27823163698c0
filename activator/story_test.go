package activator

import (
	"context"
	"errors"
	"testing/synctest"
	"time"

	"github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/store"
)

// story is something that happens to an app. It is told from the first start of
// usher on, and cut short by a crash, or by a disk that is full, at every point.
type story struct {
	name  string
	app   func(*App) // how the app differs from one that overlaps
	acts  func(p *player)
	then  []App // what the file says at the next start; nil: the same
	gone  bool  // the app has left the file by then
	lifts bool  // its owner has to lift it afterwards
	sick  bool  // its second build cannot serve
	// serves says what answers in the end, given what is durable.
	serves func(rec store.App) string
}

const (
	storyFirst  = "v1 last=1s"
	storySecond = "v2 boot=1s last=1s"
	storyThird  = "v3"
	storySick   = "v2 sick"
	storyTarget = "127.0.0.1:9001"
	otherTarget = "127.0.0.1:9002"
)

// desired is what serves when every build is good.
func desired(rec store.App) string {
	if rec.Desired == 2 {
		return "v2"
	}
	return "v1"
}

func firstBuild(store.App) string { return "v1" }

func stories() []story {
	deploy := func(script string) func(p *player) {
		return func(p *player) {
			p.request(0)
			p.deploy(script)
			p.pass(3 * time.Minute) // until it sleeps
		}
	}
	fallback := func(a *App) { hold(a); a.Policy.Fallback = true }
	return []story{
		{name: "overlap", acts: deploy(storySecond), serves: desired},
		{name: "overlap of a sick build", acts: deploy(storySick), serves: firstBuild, sick: true},
		{name: "overlap of a canary", acts: func(p *player) {
			p.request(0)
			p.deploy(storySecond, func(d *DeployRequest) { d.Canary = true })
		}, serves: desired},
		{name: "hold", app: hold, acts: deploy(storySecond), serves: desired},
		{name: "hold of a sick build", app: hold, acts: deploy(storySick), serves: firstBuild, sick: true, lifts: true},
		{name: "hold of what is no program", app: hold, acts: deploy("v2 noexec"), serves: firstBuild, sick: true, lifts: true},
		{name: "hold with a fallback", app: fallback, acts: deploy(storySick), serves: firstBuild, sick: true},
		{name: "overlap while a request stays", acts: func(p *player) {
			p.request(0)
			p.linger(20 * time.Second)
			p.deploy(storySecond)
			p.pass(time.Minute)
		}, serves: desired},
		{name: "hold while a request stays", app: hold, acts: func(p *player) {
			p.request(0)
			p.linger(4 * time.Second)
			p.deploy(storySecond)
			p.pass(time.Minute)
		}, serves: desired},
		{name: "deploy to an app that sleeps", acts: func(p *player) {
			p.deploy(storySecond)
			p.pass(3 * time.Minute)
		}, serves: desired},
		{name: "wake, sleep and wake", acts: func(p *player) {
			p.request(0)
			p.sleep()
			p.request(0)
		}, serves: firstBuild},
		{name: "restart", acts: (*player).restartOnce, serves: firstBuild},
		{name: "restart of a hold app", app: hold, acts: (*player).restartOnce, serves: firstBuild},
		{name: "crash of the app", acts: func(p *player) {
			p.request(0)
			p.kill()
			p.request(0)
		}, serves: firstBuild},
		{name: "pause, deploy and resume", acts: func(p *player) {
			p.request(0)
			p.pause()
			p.deploy(storySecond)
			p.resume()
			p.pass(10 * time.Second)
		}, serves: desired},
		{name: "removal", gone: true, then: []App{}, acts: func(p *player) {
			p.request(0)
			p.linger(10 * time.Second)
			p.file()
			p.pass(time.Minute)
		}},
		{name: "target", app: toTarget, acts: func(p *player) {
			p.request(0)
			p.deployTo(otherTarget)
			p.pass(time.Minute)
		}, serves: func(rec store.App) string { return map[uint64]string{0: "t1", 1: "t1", 2: "t2"}[rec.Desired] }},
	}
}

func toTarget(a *App) {
	a.Target, a.FileValue, a.Artifact = storyTarget, storyTarget, ""
}

// begin makes the app of a story, and what is there before usher is.
func (s story) begin(r *rig) {
	a := r.app(storyFirst, func(a *App) { a.Policy.IdleTimeout = time.Minute })
	if s.app != nil {
		s.app(&a)
	}
	r.w.target(storyTarget, "t1")
	r.w.target(otherTarget, "t2")
	r.apps = []App{a}
}

// tell plays a story; false if usher did not live to its end.
func (s story) tell(r *rig) bool {
	p := &player{r: r, l: r.l}
	var end context.CancelFunc
	p.ctx, end = context.WithTimeout(context.Background(), time.Hour)
	defer end()
	if !p.file(r.apps...) {
		return false
	}
	s.acts(p)
	synctest.Wait()
	return !r.l.gone()
}

// player acts for owners and clients. When usher is dead it does nothing more.
type player struct {
	r   *rig
	l   *life
	ctx context.Context //nolint:containedctx // of one story
}

func (p *player) dead() bool { return p.l.gone() || p.r.act == nil }

// file applies a file with these apps.
func (p *player) file(apps ...App) bool {
	if p.dead() {
		return false
	}
	_, err := p.r.act.Apply(p.ctx, apps)
	if err != nil && !p.dead() && !errors.Is(err, errDisk) && !errors.Is(err, store.ErrFenced) {
		p.r.t.Errorf("apply: %v", err)
	}
	return err == nil
}

// request must be served, unless usher dies or is told to refuse.
func (p *player) request(takes time.Duration) {
	if p.dead() {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	excused := p.r.badDisk.Load() && p.r.w.placement("hello").State != lifecycle.SlotServing // nothing can be started
	if _, err := p.r.edge.get(ctx, "hello", takes); err != nil && !p.dead() && !errors.Is(err, errRefused) && !excused {
		p.r.t.Errorf("request: %v\n%s", err, p.r.history())
	}
}

// linger is a request that stays inside.
func (p *player) linger(takes time.Duration) {
	if p.dead() {
		return
	}
	go p.request(takes)
	synctest.Wait()
}

// pass lets time go by.
func (p *player) pass(d time.Duration) {
	for ; d > 0 && !p.dead(); d -= 10 * time.Second {
		settle(min(d, 10*time.Second))
		if !p.dead() {
			p.r.checkSlot()
		}
	}
}

// change waits for the end of an operation.
func (p *player) change(op Operation, err error) {
	for err == nil && op.State == OpRunning && !p.dead() {
		settle(250 * time.Millisecond)
		op, err = p.r.act.Operation(op.ID)
	}
	if err != nil && !p.dead() && !errors.Is(err, errDisk) && !errors.Is(err, store.ErrFenced) && !errors.Is(err, ErrConflict) {
		p.r.t.Errorf("%s: %v", op.Kind, err)
	}
}

func (p *player) deploy(script string, more ...func(*DeployRequest)) {
	if p.dead() {
		return
	}
	req := DeployRequest{Change: Change{App: "hello"}, Digest: p.r.build(script)}
	for _, f := range more {
		f(&req)
	}
	p.change(p.r.act.Deploy(p.ctx, req))
}

func (p *player) deployTo(target string) {
	if !p.dead() {
		p.change(p.r.act.Deploy(p.ctx, DeployRequest{Change: Change{App: "hello"}, Target: target}))
	}
}

func (p *player) restartOnce() {
	p.request(0)
	if !p.dead() {
		p.change(p.r.act.Restart(p.ctx, Change{App: "hello"}, false))
	}
	p.pass(10 * time.Second)
}

func (p *player) sleep() {
	if !p.dead() {
		p.change(p.r.act.Sleep(p.ctx, Change{App: "hello"}))
	}
}

func (p *player) pause() {
	if !p.dead() {
		p.change(p.r.act.Pause(p.ctx, Change{App: "hello"}, false))
	}
}

func (p *player) resume() {
	if !p.dead() {
		p.change(p.r.act.Resume(p.ctx, Change{App: "hello"}))
	}
}

// kill ends the processes of the app behind usher's back.
func (p *player) kill() {
	if p.dead() {
		return
	}
	for _, pr := range p.r.w.alive("hello") {
		pr.die(Exit{Signal: "killed"})
	}
	synctest.Wait()
}

// story is the plain deploy of a build; false if usher did not live to its end.
func (r *rig) story(digest string) bool {
	s := story{acts: func(p *player) {
		p.request(0)
		p.change(p.r.act.Deploy(p.ctx, DeployRequest{Change: Change{App: "hello"}, Digest: digest}))
		p.pass(3 * time.Minute)
	}}
	return s.tell(r)
}
