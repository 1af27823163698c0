package child

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// forkedProblems says what in a file could enter the runtime where there is none.
func forkedProblems(t *testing.T, name string, source any) (problems []string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			own[f.Name.Name] = true
		}
	}
	add := func(n ast.Node, what string) {
		problems = append(problems, strings.TrimSpace(set.Position(n.Pos()).String()+" "+what))
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		for _, need := range []string{"//go:nosplit", "//go:norace"} {
			if f.Doc == nil || !slices.ContainsFunc(f.Doc.List, func(c *ast.Comment) bool { return c.Text == need }) {
				add(f, f.Name.Name+" without "+need)
			}
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if what := forbidden(n, own); what != "" {
				add(n, f.Name.Name+" "+what)
			}
			return true
		})
	}
	return problems
}

func forbidden(n ast.Node, own map[string]bool) string {
	switch n := n.(type) {
	case *ast.GoStmt, *ast.DeferStmt, *ast.SelectStmt, *ast.SendStmt, *ast.FuncLit, *ast.TypeAssertExpr:
		return "does what needs the runtime"
	case *ast.IndexExpr, *ast.SliceExpr:
		return "indexes, which can panic"
	case *ast.MapType, *ast.ChanType, *ast.InterfaceType:
		return "uses a type of the runtime"
	case *ast.CallExpr:
		switch f := n.Fun.(type) {
		case *ast.Ident:
			if !own[f.Name] && !slices.Contains([]string{"uintptr", "uint64", "uint32", "int32", "byte", "same"}, f.Name) {
				return "calls " + f.Name
			}
		case *ast.SelectorExpr:
			from, _ := f.X.(*ast.Ident)
			switch {
			case from != nil && from.Name == "unsafe":
			case from != nil && from.Name == "syscall" && (f.Sel.Name == "RawSyscall" || f.Sel.Name == "RawSyscall6"):
			case own[f.Sel.Name] && from != nil && from.Name != "syscall":
			default:
				return "calls " + f.Sel.Name
			}
		case *ast.ParenExpr: // a conversion
		default:
			return "calls what cannot be told"
		}
	}
	return ""
}

func TestAForkDoesNothingThatNeedsARuntime(t *testing.T) {
	if found := forkedProblems(t, "fork.go", nil); len(found) > 0 {
		t.Errorf("a child could hang or crash:\n%s", strings.Join(found, "\n"))
	}
}

func TestWhatNeedsARuntimeIsFound(t *testing.T) {
	const bad = `package child

//go:nosplit
//go:norace
func good(p *order) { _, _, _ = syscall.RawSyscall(1, uintptr(unsafe.Pointer(p)), 0, 0); p.check() }

//go:nosplit
//go:norace
func (o *order) check() {}

//go:nosplit
func a() {}

//go:nosplit
//go:norace
func b(list []int) { _ = make([]byte, 1); list[0] = 1; go good(nil); defer good(nil); println(1); syscall.Syscall(1, 2, 3, 4); syscall.Getpid(); print(func() {}) }
`
	found := strings.Join(forkedProblems(t, "bad.go", bad), "\n")
	for _, want := range []string{"a without //go:norace", "b calls make", "b indexes", "b calls Syscall", "b calls Getpid", "b calls println", "b does what needs"} {
		if !strings.Contains(found, want) {
			t.Errorf("not found: %s, in\n%s", want, found)
		}
	}
	if strings.Contains(found, "good ") || strings.Contains(found, "check ") {
		t.Errorf("found in what is good:\n%s", found)
	}
}
