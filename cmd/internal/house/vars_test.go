package house

import (
	"errors"
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"strings"
	"testing"
)

// varExceptions are variables at package level that may change or hold
// something that does, named "directory.name".
func varExceptions() []exception {
	return []exception{
		{"edge.partedMark", "it is compared by its address and never read"},
	}
}

// mutableVars finds variables at package level that change, or whose kind can
// only be there to change. Errors, patterns and tables that nobody assigns are
// fine: they are constants that Go cannot write as such.
func mutableVars(t *tree) []finding {
	packages := make(map[string][]source)
	for _, s := range t.code() {
		packages[s.dir] = append(packages[s.dir], s)
	}
	var found []finding
	for _, files := range packages {
		found = append(found, packageVars(t, files)...)
	}
	return found
}

// noImports makes every import fail. The names of the package itself are still
// resolved, which is all that is asked here, and nothing needs to be built.
type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not needed") }

func packageVars(t *tree, files []source) []finding {
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object)}
	cfg := types.Config{Importer: noImports{}, Error: func(error) {}}
	asts := make([]*ast.File, len(files))
	for i, s := range files {
		asts[i] = s.ast
	}
	pkg, _ := cfg.Check(files[0].dir, t.fset, asts, info)
	var found []finding
	for _, s := range files {
		for _, d := range s.ast.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
				found = append(found, suspicious(t, s, g)...)
			}
		}
		found = append(found, changes(t, s, pkg, info)...)
	}
	return found
}

// suspicious finds declarations of what can only be there to change.
func suspicious(t *tree, s source, g *ast.GenDecl) []finding {
	var found []finding
	for _, spec := range g.Specs {
		v, ok := spec.(*ast.ValueSpec)
		if !ok || embedded(g, v) {
			continue
		}
		for i, name := range v.Names {
			why := ""
			switch {
			case name.Name == "_":
			case len(v.Values) == 0:
				why = "has no value yet, so something sets it later"
			case i < len(v.Values):
				why = changeable(v.Type, v.Values[i])
			}
			if why != "" {
				found = append(found, t.find(s, name.Pos(), "variable %s %s: put it into a struct that is made in one place", name.Name, why))
			}
		}
	}
	return found
}

func embedded(g *ast.GenDecl, v *ast.ValueSpec) bool {
	for _, doc := range []*ast.CommentGroup{g.Doc, v.Doc} {
		if doc == nil {
			continue
		}
		for _, c := range doc.List {
			if strings.HasPrefix(c.Text, "//go:embed ") {
				return true
			}
		}
	}
	return false
}

// changeable says why a value is one that changes, or nothing.
func changeable(nodes ...ast.Expr) string {
	why := ""
	for _, n := range nodes {
		if n == nil {
			continue
		}
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return false // what a function does when it is called is its own
			case *ast.ChanType:
				why = "is a channel"
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "make" || id.Name == "new") {
					why = "is made empty, so something fills it later"
				}
			case *ast.SelectorExpr:
				if id, ok := n.X.(*ast.Ident); ok && (id.Name == "sync" || id.Name == "atomic") {
					why = "is there to be shared and changed (" + id.Name + "." + n.Sel.Name + ")"
				}
			}
			return true
		})
	}
	return why
}

// changes finds where a variable at package level is changed, of this package or
// of another.
func changes(t *tree, s source, pkg *types.Package, info *types.Info) []finding {
	var found []finding
	check := func(e ast.Expr, how string) {
		id := root(e)
		if id == nil {
			return
		}
		switch o := info.Uses[id].(type) {
		case *types.Var:
			if o.Parent() == pkg.Scope() {
				found = append(found, t.find(s, id.Pos(), "variable %s at package level %s: put it into a struct that is made in one place", id.Name, how))
			}
		case *types.PkgName:
			found = append(found, t.find(s, id.Pos(), "variable %s of another package %s: pass what differs as an argument", types.ExprString(e), how))
		}
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				if n.Tok != token.DEFINE {
					check(l, "is assigned to")
				}
			}
		case *ast.IncDecStmt:
			check(n.X, "is counted")
		case *ast.RangeStmt:
			if n.Tok == token.ASSIGN {
				check(n.Key, "is assigned to")
				check(n.Value, "is assigned to")
			}
		case *ast.UnaryExpr:
			if _, isLit := n.X.(*ast.CompositeLit); n.Op == token.AND && !isLit {
				check(n.X, "has its address taken, through which it can change")
			}
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 && (id.Name == "delete" || id.Name == "clear" || id.Name == "copy") {
				check(n.Args[0], "is changed by "+id.Name)
			}
		}
		return true
	})
	return found
}

