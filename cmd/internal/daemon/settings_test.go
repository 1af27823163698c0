package daemon

import (
	"reflect"
	"testing"

	"github.com/usher-edge/usher/cmd/internal/config"
)

// alter gives a setting another value.
func alter(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(v.Uint() + 1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"X": "1"}))
	case reflect.Struct:
		for i := range v.NumField() {
			alter(t, v.Field(i))
		}
	default:
		t.Fatalf("cannot alter a %s", v.Type())
	}
}

func TestEverySettingOfAnAppHasAnEffectAndOnlySomeNeedANewProcess(t *testing.T) {
	process := map[string]bool{"Command": true, "Env": true, "User": true, "Listen": true, "Swap": true, "Limits": true}
	fileOf := func(a config.App) *config.File {
		return &config.File{Server: config.Server{CacheBytes: 1}, Apps: []config.App{a}}
	}
	base := config.App{Name: "a", Swap: config.Overlap, User: config.Account{Name: "hello", UID: 1001, GID: 1001}}
	for i := range reflect.TypeFor[config.App]().NumField() {
		name := reflect.TypeFor[config.App]().Field(i).Name
		a := base
		if name == "Swap" {
			a.Swap = config.Hold
		} else {
			alter(t, reflect.ValueOf(&a).Elem().Field(i))
		}
		if moved := !reflect.DeepEqual(processOf(a), processOf(base)); moved != process[name] {
			t.Errorf("%s asks for a new process: %t, want %t", name, moved, process[name])
		}
		same := reflect.DeepEqual(apps(fileOf(a)), apps(fileOf(base))) && reflect.DeepEqual(edgeApps(fileOf(a)), edgeApps(fileOf(base)))
		if same {
			t.Errorf("%s has no effect on anything", name)
		}
	}
}

func TestAnAccountIsItsNumbers(t *testing.T) {
	base := config.App{User: config.Account{Name: "hello", UID: 1001, GID: 1001}}
	renamed := base
	renamed.User.Name, renamed.User.Home = "1001", "/elsewhere"
	if !reflect.DeepEqual(processOf(renamed), processOf(base)) {
		t.Error("another spelling of the same account asks for a new process")
	}
	for _, f := range []func(*config.Account){func(u *config.Account) { u.UID++ }, func(u *config.Account) { u.GID++ }} {
		other := base
		if f(&other.User); reflect.DeepEqual(processOf(other), processOf(base)) {
			t.Errorf("%+v asks for no new process", other.User)
		}
	}
}
