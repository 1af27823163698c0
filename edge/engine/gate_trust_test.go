package engine

import (
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
)

// trustee is somebody who sends forwarded fields.
type trustee struct {
	name    string
	rig     rigOptions
	door    Listener // that it comes through, beside the first
	trusted bool
	ip      string // as usher sees it; "" on a unix socket
}

func trustees() []trustee {
	proxies := func(block string) rigOptions {
		return rigOptions{server: Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix(block)}}}
	}
	return []trustee{
		{name: "a stranger", ip: "127.0.0.1"},
		{name: "a peer beside the trusted ones", rig: proxies("127.0.0.2/31"), ip: "127.0.0.1"},
		{name: "a trusted peer", rig: proxies("127.0.0.0/31"), ip: "127.0.0.1", trusted: true},
		{name: "a peer on a unix socket", rig: rigOptions{unix: true}, trusted: true},
		{name: "a peer at a trusted listener", door: Listener{Trusted: true}, ip: "127.0.0.1", trusted: true},
	}
}

// claim is a field that somebody sends, and what of it the app gets if that peer is
// trusted, and if not. PEER is the peer's address, * a value of usher's own.
type claim struct {
	rfc, name, sent, field, believed, replaced string
}

func claims() []claim {
	const client = "X-Forwarded-For: 198.51.100.7\r\n"
	return []claim{
		{"7239 5.2", "X-Forwarded-For", client, "X-Forwarded-For", "198.51.100.7, PEER", "PEER"},
		{"9110 5.3", "X-Forwarded-For twice", "x-forwarded-for: 198.51.100.6\r\n" + client, "X-Forwarded-For", "198.51.100.6, 198.51.100.7, PEER", "PEER"},
		{"7239 5.2", "no X-Forwarded-For", "", "X-Forwarded-For", "PEER", "PEER"},
		{"7239 5.4", "X-Forwarded-Proto", client + "X-Forwarded-Proto: https\r\n", "X-Forwarded-Proto", "https", "http"},
		{"7239 5.4", "no X-Forwarded-Proto", client, "X-Forwarded-Proto", "http", "http"},
		{"7239 5.3", "X-Forwarded-Host", client + "X-Forwarded-Host: pub.test\r\n", "X-Forwarded-Host", "pub.test", "app.test"},
		{"7239 5.3", "no X-Forwarded-Host", client, "X-Forwarded-Host", "app.test", "app.test"},
		{"7239 7.4", "X-Forwarded-* of any name", client + "X-Forwarded-Prefix: /x\r\n", "X-Forwarded-Prefix", "/x", ""},
		{"7239 7.4", "X-Real-IP", client + "X-Real-IP: 198.51.100.7\r\n", "X-Real-Ip", "198.51.100.7", ""},
		{"7239 4", "Forwarded", client + "Forwarded: for=198.51.100.7;proto=https\r\n", "Forwarded", "for=198.51.100.7;proto=https", ""},
		{"9110 7.6.1", "named by Connection", "Connection: X-Forwarded-For\r\n" + client, "X-Forwarded-For", "198.51.100.7, PEER", "PEER"},
		{"9110 5.1", "an alias with _", client + "X_Forwarded_Proto: https\r\n", "X-Forwarded-Proto", "http", "http"},
		{"7239 8.1", "X-Request-Id", client + "X-Request-Id: mine\r\n", "X-Request-Id", "mine", "*"},
		{"9110 5.3", "X-Request-Id twice", client + "X-Request-Id: mine\r\nX-Request-Id: mine\r\n", "X-Request-Id", "*", "*"},
		{"7239 8.1", "X-Request-Start", client + "X-Request-Start: t=5\r\n", "X-Request-Start", "t=5", "*"},
	}
}

// wants is what the app should get of the claim.
func (p *trustee) wants(c *claim) string {
	want := c.replaced
	if p.trusted {
		want = c.believed
	}
	if p.ip == "" {
		want = strings.TrimSuffix(strings.TrimSuffix(want, "PEER"), ", ")
	}
	return strings.ReplaceAll(want, "PEER", p.ip)
}

// "Client-sent X-Forwarded-*/Forwarded [dropped] unless the listener or peer is
// trusted", and X-Forwarded-* always written by us.
func TestForwardedFieldsAreOverwrittenUnlessThePeerIsTrusted(t *testing.T) {
	fresh := regexp.MustCompile(`^([0-9a-f]{16}|t=[0-9]{10,}\.[0-9]{3})$`)
	for _, p := range trustees() {
		got := make(chan http.Header, 1)
		o := newOrigin(t, each(func(s *stage, q *http.Request) {
			got <- q.Header
			s.ok("")
		}))
		r := newRig(t, p.rig)
		r.app.Place(o.placement(1))
		if p.door.Trusted {
			r.addr = r.serveAlso(p.door)
		}
		k := r.dial()
		for i, c := range claims() {
			t.Run(p.name+"/"+c.rfc+"/"+c.name, func(t *testing.T) {
				k.t = t
				k.send(gateGet(c.sent))
				k.want(200, "")
				values := (<-got).Values(c.field)
				value, want := strings.Join(values, "|"), p.wants(&c)
				if value != want && (want != "*" || !fresh.MatchString(value)) {
					t.Errorf("%s: the app got %q, want %q", c.field, values, want)
				}
				client := p.ip
				if p.trusted && strings.Contains(c.sent, "198.51.100.7") {
					client = "198.51.100.7"
				}
				if e := r.last(i + 1); string(e.Client) != client || c.field == "X-Request-Id" && string(e.ID) != value {
					t.Errorf("logged: client %q, id %q; want %q, %q", e.Client, e.ID, client, value)
				}
			})
		}
	}
}
