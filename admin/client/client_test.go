package client_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/admin/admintest"
	"github.com/usher-edge/usher/admin/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dial(t *testing.T, addr admin.Address) *client.Client {
	c := client.New(addr, client.Options{Retry: 5 * time.Millisecond, Token: "secret"})
	t.Cleanup(c.Close)
	return c
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

var errAny = errors.New("any")

func hello() admin.AppStatus {
	return admin.AppStatus{Name: "hello", State: admin.Awake, Hosts: []string{"h"}, Generations: []admin.GenerationStatus{}, Version: "v7"}
}

// Every call goes to the daemon as it was meant, over a unix socket and over
// TCP with a token.
func TestCallsArriveAsTheyWereMeant(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			ctl := admintest.New(hello())
			ctl.Reloaded = admin.ReloadResult{Added: []string{"a"}, Changed: []string{}, Removed: []string{}, Unchanged: []string{}}
			start := admintest.Start
			if network == "tcp" {
				start = admintest.StartTCP
			}
			addr, _ := start(t, ctl, admin.Options{Token: "secret", Version: admin.VersionInfo{Version: "9"}})
			checkCalls(t, ctl, dial(t, addr))
		})
	}
}

func checkCalls(t *testing.T, ctl *admintest.Control, c *client.Client) {
	ctx := deadline(t)
	ch := admin.Change{App: "hello", IfMatch: "v7", RequestID: "r1"}
	next := func(id string) admin.Change { ch.RequestID = id; return ch }
	want := []any{
		admin.DeployRequest{Change: next("1"), Digest: "sha256:aa", Mode: "hold", Canary: true},
		admin.RollbackRequest{Change: next("2"), To: 4},
		admin.RestartRequest{Change: next("3"), Retry: true},
		admin.PauseRequest{Change: next("4"), Maintenance: true},
		next("5"), next("6"), next("7"), next("8"),
	}
	_, err1 := c.Deploy(ctx, want[0].(admin.DeployRequest))
	_, err2 := c.Rollback(ctx, want[1].(admin.RollbackRequest))
	_, err3 := c.Restart(ctx, want[2].(admin.RestartRequest))
	_, err4 := c.Pause(ctx, want[3].(admin.PauseRequest))
	_, err5 := c.Wake(ctx, want[4].(admin.Change))
	_, err6 := c.Sleep(ctx, want[5].(admin.Change))
	_, err7 := c.Resume(ctx, want[6].(admin.Change))
	op, err8 := c.Remove(ctx, want[7].(admin.Change))
	err9 := c.Purge(ctx, "hello")
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7, err8, err9); err != nil {
		t.Fatal(err)
	}
	if got := ctl.Requests(); !reflect.DeepEqual(got, append(want, "purge hello")) {
		t.Errorf("control got\n%+v, want\n%+v", got, want)
	}
	reload, err1 := c.Reload(ctx)
	apps, err2 := c.Apps(ctx)
	app, err3 := c.App(ctx, "hello")
	same, err4 := c.Operation(ctx, op.ID)
	ops, err5 := c.Operations(ctx, "hello")
	checkReceipts(t, ctl, c)
	server, err6 := c.Server(ctx)
	version, err7 := c.Version(ctx)
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(reload, ctl.Reloaded) || !reflect.DeepEqual(apps, []admin.AppStatus{hello()}) || !reflect.DeepEqual(app, hello()) {
		t.Errorf("reload %+v, apps %+v, app %+v", reload, apps, app)
	}
	if same.Kind != "remove" || len(ops) != 8 || ops[0].ID != op.ID || server.PID != 42 || version.Version != "9" {
		t.Errorf("operation %+v of %d, server %+v, version %+v", same, len(ops), server, version)
	}
}

