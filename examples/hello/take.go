package main

import (
	"fmt"
	"net/http"
	"os"
	"sync"
)

// ballast is memory that is in use.
type ballast struct {
	mu   sync.Mutex // guards held
	held [][]byte
}

// take takes so many MiB more and keeps them.
func (b *ballast) take(mib int) {
	more := make([]byte, mib<<20)
	for i := 0; i < len(more); i += os.Getpagesize() {
		more[i] = 1
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = append(b.held, more)
}

// allocate takes ?mib= (100) more.
func (a *app) allocate(w http.ResponseWriter, r *http.Request) {
	mib := number(r, "mib", 100, 1<<20)
	a.ballast.take(mib)
	fmt.Fprintf(w, "holds %d MiB more\n", mib)
}

// children starts ?n= (1) more, which ignore SIGTERM.
func (a *app) children(w http.ResponseWriter, r *http.Request) {
	n := number(r, "n", 1, 10_000)
	for i := range n {
		if err := startChild(false); err != nil {
			http.Error(w, fmt.Sprintf("child %d of %d: %v", i+1, n, err), http.StatusInternalServerError)
			return
		}
	}
	fmt.Fprintf(w, "has %d children more\n", n)
}
