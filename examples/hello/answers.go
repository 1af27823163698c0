package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
)

// cachedPage may be kept for a minute; the number tells whether it was.
func (a *app) cachedPage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "max-age=60")
	fmt.Fprintf(w, "page %d from %s\n", a.cached.Add(1), version)
}

// status answers with ?code= (200).
func (a *app) status(w http.ResponseWriter, r *http.Request) {
	code := number(r, "code", http.StatusOK, 999)
	if code < 200 {
		code = http.StatusBadRequest
	}
	w.WriteHeader(code)
	if code != http.StatusNoContent && code != http.StatusNotModified {
		fmt.Fprintf(w, "status %d from %s\n", code, version)
	}
}

// early sends 103 Early Hints before its answer.
func (a *app) early(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Link", "</style.css>; rel=preload; as=style")
	w.WriteHeader(http.StatusEarlyHints)
	fmt.Fprintf(w, "hints came before this, from %s\n", version)
}

// trailer sends the sha256 of its body after it.
func (a *app) trailer(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Trailer", "X-Body-Sha256")
	sum := sha256.New()
	body := io.MultiWriter(w, sum)
	for i := range 3 {
		fmt.Fprintf(body, "part %d from %s\n", i+1, version)
		_ = http.NewResponseController(w).Flush()
	}
	w.Header().Set("X-Body-Sha256", hex.EncodeToString(sum.Sum(nil)))
}
