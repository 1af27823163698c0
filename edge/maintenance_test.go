package edge

import (
	"strings"
	"testing"
)

// accepting is a header with Accept fields.
type accepting []string

func (a accepting) Get(name string) (v []byte) {
	a.Each(name, func(value []byte) bool { v = value; return false })
	return v
}

func (a accepting) Each(name string, yield func([]byte) bool) {
	for _, v := range a {
		if name != "accept" || !yield([]byte(v)) {
			return
		}
	}
}

func TestThePageOfAnAppInMaintenanceGoesToWhoeverAcceptsIt(t *testing.T) {
	own := Page{Type: "text/html; charset=utf-8", Body: []byte("<p>soon")}
	data := Page{Type: "application/json", Body: []byte(`{"up":false}`)}
	for _, c := range []struct {
		page   Page
		accept []string
		want   string
	}{
		{Page{}, []string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, "built in"},
		{Page{}, []string{"*/*"}, ""},
		{Page{}, []string{"text/*"}, ""},
		{Page{}, nil, ""},
		{Page{}, []string{"application/json"}, ""},
		{Page{}, []string{"text/html;q=0, */*"}, ""},
		{Page{}, []string{"application/json", "Text/HTML ; level=1"}, "built in"},
		{own, []string{"*/*"}, "own"},
		{own, nil, "own"},
		{own, []string{"text/*;q=0.5"}, "own"},
		{own, []string{"application/json, text/plain"}, ""},
		{own, []string{"text/html;q=0.000, */*"}, ""},
		{own, []string{"*/*, text/html;q=0.001"}, "own"},
		{own, []string{"", " , "}, "own"},
		{data, []string{"application/json"}, "own"},
		{data, []string{"text/html, */*;q=0"}, ""},
	} {
		e, a := one(t, Options{}, AppConfig{MaintenancePage: c.page})
		a.Place(Placement{State: Maintenance})
		r := open(e)
		r.Header = accepting(c.accept)
		if d := e.Decide(r); d.Cause != CauseMaintenance {
			t.Fatalf("%+v", d)
		}
		p, ok := r.Maintenance()
		got := ""
		switch {
		case !ok:
		case string(p.Body) == string(c.page.Body):
			got = "own"
		case strings.Contains(string(p.Body), "<h1>Down for maintenance</h1>"):
			got = "built in"
		}
		if got != c.want || ok && c.page.Body != nil && p.Type != c.page.Type {
			t.Errorf("page %q, accept %q: %q (%s), want %q", c.page.Type, c.accept, got, p.Type, c.want)
		}
		end(e, r, Refused)
	}
}

// A page that changes in the file shows at once, without the control plane.
func TestANewMaintenancePageIsShownAtOnce(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	a.Place(Placement{State: Maintenance, Boot: 9e9})
	cfg := AppConfig{Name: "app", Hosts: []string{"*"}, MaintenancePage: Page{Type: "text/plain", Body: []byte("new")}}
	if err := e.SetApps([]AppConfig{cfg}); err != nil {
		t.Fatal(err)
	}
	r := open(e)
	if d := e.Decide(r); d.Cause != CauseMaintenance {
		t.Fatalf("%+v", d)
	}
	if p, ok := r.Maintenance(); !ok || string(p.Body) != "new" || r.RetryAfter() != 9e9 {
		t.Errorf("%q, %v, %v", p.Body, ok, r.RetryAfter())
	}
	end(e, r, Refused)
}
