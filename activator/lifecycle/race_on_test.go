//go:build race

package lifecycle

// raced: nothing in this package runs beside anything else, so under the race
// detector, which makes the exploration ten times slower, a part of it will do.
const raced = true