func checkReceipts(t *testing.T, ctl *admintest.Control, c *client.Client) {
	ctx := deadline(t)
	none, err := c.Receipts(ctx, "hello", 0, 0)
	if err != nil || len(none) != 0 {
		t.Errorf("receipts of nothing: %+v, %v", none, err)
	}
	want := []admin.Receipt{}
	for n := range uint64(4) {
		rc := admin.Receipt{
			App: "hello", Attempt: 10 + n, Revision: 1 + n/2, State: admin.ReceiptClosed, Steps: []admin.ReceiptStep{{Name: "spawn", TookMS: 0.25}},
			Counts: &admin.ReceiptCounts{Accepted: 3, Refused: 3, RefusedBy: map[string]uint64{"draining": 3}, Upgraded: admin.UpgradeCounts{Before: 1, Cut: 1}},
		}
		ctl.SetReceipt(rc)
		want = slices.Insert(want, 0, rc)
	}
	all, err1 := c.Receipts(ctx, "hello", 0, 0)
	some, err2 := c.Receipts(ctx, "hello", 1, 0)
	second, err3 := c.Receipts(ctx, "hello", 1, 1)
	one, err4 := c.Receipt(ctx, "hello", 12)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(all, want) || !reflect.DeepEqual(some, want[:1]) || !reflect.DeepEqual(second, want[2:3]) || !reflect.DeepEqual(one, want[1]) {
		t.Errorf("all %+v\nsome %+v\nof revision 1 %+v\nof attempt 12 %+v", all, some, second, one)
	}
}

func TestARefusalComesBackWhole(t *testing.T) {
	ctl := admintest.New(hello())
	want := admin.Error{
		Kind: admin.Conflict, Code: admin.CodeOperationRunning, Detail: "d", Hint: "h", Operation: "op-7",
		Findings: []admin.Finding{{File: "f", Line: 1, Column: 2, Message: "m"}},
	}
	ctl.Refuse = func(string) error { e := want; e.Cause = errAny; return &e }
	addr, _ := admintest.Start(t, ctl, admin.Options{})
	_, err := dial(t, addr).Wake(deadline(t), admin.Change{App: "hello"})
	var got *admin.Error
	if !errors.As(err, &got) || !reflect.DeepEqual(*got, want) {
		t.Errorf("got %+v, want %+v", err, want)
	}
}

