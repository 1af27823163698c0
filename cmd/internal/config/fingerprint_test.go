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

func TestEveryFieldOfAnAppMovesTheRightFingerprint(t *testing.T) {
	process := map[string]bool{"Command": true, "Env": true, "Listen": true, "Swap": true, "Limits": true}
	release := map[string]bool{"Artifact": true, "ArtifactValue": true, "User": true} // User: its own test below
	base := sampleApp()
	for i := range reflect.TypeFor[App]().NumField() {
		name := reflect.TypeFor[App]().Field(i).Name
		if name == "Target" {
			continue // replaces the whole process; its own test below
		}
		a := sampleApp()
		change(t, reflect.ValueOf(&a).Elem().Field(i))
		movedProcess := a.ProcessFingerprint() != base.ProcessFingerprint()
		movedEdge := a.EdgeFingerprint() != base.EdgeFingerprint()
		wantProcess, wantEdge := process[name], !process[name] && !release[name]
		if movedProcess != wantProcess || movedEdge != wantEdge {
			t.Errorf("%s: process fingerprint moved %v (want %v), edge %v (want %v)", name, movedProcess, wantProcess, movedEdge, wantEdge)
		}
	}
}

func TestAnAccountIsItsNumbers(t *testing.T) {
	base := sampleApp()
	renamed, uid, gid := sampleApp(), sampleApp(), sampleApp()
	renamed.User.Name, renamed.User.Home = "1001", "/elsewhere"
	uid.User.UID++
	gid.User.GID++
	if renamed.ProcessFingerprint() != base.ProcessFingerprint() {
		t.Error("another spelling of the same account asks for a new revision")
	}
	if uid.ProcessFingerprint() == base.ProcessFingerprint() || gid.ProcessFingerprint() == base.ProcessFingerprint() {
		t.Error("another account does not move the process fingerprint")
	}
}

func TestFingerprintsAreKnownValues(t *testing.T) {
	// A state directory outlives the program: if this value changes, every app
	// of every user gets a new revision at the next start.
	a := sampleApp()
	const want = "441b13da29cbd254c38c90d929260f7eb9c54a2ca6dc7514a19a3f626ee8290e"
	if got := a.ProcessFingerprint(); got != want {
		t.Errorf("fingerprint = %s, want %s", got, want)
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
	other := App{Name: "x", Target: Addr{"tcp", "127.0.0.1:1"}}
	if external.ProcessFingerprint() != other.ProcessFingerprint() || external.EdgeFingerprint() != other.EdgeFingerprint() {
		t.Error("another target moves a fingerprint; it is a release")
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
