// Package house holds the tests that keep the whole tree in order; it has no
// code of its own. Each rule is a function from the parsed tree to what breaks
// it, and each is tried on small samples first, so that a rule that cannot fail
// does not pass for one that holds.
//
//   - Imports (imports_test.go): which package may import which, and which
//     module may appear where, each ban with its reason.
//   - Budgets (budgets_test.go): lines of functions and files, parameters.
//   - Variables (vars_test.go): nothing at package level may change.
//   - Habits (habits_test.go): every package says what it is; no test sleeps; none
//     counts allocations under the race detector.
//   - Pages (pages_test.go): every test that the documentation names is there.
//   - Previous main (previous_main_test.go): what CI compares benchmarks with.
//
// A rule that must be broken somewhere gets a row in that rule's table of
// exceptions, with the reason. A row that is no longer needed is an error too.
package house
