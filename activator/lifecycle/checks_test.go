package lifecycle

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A check is one call of explorer.fail, or of explorer.breaks. A promise has several,
// and one that no wrong variant sets off may be unable to fail.
type check struct {
	name string // of the promise, if it is written there
	says string // its text, with the verbs in it
	at   string
}

// checks reads from the tests of this package all that call a method.
func checks(t *testing.T, method string) []check {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var all []check
	set := token.NewFileSet()
	for _, name := range files {
		f, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if fun, ok := call.Fun.(*ast.SelectorExpr); ok && fun.Sel.Name == method && len(call.Args) >= 2 {
				if says := literal(call.Args[1]); says != "" {
					all = append(all, check{literal(call.Args[0]), says, set.Position(call.Pos()).String()})
				}
			}
			return true
		})
	}
	return all
}

// literal is what a string in the code says; empty if it is none.
func literal(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	text, _ := strconv.Unquote(lit.Value)
	return text
}

// shownChecks are those that have caught a wrong variant.
type shownChecks struct {
	mu   sync.Mutex // guards the field below
	says map[string]bool
}

func (s *shownChecks) add(says string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.says == nil {
		s.says = map[string]bool{}
	}
	s.says[says] = true
}

// report names the checks that have caught nothing.
func (s *shownChecks) report(t *testing.T, all []check) {
	t.Helper()
	if len(all) == 0 {
		t.Error("no check was found")
	}
	for _, c := range all {
		if !s.says[c.says] {
			t.Errorf("%s: no mutant sets off what says %q (%s): write one that does, or delete it", c.at, c.says, c.name)
		}
	}
}

// A mutant that is for one check has to name one.
func TestEveryCheckSaysSomethingElse(t *testing.T) {
	all := slices.Concat(checks(t, "fail"), checks(t, "breaks"))
	says := func(part string) int {
		n := 0
		for _, c := range all {
			if strings.Contains(c.says, part) {
				n++
			}
		}
		return n
	}
	for _, c := range all {
		if says(c.says) != 1 {
			t.Errorf("%s: another check says %q, too", c.at, c.says)
		}
	}
	for _, m := range mutants() {
		for _, part := range m.also {
			if says(part) != 1 {
				t.Errorf("%d checks say %q, of which one is to catch the mutant %q", says(part), part, m.name)
			}
		}
	}
}
