package engine

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

func TestAnAppInMaintenanceAnswersWithItsPageAndCachesShowNothing(t *testing.T) {
	o := newOrigin(t, each(func(s *stage, _ *http.Request) {
		s.say("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nCache-Control: max-age=60\r\n\r\nlive")
	}))
	page := edge.Page{Type: "text/html; charset=utf-8", Body: []byte("<p>back soon")}
	r := newRig(t, rigOptions{cache: newShelf(), app: edge.AppConfig{CacheEnabled: true, MaintenancePage: page}})
	r.app.Place(o.placement(1))
	c := r.dial()
	for range 2 {
		c.get("/")
		c.want(200, "live")
	}
	if n := r.last(2).Result; n.Ending != edge.Cached {
		t.Fatalf("%+v", n)
	}
	p := o.placement(1)
	p.State, p.Boot = edge.Maintenance, 2*time.Second
	r.app.Place(p)
	for _, accept := range []string{"text/html", "*/*", "application/json"} {
		c.send("GET / HTTP/1.1\r\nHost: app.test\r\nAccept: " + accept + "\r\n\r\n")
		a := c.status(503)
		html := strings.HasPrefix(a.Header.Get("Content-Type"), "text/html")
		if html != (accept != "application/json") || html != (a.body == "<p>back soon") || a.Header.Get("Retry-After") != "30" ||
			a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("Proxy-Status") != "usher; error=destination_unavailable" {
			t.Errorf("accept %s: %q %v", accept, a.body, a.Header)
		}
	}
	c.send("HEAD / HTTP/1.1\r\nHost: app.test\r\nAccept: text/html\r\n\r\n")
	if a := c.read("HEAD"); a.StatusCode != 503 || a.ContentLength != int64(len(page.Body)) || a.body != "" {
		t.Errorf("HEAD: %d, length %d, %q", a.StatusCode, a.ContentLength, a.body)
	}
	if n := r.last(6).Result; n.Cause != edge.CauseMaintenance || n.Ending != edge.Refused {
		t.Errorf("%+v", n)
	}
	r.app.Place(o.placement(1))
	c.get("/")
	c.want(200, "live")
}
