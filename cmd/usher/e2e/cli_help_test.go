package e2e

import (
	"bufio"
	"io"
	"strings"
	"time"
)

// lines reads lines with a limit on the wait for each.
type lines struct {
	next chan string
	text string
}

func newLines(r io.Reader) *lines {
	l := &lines{next: make(chan string, 100)}
	go func() { // ends with r
		defer close(l.next)
		for s := bufio.NewScanner(r); s.Scan(); {
			l.next <- s.Text()
		}
	}()
	return l
}

// Scan waits for the next line, 10 s at most.
func (l *lines) Scan() (more bool) {
	select {
	case l.text, more = <-l.next:
		return more
	case <-time.After(10 * time.Second):
		return false
	}
}

// Text is the line that Scan has found.
func (l *lines) Text() string { return l.text }

// until reads on to a line that holds all the words.
func (l *lines) until(words ...string) bool {
next:
	for l.Scan() {
		for _, w := range words {
			if !strings.Contains(l.Text(), w) {
				continue next
			}
		}
		return true
	}
	return false
}

// rest reads to the end.
func (l *lines) rest() {
	for range l.next { //nolint:revive // only the end matters
	}
}
