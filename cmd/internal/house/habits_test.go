package house

import (
	"go/ast"
	"go/build/constraint"
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

// counted finds tests that count what the memory allocator did in files that are
// built under the race detector too. It makes sync.Pool drop things at random, and
// needs memory of its own: such a count means nothing there.
func counted(t *tree) []finding {
	counts := []string{"testing.AllocsPerRun", "runtime.ReadMemStats"}
	var found []finding
	for _, s := range t.files {
		if !s.test && !isTestPackage(s.dir) || notUnderRace(s) {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if id, ok := sel.X.(*ast.Ident); ok && slices.Contains(counts, id.Name+"."+sel.Sel.Name) {
				found = append(found, t.find(s, sel.Pos(), "%s.%s where the race detector may be: move it to a file with //go:build !race (alloc_test.go)", id.Name, sel.Sel.Name))
			}
			return true
		})
	}
	return found
}

// notUnderRace reports that a file is left out of every build with the race detector.
func notUnderRace(s source) bool {
	for _, g := range s.ast.Comments {
		for _, c := range g.List {
			if c.Pos() > s.ast.Package || !constraint.IsGoBuild(c.Text) {
				continue
			}
			x, err := constraint.Parse(c.Text)
			return err == nil && demandsNoRace(x)
		}
	}
	return false
}

func demandsNoRace(x constraint.Expr) bool {
	if and, ok := x.(*constraint.AndExpr); ok {
		return demandsNoRace(and.X) || demandsNoRace(and.Y)
	}
	return x.String() == "!race"
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	report(t, undocumented(wholeTree(t)))
}

func TestNoTestSleeps(t *testing.T) {
	report(t, sleeps(wholeTree(t)))
}

func TestAllocationsAreCountedOnlyWithoutTheRaceDetector(t *testing.T) {
	report(t, counted(wholeTree(t)))
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

func TestACountUnderTheRaceDetectorIsFound(t *testing.T) {
	const body = "package a\nimport \"testing\"\nvar n = testing.AllocsPerRun(1, f)\n"
	const heap = "package a\nimport \"runtime\"\nfunc f() { runtime.ReadMemStats(nil) }\n"
	want(t, counted(sample(t, map[string]string{
		"a/a.go":           heap,
		"a/a_test.go":      body,
		"a/b_test.go":      heap,
		"a/c_test.go":      "//go:build !race\n\n" + body,
		"a/d_test.go":      "// Words.\n\n//go:build linux && !race\n\n" + body,
		"a/e_test.go":      "//go:build linux || !race\n\n" + body,
		"a/f_test.go":      "//go:build race\n\n" + body,
		"a/g_test.go":      body + "//go:build !race\n",
		"a/storetest/s.go": heap,
	})), "a/a_test.go:3: testing.AllocsPerRun", "a/b_test.go:3: runtime.ReadMemStats", "a/e_test.go:5:", "a/f_test.go:5:", "a/g_test.go:3:", "a/storetest/s.go:3: runtime.ReadMemStats")
}
