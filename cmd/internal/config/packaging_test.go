package config

import (
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

func packaged(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../packaging/usher.toml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// packagedEnv is a machine that has what the packaged file names.
func packagedEnv() Env {
	env := testEnv()
	files := fstest.MapFS{"srv/hello/hello": {Mode: 0o755, Data: []byte("x")}}
	env.Stat = func(p string) (fs.FileInfo, error) { return files.Stat(strings.TrimPrefix(p, "/")) }
	return env
}

func TestThePackagedFileIsValidAndChangesNoDefault(t *testing.T) {
	plain := mustParse(t, "[server]\nlisten = [\"127.0.0.1:8080\"]\n", packagedEnv())
	got := mustParse(t, packaged(t), packagedEnv())
	if !reflect.DeepEqual(got, plain) {
		t.Errorf("as it comes\n got %+v\nwant %+v", got, plain)
	}
}

func TestTheSettingsInThePackagedFileAreTheDefaults(t *testing.T) {
	setting := regexp.MustCompile(`(?m)^#([^ \n])`)
	all := setting.ReplaceAllString(packaged(t), "$1")
	got := mustParse(t, all, packagedEnv())
	want := mustParse(t, `
[server]
listen = ["127.0.0.1:8080"]
[apps.hello]
hosts = ["hello.example.com"]
artifact = "/srv/hello/hello"
command = ["./hello"]
user = "hello"
env = { GREETING = "hi" }
[apps.api]
hosts = ["api.example.com"]
target = "127.0.0.1:3000"
`, packagedEnv())
	want.Server.PortRange = PortRange{20000, 29999} // zero means this one where it is free
	if !reflect.DeepEqual(got, want) {
		t.Errorf("with all settings taken in\n got %+v\nwant %+v", got, want)
	}
}

func TestThePackagedFileNamesEveryKey(t *testing.T) {
	text := packaged(t)
	known := regexp.MustCompile(`known here: (.*)`)
	_, err := Parse("usher.toml", []byte(minimal+`
zzzzzzzzzzzz = 1
[apps.hello.health]
zzzzzzzzzzzz = 1
[apps.hello.cache]
zzzzzzzzzzzz = 1
`), testEnv())
	_, err2 := Parse("usher.toml", []byte("[server]\nlisten=[':80']\nzzzzzzzzzzzz = 1\n[server.listeners.':80']\nzzzzzzzzzzzz = 1\n"), testEnv())
	lists := known.FindAllStringSubmatch(err.Error()+"\n"+err2.Error(), -1)
	if len(lists) != 5 {
		t.Fatalf("want five lists of keys, got %v", lists)
	}
	for _, list := range lists {
		for key := range strings.SplitSeq(list[1], ", ") {
			if !regexp.MustCompile(`\b` + key + `( = |\]|\."127)`).MatchString(text) {
				t.Errorf("packaging/usher.toml does not name %s", key)
			}
		}
	}
}
