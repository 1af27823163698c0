//go:build race

package activator

const raced = true
