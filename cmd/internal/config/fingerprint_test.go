package config

import (
	"net/netip"
	"reflect"
	"testing"
	"time"
)

// change sets a field of any type used in App and Server to another value.
func change(t *testing.T, f reflect.Value) {
	t.Helper()
	switch v := f.Addr().Interface().(type) {
	case *[]string:
		*v = append([]string{"changed"}, *v...)
	case *map[string]string:
		*v = map[string]string{"CHANGED": "1"}
	case *[]Addr:
		*v = append([]Addr{{"tcp", "changed:1"}}, *v...)
	case *[]netip.Prefix:
		*v = append([]netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}, *v...)
	case *[]Listener:
		*v = append([]Listener{{Trusted: true}}, *v...)
	case *[]byte:
		*v = append([]byte("changed"), *v...)
	case *Swap:
		*v = map[Swap]Swap{Overlap: Hold, Hold: Overlap}[*v]
	default:
		switch f.Kind() {
		case reflect.String:
			f.SetString(f.String() + "changed")
		case reflect.Bool:
			f.SetBool(!f.Bool())
		case reflect.Int, reflect.Int64:
			f.SetInt(f.Int() + 1)
		case reflect.Uint16, reflect.Uint32:
			f.SetUint(f.Uint() + 1)
		case reflect.Struct:
			change(t, f.Field(f.NumField()-1))
		default:
			t.Fatalf("cannot change a %s", f.Type())
		}
	}
}

func sampleApp() App {
	return App{
		Name: "a", Hosts: []string{"a.example"}, Paths: []string{"/"},
		Artifact: "/etc/usher/hello", ArtifactValue: "hello",
		Command: []string{"./hello", "x"}, Env: map[string]string{"A": "1", "B": "2"},
		User:   Account{Name: "hello", UID: 1001, GID: 1001},
		Listen: Listen{Kind: ListenPort}, Swap: Overlap, IdleTimeout: time.Minute,
		Health: Health{Path: "/", Timeout: time.Second}, Cache: Cache{Enabled: true},
	}
}

func TestEveryFieldThatTouchesNoProcessMovesTheFingerprint(t *testing.T) {
	others := map[string]bool{ // a release's, or a new process's
		"Artifact": true, "ArtifactValue": true, "Target": true,
		"Command": true, "Env": true, "User": true, "Listen": true, "Swap": true, "Limits": true,
	}
	base := sampleApp()
	for i := range reflect.TypeFor[App]().NumField() {
		name := reflect.TypeFor[App]().Field(i).Name
		a := sampleApp()
		change(t, reflect.ValueOf(&a).Elem().Field(i))
		if moved := a.EdgeFingerprint() != base.EdgeFingerprint(); moved == others[name] {
			t.Errorf("%s: the fingerprint moved %v, want %v", name, moved, !others[name])
		}
	}
}

func TestOnlyTheValueInTheFileMakesARelease(t *testing.T) {
	a := sampleApp()
	moved := sampleApp()
	moved.Artifact = "/elsewhere/hello"
	if a.ReleaseValue() != "artifact hello" || moved.ReleaseValue() != a.ReleaseValue() {
		t.Errorf("release values %q and %q", a.ReleaseValue(), moved.ReleaseValue())
	}
	external := App{Name: "x", Target: Addr{"unix", "/run/x"}}
	if got := external.ReleaseValue(); got != "target unix:/run/x" {
		t.Errorf("release value of a target = %q", got)
	}
	if got := (&App{}).ReleaseValue(); got != "" {
		t.Errorf("release value of an app that waits = %q", got)
	}
}

func TestEveryServerKeyIsComparedAndNamedAsInTheFile(t *testing.T) {
	typ := reflect.TypeFor[Server]()
	for i := range typ.NumField() {
		var old, now Server
		change(t, reflect.ValueOf(&now).Elem().Field(i))
		keys := ServerChanges(old, now)
		if len(keys) != 1 {
			t.Errorf("%s changed: keys %v, want one", typ.Field(i).Name, keys)
			continue
		}
		value, is := "{}", "a table"
		if keys[0] == "listeners" { // the only one that is a table
			value, is = "3", "a whole number"
		}
		_, err := Parse("usher.toml", []byte("[server]\nlisten=[':80']\n"+keys[0]+" = "+value+"\n"), testEnv())
		if keys[0] != "listen" && (err == nil || !containsAll(err.Error(), "server."+keys[0]+": is "+is)) {
			t.Errorf("%s is named %q, which the file does not know: %v", typ.Field(i).Name, keys[0], err)
		}
	}
	if keys := ServerChanges(Server{}, Server{}); keys != nil {
		t.Errorf("equal servers differ in %v", keys)
	}
}
