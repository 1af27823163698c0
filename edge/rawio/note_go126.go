//go:build go1.26 && !go1.27

package rawio

// noteAt is where rg stands in runtime.pollDesc, in words; wg follows. fd is the
// second one.
const noteAt = 4
