package admin

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// nobody is a Control that must not be asked.
type nobody struct{ Control }

// ask sends a request through the guards of s, as if it came over a connection
// of p. What gets through is answered 404 by the routes.
func ask(s *Server, p peer, header ...string) int {
	r := httptest.NewRequest("GET", "/nothing", nil)
	r.Host = "localhost:9000"
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		} else {
			r.Header.Set(header[i], header[i+1])
		}
	}
	r = r.WithContext(context.WithValue(r.Context(), peerKey{}, p))
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, r)
	return w.Code
}

const through = http.StatusNotFound

func TestAnAppsOwnUserIsRefusedOnTheSocket(t *testing.T) {
	s := NewServer(nobody{}, Options{Forbid: func(uid uint32) bool { return uid >= 2000 }})
	s.uid = 2001
	for _, tt := range []struct {
		name string
		peer peer
		want int
	}{
		{"root", peer{unix: true, uid: 0}, through},
		{"another user", peer{unix: true, uid: 1000}, through},
		{"an app's user", peer{unix: true, uid: 2000}, http.StatusForbidden},
		{"usher's own, though an app runs as it", peer{unix: true, uid: 2001}, through},
		{"unknown", peer{unix: true, err: net.ErrClosed}, http.StatusForbidden},
	} {
		if got := ask(s, tt.peer); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestARequestWithoutConnectionIsRefused(t *testing.T) {
	s := NewServer(nobody{}, Options{Token: "secret"})
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/v1/apps", nil))
	if w.Code != http.StatusForbidden {
		t.Errorf("got %d", w.Code)
	}
}

func TestTCPNeedsTheToken(t *testing.T) {
	s := NewServer(nobody{}, Options{Token: "secret"})
	for header, want := range map[string]int{
		"Bearer secret":  through,
		"bearer secret":  through,
		"":               http.StatusUnauthorized,
		"Bearer":         http.StatusUnauthorized,
		"Bearer ":        http.StatusUnauthorized,
		"Bearer secret2": http.StatusUnauthorized,
		"Bearer secre":   http.StatusUnauthorized,
		"Basic secret":   http.StatusUnauthorized,
		"secret":         http.StatusUnauthorized,
	} {
		if got := ask(s, peer{}, "Authorization", header); got != want {
			t.Errorf("%q: %d, want %d", header, got, want)
		}
	}
	// No token is not the empty token.
	if got := ask(NewServer(nobody{}, Options{}), peer{}, "Authorization", "Bearer "); got != http.StatusUnauthorized {
		t.Errorf("server without a token: %d", got)
	}
}

func TestATCPListenerWithoutTokenIsNotServed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(nobody{}, Options{})
	if err := s.Serve(l); err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("serve: %v", err)
	}
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("the listener is still open")
	}
}

func TestRebindingIsRefused(t *testing.T) {
	s := NewServer(nobody{}, Options{Token: "secret", Hosts: []string{"Admin.Example"}})
	for host, want := range map[string]int{
		"localhost:9000":       through,
		"LOCALHOST":            through,
		"localhost.":           through,
		"127.0.0.1:9000":       through,
		"[::1]:9000":           through,
		"[::1]":                through,
		"10.0.0.7":             through,
		"admin.example:1":      through,
		"evil.example:9000":    http.StatusForbidden,
		"localhost.evil":       http.StatusForbidden,
		"127.0.0.1.nip.io":     http.StatusForbidden,
		"admin.example.evil":   http.StatusForbidden,
		"xn--localhost-9za:80": http.StatusForbidden,
		"":                     http.StatusForbidden,
	} {
		if got := ask(s, peer{}, "Host", host, "Authorization", "Bearer secret"); got != want {
			t.Errorf("%q: %d, want %d", host, got, want)
		}
		if want == http.StatusForbidden {
			// The token of a victim must not help either way, nor its lack show.
			if got := ask(s, peer{}, "Host", host); got != want {
				t.Errorf("%q without token: %d, want %d", host, got, want)
			}
		}
	}
}

func TestOtherSitesAreRefused(t *testing.T) {
	s := NewServer(nobody{}, Options{Token: "secret"})
	for _, tt := range []struct {
		name, value string
		want        int
	}{
		{"Origin", "http://localhost:9000", through},
		{"Origin", "http://LOCALHOST:9000", through},
		{"Origin", "http://localhost:3000", http.StatusForbidden},
		{"Origin", "http://localhost", http.StatusForbidden},
		{"Origin", "https://evil.example", http.StatusForbidden},
		{"Origin", "null", http.StatusForbidden},
		{"Origin", "::", http.StatusForbidden},
		{"Sec-Fetch-Site", "same-origin", through},
		{"Sec-Fetch-Site", "none", through},
		{"Sec-Fetch-Site", "cross-site", http.StatusForbidden},
		{"Sec-Fetch-Site", "same-site", http.StatusForbidden},
	} {
		if got := ask(s, peer{}, tt.name, tt.value, "Authorization", "Bearer secret"); got != tt.want {
			t.Errorf("tcp, %s %s: %d, want %d", tt.name, tt.value, got, tt.want)
		}
		if got := ask(s, peer{unix: true}, tt.name, tt.value); got != tt.want {
			t.Errorf("unix, %s %s: %d, want %d", tt.name, tt.value, got, tt.want)
		}
	}
}

func TestNoAnswerAllowsOtherOrigins(t *testing.T) {
	s := NewServer(nobody{}, Options{})
	r := httptest.NewRequest("OPTIONS", "/v1/apps", nil)
	r.Header.Set("Origin", "http://"+r.Host)
	r.Header.Set("Access-Control-Request-Method", "POST")
	r = r.WithContext(context.WithValue(r.Context(), peerKey{}, peer{unix: true}))
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, r)
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("preflight: %d", w.Code)
	}
	for name := range w.Header() {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("%s is sent", name)
		}
	}
}
