package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/usher-edge/usher"

// source is one parsed Go file.
type source struct {
	name string // path below the root of the tree, with slashes
	dir  string // path of its package below the module; "" is the root
	test bool
	ast  *ast.File
	text string
}

// tree is all Go files of the module.
type tree struct {
	fset  *token.FileSet
	files []source
}

// finding is one broken rule.
type finding struct {
	file string
	line int
	what string // what is wrong, why it is a rule, and what to do
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.what) }

func (t *tree) find(s source, pos token.Pos, format string, args ...any) finding {
	return finding{s.name, t.fset.Position(pos).Line, fmt.Sprintf(format, args...)}
}

// lines counts the lines from one position to another, both included.
func (t *tree) lines(from, to token.Pos) int {
	return t.fset.Position(to).Line - t.fset.Position(from).Line + 1
}

// code returns the files that are no tests.
func (t *tree) code() []source {
	return slices.DeleteFunc(slices.Clone(t.files), func(s source) bool { return s.test })
}

func (t *tree) add(name, text string) error {
	f, err := parser.ParseFile(t.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	dir := path.Dir(name)
	if dir == "." {
		dir = ""
	}
	t.files = append(t.files, source{name, dir, strings.HasSuffix(name, "_test.go"), f, text})
	return nil
}

// sample is a tree of files given by name and text, for tests of the rules.
func sample(t *testing.T, files map[string]string) *tree {
	t.Helper()
	tr := &tree{fset: token.NewFileSet()}
	for name, text := range files {
		if err := tr.add(name, text); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

// wholeTree parses every Go file of the module.
func wholeTree(t *testing.T) *tree {
	t.Helper()
	root := moduleRoot(t)
	tr := &tree{fset: token.NewFileSet()}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skipDir(d.Name()) && p != root {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if err := tr.add(filepath.ToSlash(rel), string(text)); err != nil {
			t.Errorf("does not parse: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.files) < 20 {
		t.Fatalf("only %d Go files below %s: the walk is broken", len(tr.files), root)
	}
	return tr
}

// skipDir says what the go tool does not build either, and what npm brings.
func skipDir(name string) bool {
	return name == "testdata" || name == "vendor" || name == "node_modules" || name[0] == '.' || name[0] == '_'
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("there is no go.mod above this package")
		}
		dir = up
	}
}

// report fails the test with all findings.
func report(t *testing.T, found []finding) {
	t.Helper()
	slices.SortFunc(found, func(a, b finding) int { return strings.Compare(a.String(), b.String()) })
	for _, f := range found {
		t.Error(f)
	}
}

// want checks that a rule finds in a sample what it must, by parts of the text
// of each finding, and nothing else.
func want(t *testing.T, found []finding, parts ...string) {
	t.Helper()
	slices.SortFunc(found, func(a, b finding) int { return strings.Compare(a.String(), b.String()) })
	for i, f := range found {
		if i >= len(parts) {
			t.Errorf("found too much: %s", f)
		} else if !strings.Contains(f.String(), parts[i]) {
			t.Errorf("found %q, want %q in it", f, parts[i])
		}
	}
	for _, p := range parts[min(len(found), len(parts)):] {
		t.Errorf("not found: %s", p)
	}
}

// exception lets one place break a rule.
type exception struct {
	what string // what the rule calls it
	why  string
}

// excuse takes out what the table allows and adds a finding for every row that
// allows nothing any more.
func excuse(table []exception, found []finding, name func(finding) string) []finding {
	used := make(map[string]bool)
	found = slices.DeleteFunc(found, func(f finding) bool {
		for _, e := range table {
			if e.what == name(f) {
				used[e.what] = true
				return true
			}
		}
		return false
	})
	for _, e := range table {
		if !used[e.what] {
			found = append(found, finding{e.what, 0, "an exception is not needed any more: remove its row (" + e.why + ")"})
		}
	}
	return found
}

func TestAnExceptionThatIsNotNeededIsFound(t *testing.T) {
	name := func(f finding) string { return f.file }
	table := []exception{{"a.go", "reason a"}, {"b.go", "reason b"}}
	want(t, excuse(table, []finding{{"a.go", 1, "x"}, {"c.go", 2, "y"}}, name), "b.go:0: an exception is not needed", "c.go:2: y")
}
