package edge

import (
	"fmt"
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
		if a := e.table.Load().lookup([]byte(c.host), []byte(c.path)); a != nil {
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
		if a := e.table.Load().lookup([]byte(host), []byte("/")); a != nil {
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
	if e.App("a") == nil || e.table.Load().lookup([]byte("a.test"), []byte("/")) == nil {
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

func BenchmarkRouteAmongThousandHosts(b *testing.B) {
	e := New(Options{})
	var cfgs []AppConfig
	for i := range 1000 {
		name := fmt.Sprintf("app%d", i)
		cfgs = append(cfgs, AppConfig{Name: name, Hosts: []string{name + ".example.test"}})
	}
	if err := e.SetApps(cfgs); err != nil {
		b.Fatal(err)
	}
	tab, host, path := e.table.Load(), []byte("app500.example.test:8080"), []byte("/x")
	b.ReportAllocs()
	for b.Loop() {
		tab.lookup(host, path)
	}
}
