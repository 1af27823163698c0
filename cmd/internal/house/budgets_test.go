package house

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"
)

// The budgets. Median length is the same in good and bad code: the tail is the
// difference, so the tail has a limit.
const (
	funcAim, funcMost = 40, 60 // lines; tables inside are not counted
	fileAim, fileMost = 350, 700
	paramsMost        = 5 // then a struct
)

// budgetExceptions are places that may pass a limit, named "path/x.go: file" or
// "path/x.go: function".
func budgetExceptions() []exception {
	return []exception{}
}

// overBudget finds what passes a limit, and counts what only passes an aim.
func overBudget(t *tree) (found []finding, overAim int) {
	for _, s := range t.code() {
		n := strings.Count(s.text, "\n")
		if n > fileMost {
			found = append(found, finding{s.name, n, fmt.Sprintf("file has %d lines, and %d are the most: split it by what it is about", n, fileMost)})
		}
		if n > fileAim {
			overAim++
		}
		f, aims := functionsOverBudget(t, s)
		found = append(found, f...)
		overAim += aims
	}
	return found, overAim
}

func functionsOverBudget(t *tree, s source) (found []finding, overAim int) {
	ast.Inspect(s.ast, func(n ast.Node) bool {
		name, typ := "a function literal", (*ast.FuncType)(nil)
		switch n := n.(type) {
		case *ast.FuncLit:
			typ = n.Type
		case *ast.FuncDecl:
			name, typ = n.Name.Name, n.Type
			lines := t.lines(n.Pos(), n.End()) - tableLines(t, n)
			if lines > funcMost {
				found = append(found, t.find(s, n.Pos(), "%s has %d lines, and %d are the most: take a step out of it", name, lines, funcMost))
			}
			if lines > funcAim {
				overAim++
			}
		default:
			return true
		}
		if p := typ.Params.NumFields(); p > paramsMost {
			found = append(found, t.find(s, n.Pos(), "%s has %d parameters, and %d are the most: make a struct of those that belong together", name, p, paramsMost))
		}
		return true
	})
	return found, overAim
}

// tableLines counts the lines of a function that are rows of tables: slices,
// arrays and maps written out, with no code inside.
func tableLines(t *tree, fn *ast.FuncDecl) int {
	total := 0
	ast.Inspect(fn, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		switch lit.Type.(type) {
		case *ast.ArrayType, *ast.MapType:
		default:
			return true
		}
		if hasCode(lit) {
			return true
		}
		total += max(0, t.lines(lit.Lbrace, lit.Rbrace)-2)
		return false
	})
	return total
}

func hasCode(n ast.Node) bool {
	code := false
	ast.Inspect(n, func(n ast.Node) bool {
		_, isFunc := n.(*ast.FuncLit)
		code = code || isFunc
		return !code
	})
	return code
}

func TestFunctionsAndFilesKeepTheirBudgets(t *testing.T) {
	found, overAim := overBudget(wholeTree(t))
	report(t, excuse(budgetExceptions(), found, func(f finding) string {
		name, _, _ := strings.Cut(f.what, " ")
		return f.file + ": " + name
	}))
	t.Logf("%d functions and files are over their aims (%d and %d lines)", overAim, funcAim, fileAim)
}

func TestWhatPassesABudgetIsFound(t *testing.T) {
	body := func(n int) string { return strings.Repeat("\tx++\n", n) }
	table := "\tvar _ = []int{\n" + strings.Repeat("\t\t1,\n", 100) + "\t}\n"
	hidden := "\tvar _ = []func(){\n\t\tfunc() {\n" + body(100) + "\t\t},\n\t}\n"
	fn := func(name, params, body string) string {
		return "package x\nfunc " + name + "(" + params + ") {\n" + body + "}\n"
	}
	found, overAim := overBudget(sample(t, map[string]string{
		"a/fits.go":      fn("f", "a, b int, c, d, e string", body(funcMost-2)),
		"a/long.go":      fn("f", "", body(funcMost-1)),
		"a/table.go":     fn("f", "", table),
		"a/hidden.go":    fn("f", "", hidden),
		"a/params.go":    fn("f", "a, b int, c, d, e, g string", ""),
		"a/literal.go":   "package x\nvar f = func(int, int, int, int, int, int) {}\n",
		"a/file.go":      "package x\n" + strings.Repeat("//\n", fileMost),
		"a/long_test.go": fn("f", "a, b, c, d, e, g int", body(1000)),
		"a/receiver.go":  "package x\nfunc (x *T) f(a, b, c, d, e int) {}\n",
	}))
	want(t, found,
		"a/file.go:701: file has 701 lines, and 700 are the most",
		"a/hidden.go:2: f has 106 lines, and 60 are the most",
		"a/literal.go:2: a function literal has 6 parameters, and 5 are the most",
		"a/long.go:2: f has 61 lines",
		"a/params.go:2: f has 6 parameters",
	)
	if overAim != 4 { // fits.go, long.go, hidden.go, file.go
		t.Errorf("%d over their aims, want 4", overAim)
	}
}
