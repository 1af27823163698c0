package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
)

// echo answers with the body it was sent, and its sha256. It reads everything
// first, because net/http drops the rest of a body once it has answered.
func (a *app) echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<20))
	if err != nil {
		http.Error(w, "read body: "+err.Error(), http.StatusBadRequest)
		return
	}
	sum := sha256.Sum256(body)
	w.Header().Set("X-Body-Sha256", hex.EncodeToString(sum[:]))
	w.Header().Set("X-Version", version)
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(body)
}

// upload says what came, of any length.
func (a *app) upload(w http.ResponseWriter, r *http.Request) {
	sum := sha256.New()
	n, err := io.Copy(sum, r.Body)
	if err != nil {
		http.Error(w, "read body: "+err.Error(), http.StatusBadRequest)
		return
	}
	writeJSON(w, map[string]any{
		"bytes": n, "sha256": hex.EncodeToString(sum.Sum(nil)), "version": version, "pid": os.Getpid(),
	})
}
