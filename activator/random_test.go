package activator

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// act is one thing that happens in a random life.
type act struct {
	name string
	do   func(p *player)
}

// randomActs use few builds: what no app needs is removed but for the last five.
func randomActs() []act {
	async := func(script string, more ...func(*DeployRequest)) func(p *player) {
		return func(p *player) {
			req := DeployRequest{Change: Change{App: "hello"}, Digest: p.r.build(script)}
			for _, f := range more {
				f(&req)
			}
			_, err := p.r.act.Deploy(p.ctx, req)
			p.change(Operation{Kind: KindDeploy}, err)
		}
	}
	asHold := func(d *DeployRequest) { d.Mode = "hold" }
	canary := func(d *DeployRequest) { d.Canary = true }
	restart := func(retry bool) func(p *player) {
		return func(p *player) {
			_, err := p.r.act.Restart(p.ctx, Change{App: "hello"}, retry)
			p.change(Operation{Kind: KindRestart}, err)
		}
	}
	return []act{
		{"request", func(p *player) { go p.mayFail(0) }},
		{"long request", func(p *player) { go p.mayFail(7 * time.Second) }},
		{"deploy", async("v2 boot=1s last=2s")},
		{"deploy another", async("v4 last=1s")},
		{"deploy a sick one", async("v2 sick")},
		{"deploy one that ends", async("v2 exit=500ms boot=2s")},
		{"deploy in hold", async("v4 last=1s", asHold)},
		{"deploy a canary", async("v2 boot=1s last=2s", canary)},
		{"restart", restart(false)},
		{"retry", restart(true)},
		{"pause", func(p *player) {
			p.change(Operation{Kind: KindPause}, second(p.r.act.Pause(p.ctx, Change{App: "hello"}, false)))
		}},
		{"resume", func(p *player) {
			p.change(Operation{Kind: KindResume}, second(p.r.act.Resume(p.ctx, Change{App: "hello"})))
		}},
		{"sleep", func(p *player) {
			p.change(Operation{Kind: KindSleep}, second(p.r.act.Sleep(p.ctx, Change{App: "hello"})))
		}},
		{"a moment", func(*player) { settle(300 * time.Millisecond) }},
		{"seconds", func(*player) { settle(4 * time.Second) }},
		{"minutes", func(*player) { settle(2 * time.Minute) }},
		{"the app dies", func(p *player) { p.kill() }},
		{"usher dies", func(p *player) { p.r.revive(0); p.l = p.r.l }},
		{"usher dies at its next start", func(p *player) { p.r.revive(5); p.r.revive(0); p.l = p.r.l }},
		{"the disk fills", func(p *player) { p.r.badDisk.Store(true) }},
		{"the disk has room", func(p *player) { p.r.badDisk.Store(false) }},
	}
}

func second[T any](_ T, err error) error { return err }

// mayFail is a request of a client who takes what comes.
func (p *player) mayFail(takes time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, _ = p.r.edge.get(ctx, "hello", takes)
}

// The runner with a scripted process, through random lives: what people are told
// is what the core decided, every decision fits the world that it was made in,
// and in the end the app can be moved on and put to sleep (see replay_test.go and
// the checks of world_test.go).
func TestARandomLifeEndsWell(t *testing.T) {
	shops := map[bool]*shop{false: newShop(t), true: newShop(t)}
	acts := randomActs()
	lives, steps := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		held := rapid.Bool().Draw(rt, "hold")
		names := make([]string, 0, 30)
		script := rapid.SliceOfN(rapid.IntRange(0, len(acts)-1), 1, 30).Draw(rt, "script")
		for _, i := range script {
			names = append(names, acts[i].name)
		}
		lives++
		steps += len(script)
		failed := true
		synctest.Test(t, func(t *testing.T) {
			r := shops[held].rig(t)
			defer func() { failed = t.Failed() }()
			defer r.close()
			r.live(held, script, acts)
			if t.Failed() {
				t.Logf("hold %v: %q\n%s", held, names, r.history())
			}
		})
		if failed {
			rt.Fatalf("hold %v: %q", held, names)
		}
	})
	t.Logf("%d lives, %d acts", lives, steps)
}

// live plays a random life and its end.
func (r *rig) live(held bool, script []int, acts []act) {
	fail := func(op string) error {
		if r.badDisk.Load() && op != "get" && op != "apps" {
			return fmt.Errorf("%s: %w", op, errDisk)
		}
		return nil
	}
	r.crash()
	r.w.mem.Fail, r.w.runs.Fail = fail, fail
	r.start(0)
	a := r.app(storyFirst, func(a *App) { a.Policy.IdleTimeout = time.Minute })
	if held {
		hold(&a)
	}
	r.apply(a)
	p := &player{r: r, l: r.l, ctx: context.Background()}
	for _, i := range script {
		acts[i].do(p)
		synctest.Wait()
		r.checkSeen()
	}
	r.badDisk.Store(false)
	r.apply(r.apps...)
	settle(2 * time.Minute)
	if r.status().State == "paused" {
		r.must(r.act.Resume(context.Background(), Change{App: "hello"}))
		settle(time.Minute)
	}
	r.liftIfDown()
	r.checkSlot()
	r.checkMovesOn()
}
