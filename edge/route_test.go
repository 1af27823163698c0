package edge

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// routes makes a table from lines "app host[/path] …".
func routes(t testing.TB, lines ...string) *Edge {
	t.Helper()
	e := New(Options{})
	t.Cleanup(e.Close)
	var cfgs []AppConfig
	for _, line := range lines {
		words := strings.Fields(line)
		host, path, _ := strings.Cut(words[1], "/")
		cfgs = append(cfgs, AppConfig{Name: words[0], Hosts: []string{host}, Paths: []string{"/" + path}})
	}
	if err := e.SetApps(cfgs); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestRouteFindsTheMostSpecificApp(t *testing.T) {
	e := routes(t,
		"exact example.test",
		"api example.test/api",
		"v2 example.test/api/v2",
		"wild *.example.test",
		"deep *.b.example.test",
		"six [2001:db8::1]",
		"four 192.0.2.1",
		"partly partly.test/only",
		"any *",
	)
	for _, c := range []struct{ host, path, app string }{
		{"example.test", "/", "exact"},
		{"EXAMPLE.test", "/", "exact"},
		{"example.test.", "/", "exact"},
		{"example.test:8080", "/", "exact"},
		{"Example.Test.:8080", "/x", "exact"},
		{"example.test", "/api", "api"},
		{"example.test", "/api/", "api"},
		{"example.test", "/api/x", "api"},
		{"example.test", "/apix", "exact"},
		{"example.test", "/API", "exact"},
		{"example.test", "/api/v2", "v2"},
		{"example.test", "/api/v2/x", "v2"},
		{"example.test", "/api/v20", "api"},
		{"a.example.test", "/", "wild"},
		{"x.a.example.test", "/", "wild"},
		{"a.b.example.test", "/", "deep"},
		{"b.example.test", "/", "wild"},
		{"[2001:db8::1]:443", "/", "six"},
		{"[2001:DB8::1]", "/", "six"},
		{"192.0.2.1:80", "/", "four"},
		{"partly.test", "/only", "partly"},
		{"partly.test", "/else", "any"},
		{"other.test", "/", "any"},
		{"", "/", "any"},
		{strings.Repeat("a", 300), "/", ""},
	} {
		got := ""
		if a, _ := e.table.Load().lookup([]byte(c.host), []byte(c.path)); a != nil {
			got = a.Name()
		}
		if got != c.app {
			t.Errorf("%s%s → %q, want %q", c.host, c.path, got, c.app)
		}
	}
}

func TestUnknownHostHasNoApp(t *testing.T) {
	e := routes(t, "a a.test", "w *.w.test")
	for _, host := range []string{"b.test", "w.test", "aa.test", "test", "a.test.evil", ""} {
		if a, _ := e.table.Load().lookup([]byte(host), []byte("/")); a != nil {
			t.Errorf("%q found %s", host, a.Name())
		}
	}
}

func TestSetAppsTellsEveryMistakeAndChangesNothing(t *testing.T) {
	e := routes(t, "a a.test")
	err := e.SetApps([]AppConfig{
		{Name: "a", Hosts: []string{"bad host"}},
		{Name: "b", Hosts: []string{"x.test:80"}},
		{Name: "c", Hosts: []string{"*.a.*"}, Paths: []string{"nope"}},
		{Name: "d", ParkLimit: -1},
		{Name: "", Hosts: []string{"y.test"}},
		{Name: "e"},
		{Name: "e"},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"bad host", "x.test:80", "*.a.*", "nope", "app d", "without a name", "app e is there twice"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not mention %q:\n%v", want, err)
		}
	}
	if a, _ := e.table.Load().lookup([]byte("a.test"), []byte("/")); e.App("a") == nil || a == nil {
		t.Error("the old table is gone")
	}
}

func TestOneHostAndPathBelongToOneApp(t *testing.T) {
	e := routes(t, "a a.test")
	err := e.SetApps([]AppConfig{
		{Name: "a", Hosts: []string{"a.test", "A.TEST."}},
		{Name: "b", Hosts: []string{"a.test"}, Paths: []string{"/"}},
	})
	if err == nil || !strings.Contains(err.Error(), "both app a and app b") {
		t.Fatalf("got %v", err)
	}
}

func TestAskSaysYesOnlyToNamesThatAreMeant(t *testing.T) {
	e := New(Options{})
	t.Cleanup(e.Close)
	err := e.SetApps([]AppConfig{
		{Name: "exact", Hosts: []string{"a.test"}},
		{Name: "wild", Hosts: []string{"*.quiet.test"}},
		{Name: "asks", Hosts: []string{"*.open.test"}, TLSAsk: true},
		{Name: "any", Hosts: []string{"*"}, TLSAsk: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	for domain, want := range map[string]bool{
		"a.test": true, "A.Test.": true, "b.test": false, "x.quiet.test": false, "quiet.test": false,
		"x.open.test": true, "x.y.open.test": true, "open.test": false, "": false, strings.Repeat("a.", 200): false,
	} {
		if got := e.Ask(domain); got != want {
			t.Errorf("ask %q = %v, want %v", domain, got, want)
		}
	}
}

// What a lane found last must never be what another table, authority or path
// would not have found. It is also what answers most requests.
func TestALaneIsRoutedAsIfItWereNew(t *testing.T) {
	sets := [][]string{
		{"a a.test", "b b.test/x", "c *.test/y", "any *"},
		{"b a.test", "a b.test", "c c.test/y"},
		{"api a.test/x", "a a.test", "w *.b.test"},
		{"a a.test/x", "c *.test", "w *.b.test/y"},
		{"a *.test", "any */x"},
	}
	hosts := []string{"a.test", "A.test", "a.test.", "b.test", "x.b.test", "c.test", "other", "", strings.Repeat("a.", 100) + "test"}
	paths := []string{"/", "/x", "/x/1", "/y", "/z"}
	rnd := rand.New(rand.NewPCG(1, 2))
	e := routes(t, sets[0]...)
	var w way
	known, wrong := 0, 0
	for range 20000 {
		switch rnd.IntN(40) {
		case 0:
			fresh := routes(t, sets[rnd.IntN(len(sets))]...).Apps()
			var cfgs []AppConfig
			for _, a := range fresh {
				cfgs = append(cfgs, a.Config())
			}
			if err := e.SetApps(cfgs); err != nil {
				t.Fatal(err)
			}
		case 1:
			if apps := e.Apps(); len(apps) > 0 {
				apps[rnd.IntN(len(apps))].Remove()
			}
		}
		tab, host, path := e.table.Load(), []byte(hosts[rnd.IntN(len(hosts))]), []byte(paths[rnd.IntN(len(paths))])
		if rnd.IntN(2) == 0 {
			host = w.host[:w.length:w.length] // as the request before
		}
		if w.table == tab.number && string(w.host[:w.length]) == string(host) {
			known++
		}
		host = append([]byte(nil), host...)
		want, _ := tab.lookup(host, path)
		if got := e.route(&w, host, path); got != want {
			wrong++
			t.Errorf("%q%s: %v, want %v", host, path, got, want)
		}
		if wrong > 5 {
			t.FailNow()
		}
	}
	if known < 2000 {
		t.Errorf("only %d of 20000 were known", known)
	}
}

func thousandHosts(b *testing.B) *Edge {
	b.Helper()
	e := New(Options{})
	var cfgs []AppConfig
	for i := range 1000 {
		name := fmt.Sprintf("app%d", i)
		cfgs = append(cfgs, AppConfig{Name: name, Hosts: []string{name + ".example.test"}})
	}
	if err := e.SetApps(cfgs); err != nil {
		b.Fatal(err)
	}
	return e
}

func BenchmarkRouteAmongThousandHosts(b *testing.B) {
	tab, host, path := thousandHosts(b).table.Load(), []byte("app500.example.test:8080"), []byte("/x")
	b.ReportAllocs()
	for b.Loop() {
		tab.lookup(host, path)
	}
}

func BenchmarkRouteOfALaneAmongThousandHosts(b *testing.B) {
	e, host, path := thousandHosts(b), []byte("app500.example.test:8080"), []byte("/x")
	var w way
	b.ReportAllocs()
	for b.Loop() {
		e.route(&w, host, path)
	}
}
