package main

import (
	"fmt"
	"net/http"
	"os"
)

// counter writes a line for every request that was executed.
type counter struct {
	path string // COUNT_FILE
}

// page appends "METHOD id generation pid" and answers when it is on disk.
func (c *counter) page(w http.ResponseWriter, r *http.Request) {
	if c.path == "" {
		http.Error(w, "where to count is not said: set COUNT_FILE", http.StatusInternalServerError)
		return
	}
	line := fmt.Sprintf("%s %s %s %d\n", r.Method, r.URL.Query().Get("id"), os.Getenv("USHER_GENERATION"), os.Getpid())
	if err := c.append(line); err != nil {
		http.Error(w, "count: "+err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, line)
}

func (c *counter) append(line string) error {
	// One write to the end of a file is whole, whoever else writes to it.
	file, err := os.OpenFile(c.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.WriteString(line); err != nil {
		return err
	}
	return file.Sync()
}