func TestNamesCannotChangeThePath(t *testing.T) {
	addr, _ := admintest.Start(t, admintest.New(hello()), admin.Options{})
	c := dial(t, addr)
	for _, name := range []string{"../version", "hello/events", "a b?c#d", "%2e%2e"} {
		_, err := c.App(deadline(t), name)
		var e *admin.Error
		if !errors.As(err, &e) || e.Code != admin.CodeAppNotFound || !strings.Contains(e.Detail, name) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestAnUnreachableDaemonIsToldFromALostOne(t *testing.T) {
	addr := admin.Address{Scheme: "unix", Path: admintest.SocketPath(t)}
	c := dial(t, addr)
	_, err := c.Apps(deadline(t))
	if !errors.Is(err, client.ErrUnreachable) || errors.Is(err, client.ErrLost) || !strings.Contains(err.Error(), addr.String()) {
		t.Errorf("nobody there: %v", err)
	}
	// A daemon that dies with the request in hand.
	l, err := net.Listen("unix", addr.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() { // ends with the one connection
		conn, err := l.Accept()
		if err == nil {
			_, _ = bufio.NewReader(conn).ReadString('\n')
			_ = conn.Close()
		}
	}()
	_, err = c.Wake(deadline(t), admin.Change{App: "hello"})
	if !errors.Is(err, client.ErrUnreachable) || !errors.Is(err, client.ErrLost) {
		t.Errorf("died: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Apps(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnreachable) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestSomethingElseAtTheAddressIsNoticed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() { // ends with the one connection
		conn, err := l.Accept()
		if err == nil {
			_, _ = bufio.NewReader(conn).ReadString('\n')
			_, _ = io.WriteString(conn, "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			_ = conn.Close()
		}
	}()
	_, err = dial(t, admin.Address{Scheme: "http", Host: l.Addr().String()}).Apps(deadline(t))
	if err == nil || !strings.Contains(err.Error(), "check the admin address") {
		t.Errorf("apps: %v", err)
	}
}

func TestAWrongTokenIsARefusal(t *testing.T) {
	addr, _ := admintest.StartTCP(t, admintest.New(), admin.Options{Token: "other"})
	_, err := dial(t, addr).Apps(deadline(t))
	var e *admin.Error
	if !errors.As(err, &e) || e.Kind != admin.Unauthorized {
		t.Errorf("apps: %v", err)
	}
}

func TestAnUploadReportsTheErrorOfItsSource(t *testing.T) {
	ctl := admintest.New(hello())
	addr, _ := admintest.Start(t, ctl, admin.Options{})
	c := dial(t, addr)
	source := io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), &brokenReader{})
	_, err := c.Upload(deadline(t), admin.UploadRequest{App: "hello", Kind: admin.KindDir, Body: source})
	if !errors.Is(err, errAny) || errors.Is(err, client.ErrUnreachable) {
		t.Errorf("upload: %v", err)
	}
	if got := ctl.Requests(); len(got) != 0 {
		t.Errorf("staged: %v", got)
	}
	b, err := c.Upload(deadline(t), admin.UploadRequest{App: "hello", Kind: admin.KindFile, Body: strings.NewReader("abc")})
	if err != nil || b.Size != 3 || b.Kind != admin.KindFile {
		t.Errorf("upload: %+v %v", b, err)
	}
}

type brokenReader struct{}

func (*brokenReader) Read([]byte) (int, error) { return 0, errAny }

func TestARefusedUploadIsNotSent(t *testing.T) {
	ctl := admintest.New(hello())
	ctl.Refuse = func(string) error { return &admin.Error{Kind: admin.Unavailable, Detail: "no space"} }
	addr, _ := admintest.Start(t, ctl, admin.Options{})
	sent := &countingReader{left: 64 << 20}
	_, err := dial(t, addr).Upload(deadline(t), admin.UploadRequest{App: "hello", Kind: admin.KindFile, Body: sent})
	var e *admin.Error
	if !errors.As(err, &e) || e.Detail != "no space" {
		t.Errorf("upload: %v", err)
	}
	if n := 64<<20 - sent.left; n > 0 {
		t.Errorf("%d bytes were sent", n)
	}
}

type countingReader struct{ left int }

func (c *countingReader) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), c.left)
	c.left -= n
	return n, nil
}

// steps collects what a watcher is told.
type steps struct {
	mu          sync.Mutex // guards the fields below
	names       []string
	lost, found int
	more        chan struct{} // gets one for every call
}

func newSteps() *steps { return &steps{more: make(chan struct{}, 100)} }

func (s *steps) note(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	s.more <- struct{}{}
}

func (s *steps) watcher() client.Watcher {
	return client.Watcher{
		Step:  func(st admin.Step) { s.note(func() { s.names = append(s.names, st.Name) }) },
		Lost:  func(error) { s.note(func() { s.lost++ }) },
		Found: func() { s.note(func() { s.found++ }) },
	}
}

func TestFollowReturnsAtTheSwitchOrAfterTheDrain(t *testing.T) {
	for _, settled := range []bool{false, true} {
		ctl := admintest.New(hello())
		addr, _ := admintest.Start(t, ctl, admin.Options{})
		c := dial(t, addr)
		op, err := c.Wake(deadline(t), admin.Change{App: "hello"})
		if err != nil {
			t.Fatal(err)
		}
		ctl.Step(op.ID, admin.StepSwitched, "")
		ctl.Finish(op.ID, admin.OpDone, func(op *admin.Operation) { op.Draining = true })
		seen := newSteps()
		done := make(chan admin.Operation, 1)
		go func() { // ends with Follow
			op, err := c.Follow(deadline(t), op.ID, settled, seen.watcher())
			if err != nil {
				t.Error(err)
			}
			done <- op
		}()
		<-seen.more
		if settled {
			ctl.Step(op.ID, admin.StepRetired, "")
			<-seen.more
			select {
			case <-done:
				t.Error("returned while draining")
			default:
			}
			ctl.Finish(op.ID, admin.OpDone, func(op *admin.Operation) { op.Draining = false })
		}
		if op := <-done; op.State != admin.OpDone || op.Draining == settled {
			t.Errorf("settled %v: %+v", settled, op)
		}
	}
}

