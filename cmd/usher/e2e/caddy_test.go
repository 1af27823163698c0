package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// caddy is a running Caddy with the example file in front of a usher.
type caddy struct {
	t       *testing.T
	dir     string
	address string // of https
	roots   *x509.CertPool
}

// startCaddy starts Caddy as Caddyfile.example says, with a CA of its own.
func startCaddy(t *testing.T, front, ask string) *caddy {
	t.Helper()
	program, err := exec.LookPath("caddy")
	if err != nil {
		t.Skip("caddy is not installed: apt-get install caddy")
	}
	c := &caddy{t: t, dir: scratch(t), address: freeAddress(t)}
	_, https, _ := net.SplitHostPort(c.address)
	_, plain, _ := net.SplitHostPort(freeAddress(t))
	cmd := exec.Command(program, "run", "--adapter", "caddyfile", "--config", filepath.Join(theLab.root, "Caddyfile.example"))
	cmd.Env = append(os.Environ(),
		"XDG_DATA_HOME="+c.dir, "XDG_CONFIG_HOME="+c.dir, "HOME="+c.dir,
		"CADDY_GLOBAL=local_certs\nskip_install_trust\nadmin off",
		"CADDY_HTTP_PORT="+plain, "CADDY_HTTPS_PORT="+https, "USHER_ASK=http://"+ask+"/ask", "USHER_SOCKET="+front)
	log, err := os.Create(filepath.Join(c.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the end of the test
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Caddy's log:\n%s", readFile(t, log.Name()))
		}
	})
	err = poll(20*time.Second, func() error {
		root, err := os.ReadFile(filepath.Join(c.dir, "caddy", "pki", "authorities", "local", "root.crt"))
		if err != nil {
			return err
		}
		c.roots = x509.NewCertPool()
		c.roots.AppendCertsFromPEM(root)
		conn, err := net.Dial("tcp", c.address)
		if err == nil {
			conn.Close()
		}
		return err
	})
	if err != nil {
		t.Fatalf("Caddy does not come up: %v", err)
	}
	return c
}

// client trusts Caddy's CA; every name leads to Caddy.
func (c *caddy) client(h2 bool) *http.Client {
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: c.roots},
		ForceAttemptHTTP2: h2,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", c.address)
		},
	}}
}

func (c *caddy) get(client *http.Client, host, path string, fields ...string) answer {
	c.t.Helper()
	req, err := http.NewRequest(http.MethodGet, "https://"+host+path, nil)
	if err != nil {
		return answer{err: err}
	}
	for i := 0; i < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	return do(client, req)
}

// behindCaddy is a usher that Caddy can reach.
func behindCaddy(t *testing.T) (u *usher, front, ask string) {
	t.Helper()
	ask = freeAddress(t)
	u = prepare(t, options{server: []string{fmt.Sprintf("ask_listen = %q", ask)}, apps: []app{
		{name: "hello"},
		{name: "wild", lines: []string{`hosts = ["*.wild.localhost"]`}},
		{name: "tame", lines: []string{`hosts = ["*.tame.localhost"]`, "tls_ask = true"}},
		{name: "rest", lines: []string{`hosts = ["*"]`}},
	}})
	front = filepath.Join(u.dir, "front.sock")
	u.listenAlso("unix:" + front)
	u.serve()
	u.base = u.vitals()
	return u, front, ask
}

