//go:build !race

package activator

const raced = false