func TestFollowGoesOnWhenTheDaemonComesBack(t *testing.T) {
	ctl := admintest.New(hello())
	addr, stop := admintest.Start(t, ctl, admin.Options{})
	c := dial(t, addr)
	op, err := c.Wake(deadline(t), admin.Change{App: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	ctl.Step(op.ID, admin.StepStaged, "")
	ctl.Step(op.ID, admin.StepCommitted, "")
	seen := newSteps()
	done := make(chan error, 1)
	go func() { // ends with Follow
		_, err := c.Follow(deadline(t), op.ID, true, seen.watcher())
		done <- err
	}()
	<-seen.more
	<-seen.more
	stop()
	<-seen.more // lost
	ctl.Step(op.ID, admin.StepStarting, "")
	ctl.Finish(op.ID, admin.OpDone, nil)
	admintest.StartAt(t, ctl, admin.Options{}, addr.Path)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if want := []string{admin.StepStaged, admin.StepCommitted, admin.StepStarting}; !slices.Equal(seen.names, want) {
		t.Errorf("steps %v, want %v", seen.names, want)
	}
	if seen.lost != 1 || seen.found != 1 {
		t.Errorf("lost %d times, found %d times", seen.lost, seen.found)
	}
}

func TestFollowTellsNoStepTwiceAfterARecount(t *testing.T) {
	ctl := admintest.New(hello())
	addr, stop := admintest.Start(t, ctl, admin.Options{})
	c := dial(t, addr)
	op, err := c.Wake(deadline(t), admin.Change{App: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	ctl.Step(op.ID, admin.StepStaged, "")
	ctl.Step(op.ID, admin.StepCommitted, "")
	kept, _ := ctl.Operation(context.Background(), op.ID)
	seen := newSteps()
	done := make(chan error, 1)
	go func() { // ends with Follow
		_, err := c.Follow(deadline(t), op.ID, true, seen.watcher())
		done <- err
	}()
	<-seen.more
	<-seen.more
	stop()
	// Back with fewer steps than the reader has counted.
	ctl.Finish(op.ID, admin.OpFailed, func(o *admin.Operation) { o.Steps = kept.Steps[1:] })
	admintest.StartAt(t, ctl, admin.Options{}, addr.Path)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if want := []string{admin.StepStaged, admin.StepCommitted}; !slices.Equal(seen.names, want) {
		t.Errorf("steps %v, want %v", seen.names, want)
	}
}

func TestFollowEndsWithItsContextAndWithAForgottenOperation(t *testing.T) {
	ctl := admintest.New(hello())
	addr, stop := admintest.Start(t, ctl, admin.Options{})
	c := dial(t, addr)
	op, err := c.Wake(deadline(t), admin.Change{App: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Follow(ctx, op.ID, true, client.Watcher{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("running: %v", err)
	}
	ctl.Forget(op.ID)
	var e *admin.Error
	if _, err := c.Follow(deadline(t), op.ID, true, client.Watcher{}); !errors.As(err, &e) || e.Kind != admin.NotFound {
		t.Errorf("forgotten: %v", err)
	}
	stop()
	ctx, cancel = context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Follow(ctx, op.ID, true, client.Watcher{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("gone: %v", err)
	}
}

func TestEventsResumeWhereTheyBroke(t *testing.T) {
	ctl := admintest.New(hello())
	addr, stop := admintest.Start(t, ctl, admin.Options{})
	c := dial(t, addr)
	ctl.Emit(admin.Event{App: "hello", Type: "state", Message: "one"})
	got, lost := make(chan string), make(chan error, 10)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(deadline(t))
	go func() { // ends with ctx
		done <- c.Events(ctx, admin.EventFilter{App: "hello"}, func(err error) { lost <- err },
			func(e admin.Event) error { got <- e.Message; return nil })
	}()
	if m := <-got; m != "one" {
		t.Errorf("got %q", m)
	}
	stop()
	if err := <-lost; !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("lost: %v", err)
	}
	ctl.Emit(admin.Event{App: "hello", Type: "state", Message: "two"})
	admintest.StartAt(t, ctl, admin.Options{}, addr.Path)
	if m := <-got; m != "two" {
		t.Errorf("got %q", m)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("events: %v", err)
	}
	list, err := c.Recorded(deadline(t), admin.EventFilter{App: "hello", SinceSeq: 1})
	if err != nil || len(list) != 1 || list[0].Message != "two" {
		t.Errorf("recorded: %+v %v", list, err)
	}
}

// Between the past and what follows it the daemon may go away.
func TestEventsAfterAKnownOneWaitForTheDaemon(t *testing.T) {
	ctl := admintest.New(hello())
	addr, stop := admintest.Start(t, ctl, admin.Options{})
	c := dial(t, addr)
	ctl.Emit(admin.Event{App: "hello", Type: "state", Message: "one"})
	stop()
	lost := make(chan error, 10)
	got := make(chan string, 1)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(deadline(t))
	go func() { // ends with ctx
		done <- c.Events(ctx, admin.EventFilter{App: "hello", SinceSeq: 1}, func(err error) { lost <- err },
			func(e admin.Event) error { got <- e.Message; return nil })
	}()
	select {
	case err := <-lost:
		if !errors.Is(err, client.ErrUnreachable) {
			t.Errorf("lost: %v", err)
		}
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	}
	ctl.Emit(admin.Event{App: "hello", Type: "state", Message: "two"})
	admintest.StartAt(t, ctl, admin.Options{}, addr.Path)
	if m := <-got; m != "two" {
		t.Errorf("got %q", m)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("events: %v", err)
	}
}

func TestEventsOfNoDaemonAreAnErrorAtOnce(t *testing.T) {
	c := dial(t, admin.Address{Scheme: "unix", Path: admintest.SocketPath(t)})
	err := c.Events(deadline(t), admin.EventFilter{}, nil, nil)
	if !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("events: %v", err)
	}
}

func TestLogsAreReadAndABreakIsNotTheirEnd(t *testing.T) {
	ctl := admintest.New(hello())
	ctl.OpenLog = func(_ context.Context, req admin.LogRequest) (io.ReadCloser, error) {
		if req != (admin.LogRequest{App: "hello", Generation: 3, Lines: 2}) {
			t.Errorf("asked for %+v", req)
		}
		return io.NopCloser(strings.NewReader("a\nb\n")), nil
	}
	addr, _ := admintest.Start(t, ctl, admin.Options{})
	r, err := dial(t, addr).Logs(deadline(t), admin.LogRequest{App: "hello", Generation: 3, Lines: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if text, err := io.ReadAll(r); err != nil || string(text) != "a\nb\n" {
		t.Errorf("read %q, %v", text, err)
	}

	l, err := net.Listen("unix", admintest.SocketPath(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() { // ends with the one connection
		conn, err := l.Accept()
		if err == nil {
			_, _ = bufio.NewReader(conn).ReadString('\n')
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na\n\r\n")
			_ = conn.Close()
		}
	}()
	r, err = dial(t, admin.Address{Scheme: "unix", Path: l.Addr().String()}).Logs(deadline(t), admin.LogRequest{App: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if text, err := io.ReadAll(r); string(text) != "a\n" || !errors.Is(err, client.ErrLost) {
		t.Errorf("read %q, %v", text, err)
	}
}
