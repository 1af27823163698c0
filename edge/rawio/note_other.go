//go:build !go1.26 || go1.27

package rawio

const noteAt = 0 // not known
