package house

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// undocumented finds packages without a comment that says what they are.
func undocumented(t *tree) []finding {
	names := make(map[string]source)
	documented := make(map[string]bool)
	for _, s := range t.code() {
		if first, ok := names[s.dir]; !ok || s.name < first.name {
			names[s.dir] = s
		}
		if doc := strings.TrimSpace(s.ast.Doc.Text()); says(s.ast.Name.Name, doc) {
			documented[s.dir] = true
		}
	}
	var found []finding
	for dir, s := range names {
		if !documented[dir] {
			found = append(found, t.find(s, s.ast.Name.Pos(), "package %s has no doc: begin a comment above the package clause with %q and say what it guarantees", dir, docStart(s.ast.Name.Name)))
		}
	}
	return found
}

func docStart(pkg string) string {
	if pkg == "main" {
		return "Command …"
	}
	return "Package " + pkg + " …"
}

// says reports that a doc begins as the go tools expect and goes on.
func says(pkg, doc string) bool {
	prefix := "Package " + pkg + " "
	if pkg == "main" {
		prefix = "Command "
	}
	return strings.HasPrefix(doc, prefix) && len(doc) > len(prefix)
}

// sleeps finds tests that wait by the clock: they are slow where the machine is
// fast and fail where it is slow. In a bubble of testing/synctest the clock is
// the test's own.
func sleeps(t *tree) []finding {
	var found []finding
	for _, s := range t.files {
		if !s.test && !isTestPackage(s.dir) || importsSynctest(s) {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Sleep" {
				return true
			}
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == "time" {
				found = append(found, t.find(s, sel.Pos(), "a test sleeps: wait for what should happen (a channel, or polling up to a deadline), or use testing/synctest"))
			}
			return true
		})
	}
	return found
}

func importsSynctest(s source) bool {
	return slices.ContainsFunc(s.ast.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` })
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	report(t, undocumented(wholeTree(t)))
}

func TestNoTestSleeps(t *testing.T) {
	report(t, sleeps(wholeTree(t)))
}

func TestAPackageWithoutDocIsFound(t *testing.T) {
	want(t, undocumented(sample(t, map[string]string{
		"a/a.go":      "package a\n",
		"a/doc.go":    "// Package a does a.\npackage a\n",
		"b/b.go":      "// b does b.\npackage b\n",
		"c/main.go":   "// Command c does c.\npackage main\n",
		"d/d.go":      "// Package d\npackage d\n",
		"e/e.go":      "package e\n",
		"e/e_test.go": "// Package e is tested.\npackage e\n",
		"f/f.go":      "// Package f does f.\n\npackage f\n",
	})), "b/b.go:2: package b has no doc", "d/d.go:2: package d has no doc", "e/e.go:1: package e has no doc", "f/f.go:3: package f has no doc")
}

func TestASleepingTestIsFound(t *testing.T) {
	const body = "func f() { time.Sleep(1) }\n"
	want(t, sleeps(sample(t, map[string]string{
		"a/a.go":           "package a\nimport \"time\"\n" + body,
		"a/a_test.go":      "package a\nimport \"time\"\n" + body,
		"a/b_test.go":      "package a\nimport (\"time\"; \"testing/synctest\")\n" + body,
		"a/storetest/s.go": "package storetest\nimport \"time\"\n" + body,
	})), "a/a_test.go:3: a test sleeps", "a/storetest/s.go:3: a test sleeps")
}
