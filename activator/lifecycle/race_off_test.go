//go:build !race

package lifecycle

const raced = false
