package house

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// named is a test as a page names it; what follows a slash is one of its cases, and is
// not looked at.
var named = regexp.MustCompile(`\b(Test|Fuzz|Benchmark)[A-Z0-9]\w*`)

// beginnings are names that stand for all tests that begin so.
func beginnings() []exception {
	return []exception{
		{"TestTheDocs", "a pattern of go test -run"},
		{"TestTheKernel", "the tests that make vm-test runs"},
	}
}

// missing finds the tests that pages name and the tree does not have. pages are texts
// by their names.
func missing(t *tree, pages map[string]string, begin []exception) []finding {
	var tests []string
	for _, s := range t.files {
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test && f.Recv == nil {
				tests = append(tests, f.Name.Name)
			}
		}
	}
	has := func(name string, whole bool) bool {
		for _, test := range tests {
			if test == name || !whole && strings.HasPrefix(test, name) {
				return true
			}
		}
		return false
	}
	var found []finding
	for page, text := range pages {
		line := 0
		for l := range strings.Lines(text) {
			line++
			for _, name := range named.FindAllString(l, -1) {
				if !has(name, true) {
					found = append(found, finding{page, line, fmt.Sprintf("there is no %s: name the test that does it now", name)})
				}
			}
		}
	}
	of := func(f finding) string { return named.FindString(f.what) }
	for _, b := range begin {
		if !has(b.what, false) {
			found = append(found, finding{b.what, 0, "no test begins so: remove its row (" + b.why + ")"})
		}
	}
	return excuse(begin, found, of)
}

func TestEveryTestThatThePagesNameIsThere(t *testing.T) {
	root := moduleRoot(t)
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(files) < 5 {
		t.Fatalf("only %d pages in docs (%v): the look is broken", len(files), err)
	}
	top, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil || len(top) == 0 {
		t.Fatalf("no page in %s (%v)", root, err)
	}
	pages := map[string]string{}
	for _, file := range append(files, top...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		pages[filepath.ToSlash(name)] = string(text)
	}
	report(t, missing(wholeTree(t), pages, beginnings()))
}

func TestATestThatIsNamedAndNotThereIsFound(t *testing.T) {
	tree := sample(t, map[string]string{
		"a/a.go":      "package a\nfunc TestOfNoTest() {}\n",
		"a/a_test.go": "package a\nfunc TestAB(t *T) {}\nfunc TestKernelX(t *T) {}\nfunc FuzzF(f *F) {}\nfunc BenchmarkB(b *B) {}\nfunc (x) TestMethod(t *T) {}\n",
	})
	pages := map[string]string{
		"README.md": "`TestAB`, `TestAB/one_case` and `FuzzF`: Tests of testing, Testing.\n`BenchmarkB`; those that begin with TestKernel\n",
		"docs/b.md": "Words.\n| `TestA` | `FuzzG`, `TestAB` |\n`BenchmarkC/x`, `TestOfNoTest`\n`TestMethod`\n",
	}
	want(t, missing(tree, pages, []exception{{"TestKernel", "a group"}}),
		"docs/b.md:2: there is no FuzzG", "docs/b.md:2: there is no TestA:",
		"docs/b.md:3: there is no BenchmarkC:", "docs/b.md:3: there is no TestOfNoTest", "docs/b.md:4: there is no TestMethod")
	want(t, missing(tree, nil, []exception{{"TestNobody", "a group"}}), "TestNobody:0: an exception is not needed", "TestNobody:0: no test begins so")
}