// root is the name that an expression starts from: x of x.f[i].
func root(e ast.Expr) *ast.Ident {
	for {
		switch v := e.(type) {
		case *ast.Ident:
			return v
		case *ast.SelectorExpr:
			e = v.X
		case *ast.IndexExpr:
			e = v.X
		case *ast.SliceExpr:
			e = v.X
		case *ast.StarExpr:
			e = v.X
		case *ast.ParenExpr:
			e = v.X
		default:
			return nil
		}
	}
}

func TestNothingAtPackageLevelChanges(t *testing.T) {
	name := func(f finding) string { // every finding begins "variable NAME …"
		return path.Dir(f.file) + "." + strings.Fields(f.what)[1]
	}
	report(t, excuse(varExceptions(), mutableVars(wholeTree(t)), name))
}

func TestEveryWayToChangeAPackageVariableIsFound(t *testing.T) {
	want(t, mutableVars(sample(t, map[string]string{
		"a/fine.go": `package a
import ("errors"; "regexp"; "io"; "sync"; "embed")
var ErrX = errors.New("x")
var _ io.Reader = (*T)(nil)
var (
	pattern = regexp.MustCompile("x")
	table   = map[string]int{"a": 1}
	list    = [...]string{"a", "b"}
	deferred = func() *sync.Mutex { return new(sync.Mutex) }
)
//go:embed x
var files embed.FS
type T struct{ n int }
func f(table map[string]int) int {
	table["x"] = 1
	list := list[:]
	list[0] = "y"
	t := T{}
	t.n++
	return table["a"]
}
`,
		"b/declared.go": `package b
import ("sync"; "sync/atomic")
var later int
var mu sync.Mutex
var once = sync.Once{}
var n = atomic.Int64{}
var m = make(map[string]int)
var p = new(int)
var c chan int = nil
`,
		"c/a.go": `package c
var count = 0
var table = map[string]int{"a": 1}
var list = []int{1}
var config = struct{ x int }{1}
var shared = "x"
`,
		"c/b.go": `package c
import "flag"
func f() {
	count++
	table["b"] = 2
	list = append(list, 2)
	config.x = 3
	delete(table, "a")
	for list[0] = range 3 {
	}
	_ = &shared
	flag.Usage = nil
}
`,
		"c/c_test.go": "package c\nfunc g() { count = 1 }\n",
	})),
		"b/declared.go:3: variable later has no value yet",
		"b/declared.go:4: variable mu has no value yet",
		"b/declared.go:5: variable once is there to be shared and changed (sync.Once)",
		"b/declared.go:6: variable n is there to be shared and changed (atomic.Int64)",
		"b/declared.go:7: variable m is made empty",
		"b/declared.go:8: variable p is made empty",
		"b/declared.go:9: variable c is a channel",
		"c/b.go:11: variable shared at package level has its address taken",
		"c/b.go:12: variable flag.Usage of another package is assigned to",
		"c/b.go:4: variable count at package level is counted",
		"c/b.go:5: variable table at package level is assigned to",
		"c/b.go:6: variable list at package level is assigned to",
		"c/b.go:7: variable config at package level is assigned to",
		"c/b.go:8: variable table at package level is changed by delete",
		"c/b.go:9: variable list at package level is assigned to",
	)
}
