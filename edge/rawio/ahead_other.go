//go:build !amd64

package rawio

import "unsafe"

// Ahead does nothing here.
func Ahead(unsafe.Pointer, uintptr) {}

// StackAhead does nothing here.
func StackAhead(_, _ uintptr) {}