func TestAskAnswersFromMemoryAndWakesNothing(t *testing.T) {
	t.Parallel()
	u, _, ask := behindCaddy(t)
	for host, want := range map[string]int{
		"hello.localhost": 200, "HELLO.localhost": 200, "a.tame.localhost": 200,
		"a.wild.localhost": 404, "tame.localhost": 404, "other.example": 404, "": 400,
	} {
		resp, err := http.Get("http://" + ask + "/ask?domain=" + host)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if good := resp.StatusCode == 200; good != (want == 200) {
			t.Errorf("ask about %q: status %d, want %d", host, resp.StatusCode, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if left := u.processes(); len(left) > 0 {
		t.Errorf("asking started %v", left)
	}
}

func TestCaddyInFront(t *testing.T) {
	t.Parallel()
	u, front, ask := behindCaddy(t)
	c := startCaddy(t, front, ask)
	h1, h2 := c.client(false), c.client(true)
	defer h1.CloseIdleConnections()
	defer h2.CloseIdleConnections()

	for _, host := range []string{"a.wild.localhost", "other.example"} {
		if a := c.get(h2, host, "/"); a.err == nil {
			t.Errorf("%s has a certificate: %s", host, a)
		}
	}
	if left := u.processes(); len(left) > 0 {
		t.Errorf("refused names started %v", left)
	}

	ok(t, c.get(h2, "hello.localhost", "/")) // wakes it
	ok(t, c.get(h2, "a.tame.localhost", "/"))
	wantForwarded(t, ok(t, c.get(h1, "hello.localhost", "/headers",
		"X-Forwarded-For", "6.6.6.6", "X-Forwarded-Proto", "gopher", "X-Forwarded-Host", "evil.example",
		"Forwarded", "for=6.6.6.6", "X-Real-Ip", "6.6.6.6", "X-Request-Start", "t=1", "X-Request-Id", "mine",
		"X-Forwarded-Port", "1", "X-Forwarded-Prefix", "/evil", "X-Forwarded-Scheme", "gopher", "X-Forwarded-Ssl", "off", "X-Forwarded-Server", "evil")).body)

	c.webSocket(h1, "hello.localhost")
	c.events(h2, "hello.localhost")

	stop, done := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { done <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			if a := c.get(h2, "hello.localhost", "/version"); a.err != nil || a.status != 200 {
				t.Errorf("during the swap: %s", a)
				return
			}
			n++
		}
	}()
	u.deploy("hello", hello(t, "v2"), "--wait", "drained")
	close(stop)
	if n := <-done; n < 3 {
		t.Errorf("only %d requests during the swap", n)
	}
	if body := ok(t, c.get(h2, "hello.localhost", "/version")).body; body != "v2\n" {
		t.Errorf("after the swap: %q", body)
	}
	u.idle("hello")
}

// wantForwarded expects what the app is told of the client to be Caddy's word.
func wantForwarded(t *testing.T, body string) {
	t.Helper()
	var page struct {
		Headers [][2]string `json:"headers"`
	}
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, h := range page.Headers {
		name := strings.ToLower(h[0])
		got[name] = append(got[name], h[1])
	}
	want := map[string]string{
		"x-forwarded-for": "127.0.0.1", "x-forwarded-proto": "https", "x-forwarded-host": "hello.localhost", "host": "hello.localhost",
	}
	for name, value := range want {
		if !slices.Equal(got[name], []string{value}) {
			t.Errorf("the app was told %s: %q, want %q", name, got[name], value)
		}
	}
	for name, lie := range map[string]string{"x-request-id": "mine", "x-request-start": "t=1"} {
		if len(got[name]) != 1 || got[name][0] == lie {
			t.Errorf("the app was told %s: %q", name, got[name])
		}
	}
	for name, values := range got {
		_, told := want[name]
		if (strings.HasPrefix(name, "x-forwarded-") || name == "forwarded" || name == "x-real-ip") && !told {
			t.Errorf("the client's %s went through: %q", name, values)
		}
	}
}

func (c *caddy) webSocket(client *http.Client, host string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "https://"+host+"/ws", &websocket.DialOptions{HTTPClient: &http.Client{Transport: client.Transport}})
	if err != nil {
		c.t.Errorf("WebSocket: %v", err)
		return
	}
	defer ws.CloseNow()
	for _, message := range []string{"one", strings.Repeat("two", 10_000)} {
		if err := echo(ws, message); err != nil {
			c.t.Errorf("WebSocket: %v", err)
		}
	}
}

// events expects two events of a stream, each as soon as it is sent.
func (c *caddy) events(client *http.Client, host string) {
	c.t.Helper()
	begun := time.Now()
	resp, err := client.Get("https://" + host + "/sse?every=300ms&n=3")
	if err != nil {
		c.t.Errorf("event stream: %v", err)
		return
	}
	defer resp.Body.Close()
	var at []time.Duration
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		if strings.HasPrefix(s.Text(), "data: event") {
			at = append(at, time.Since(begun))
		}
	}
	if len(at) != 3 || at[2]-at[0] < 400*time.Millisecond {
		c.t.Errorf("three events, 300 ms apart, came after %v", at)
	}
	if resp.ProtoMajor != 2 {
		c.t.Errorf("it came by %s, want HTTP/2", resp.Proto)
	}
}
