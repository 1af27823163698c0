package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// lane is one keep-alive connection. Unlike an http.Client it never opens
// another one in its place.
type lane struct {
	conn net.Conn
	in   *bufio.Reader
}

func (u *usher) lane() *lane {
	u.t.Helper()
	c := u.raw()
	return &lane{c, bufio.NewReader(c)}
}

// get asks for a page on this very connection.
func (l *lane) get(name, path string) answer { return l.send(http.MethodGet, name, path, "") }

func (l *lane) send(method, name, path, body string) answer {
	begun := time.Now()
	a := l.exchange(method, name, path, body)
	a.took = time.Since(begun)
	return a
}

func (l *lane) exchange(method, name, path, body string) (a answer) {
	if a.err = l.conn.SetDeadline(time.Now().Add(30 * time.Second)); a.err != nil {
		return a
	}
	_, a.err = fmt.Fprintf(l.conn, "%s %s HTTP/1.1\r\nHost: %s.localhost\r\nContent-Length: %d\r\n\r\n%s", method, path, name, len(body), body)
	if a.err != nil {
		return a
	}
	resp, err := http.ReadResponse(l.in, &http.Request{Method: method})
	if err != nil {
		a.err = err
		return a
	}
	data, err := io.ReadAll(resp.Body)
	a.status, a.header, a.body, a.last, a.err = resp.StatusCode, resp.Header, string(data), resp.Close, err
	a.generation, _ = strconv.ParseUint(resp.Header.Get("Usher-Generation"), 10, 64) // 0: none
	return a
}

// counted is a file in which an app of any user can count (COUNT_FILE).
type counted string

func (u *usher) counted() counted {
	u.t.Helper()
	path := filepath.Join(u.dir, "counted")
	err := os.WriteFile(path, nil, 0o666)
	if err == nil {
		err = os.Chmod(path, 0o666) // whatever the umask is
	}
	if err != nil {
		u.t.Fatal(err)
	}
	return counted(path)
}

// lines are the requests that were executed, "METHOD id generation pid" each.
func (c counted) lines() []string {
	data, err := os.ReadFile(string(c))
	if err != nil {
		return []string{err.Error()}
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")[:strings.Count(string(data), "\n")]
}

// starts is how many attempts at starting the app have ended, whatever for.
func (u *usher) starts(name string) int {
	u.t.Helper()
	m, err := u.metrics()
	if err != nil {
		u.t.Fatal(err)
	}
	return int(m.sum("usher_attempts_total", `app="`+name+`"`))
}

// awaitStarts expects that many starts. The account of one is written a moment
// after it has answered its first request.
func (u *usher) awaitStarts(name string, want int) {
	u.t.Helper()
	u.eventually(5*time.Second, fmt.Sprint(name, " was started ", want, " times"), func() error {
		if n := u.starts(name); n != want {
			return fmt.Errorf("it is %d", n)
		}
		return nil
	})
}

// sleep puts an app to sleep. It is refused while the last request, or a
// predecessor, is on its way out, so it is tried until it is done.
func (u *usher) sleep(name string) {
	u.t.Helper()
	u.eventually(10*time.Second, name+" sleeps", func() error {
		if r := u.cli("sleep", name, "--timeout", "10s"); r.code != 0 {
			return fmt.Errorf("exit code %d: %s", r.code, r.stderr)
		}
		return nil
	})
}
