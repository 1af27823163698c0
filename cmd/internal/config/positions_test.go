package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// documents are TOML texts that use every way to write a key and a value.
func documents() []string {
	return []string{
		"",
		"# only a comment",
		"a = 1\nb.c = 2\nb . d = 3\n'q r'.\"s\\tt\" = 4\n",
		"[t]\nx = 1\n[t.u.v]\ny = 2\n[t.u]\nz = 3\n",
		"[ t . 'u v' ]\nx = 1 # ] = [\n",
		"[[l]]\nx = 1\n[[l]]\nx = 2\n[l.sub]\ny = 3\n[[l.m]]\nz = 4\n[[l.m]]\nz = 5\n",
		"s = \"a ] } = # \\\" \\\\\"\nt = 'a \\'\nu = 1\n",
		"s = \"\"\"\na \"\" \\\"\"\" ] = \n\"\"\"\"\"\nt = '''x '' \\'''''\nu = 1\n",
		"d = 1979-05-27 07:32:00\ne = 1979-05-27T07:32:00Z\nf = 07:32:00\ng = +1_000\nh = 0xdead\ni = -inf\nj = 1e3\n",
		"a = [ # c\n 1, [2, 3], { x = [4], 'y]' = '}' },\n \"\"\"\n]\"\"\",\n]\nb = []\nc = {}\n",
		"i = { a.b = 1, c = { d = \"}\" }, e = [ ] } # x = 1\nj = 2\n",
		"i = {\n  a = 1, # one\n  b = 2,\n}\nj = 3\n",
		"a = 1\r\n[t]\r\nb = 'x'\r\n",
		"\t[t]\t\n\tb\t=\t'x'\t# c\n",
		"\"größe\" = 'ü' # ö\nb = 1\n",
		"true = true\n1 = 1\n2.3 = 3\n-_- = 4\n",
	}
}

// checkScan holds the scan against what the decoder read: both see the same
// keys and elements, and each place shows the text of its key or value.
func checkScan(t *testing.T, text string) {
	t.Helper()
	if strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff") || strings.HasPrefix(text, "\ufeff") {
		return // Parse takes marks of byte order away before
	}
	doc := make(map[string]any)
	md, err := toml.Decode(text, &doc)
	if err != nil {
		return // the scan is for valid text only; it must still come to an end
	}
	for _, key := range md.Keys() {
		if slices.Contains(key, "") {
			return // the decoder loses array elements beside an inline table with an empty key
		}
	}
	compare(t, text, "", doc, scan(text))
}

func compare(t *testing.T, text, path string, v any, n *node) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		for key, sub := range v {
			kid, ok := n.kids[key]
			if !ok {
				t.Fatalf("the scan has no %s.%s in\n%s", path, key, text)
			}
			checkKey(t, text, path+"."+key, key, kid.key)
			compare(t, text, path+"."+key, sub, kid)
		}
		if len(v) != len(n.kids) {
			t.Fatalf("the scan sees %d keys in %s, the decoder %d, in\n%s", len(n.kids), path, len(v), text)
		}
	case []any:
		checkElems(t, text, path, len(v), n)
		for i, e := range v {
			compare(t, text, path+"[]", e, n.elems[i])
		}
	case []map[string]any:
		checkElems(t, text, path, len(v), n)
		for i, e := range v {
			compare(t, text, path+"[]", e, n.elems[i])
		}
	case string:
		if c := text[n.val]; c != '"' && c != '\'' {
			t.Fatalf("the string %s does not begin at %d in\n%s", path, n.val, text)
		}
	case bool:
		if !strings.HasPrefix(text[n.val:], map[bool]string{true: "true", false: "false"}[v]) {
			t.Fatalf("the boolean %s does not begin at %d in\n%s", path, n.val, text)
		}
	default:
		if !strings.ContainsRune("+-0123456789in", rune(text[n.val])) {
			t.Fatalf("the number or date %s does not begin at %d in\n%s", path, n.val, text)
		}
	}
}

func checkElems(t *testing.T, text, path string, want int, n *node) {
	t.Helper()
	if len(n.elems) != want {
		t.Fatalf("the scan sees %d elements in %s, the decoder %d, in\n%s", len(n.elems), path, want, text)
	}
}

func checkKey(t *testing.T, text, path, key string, off int) {
	t.Helper()
	at := text[off:]
	if quoted := at[0] == '"' || at[0] == '\''; !quoted && !strings.HasPrefix(at, key) {
		t.Fatalf("the key %s does not begin at %d in\n%s", path, off, text)
	}
}

func TestTheScanSeesWhatTheDecoderSees(t *testing.T) {
	for _, text := range documents() {
		if err := toml.Unmarshal([]byte(text), &map[string]any{}); err != nil {
			t.Fatalf("a document of this test is no TOML: %v\n%s", err, text)
		}
		checkScan(t, text)
	}
}

func FuzzTheScanSeesWhatTheDecoderSees(f *testing.F) {
	for _, text := range documents() {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		scan(text) // must end and not panic on any text
		checkScan(t, text)
	})
}

func FuzzNoFileMakesTheParserPanic(f *testing.F) {
	f.Add(minimal)
	f.Add(ext + "target = '127.0.0.1:1'\n[apps.a.health]\npath='/x'\n")
	for _, text := range documents() {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Parse("usher.toml", []byte(text), testEnv())
		if (file == nil) == (err == nil) {
			t.Errorf("file %v, error %v: want exactly one", file, err)
		}
	})
}

func TestColumnsCountCharacters(t *testing.T) {
	const text = "a\nüx\n日本語!"
	for _, c := range []struct {
		before    string
		line, col int
	}{{"a", 1, 1}, {"\n", 1, 2}, {"x", 2, 2}, {"!", 3, 4}} {
		if line, col := lineColumn(text, strings.Index(text, c.before)); line != c.line || col != c.col {
			t.Errorf("before %q: %d:%d, want %d:%d", c.before, line, col, c.line, c.col)
		}
	}
	if line, col := lineColumn(text, 1000); line != 3 || col != 5 {
		t.Errorf("behind the end: %d:%d", line, col)
	}
}
