package peers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	startLimit = 30 * time.Second // for a peer to answer right
	askLimit   = 5 * time.Second  // for one answer
	askEvery   = 20 * time.Millisecond
)

// eventually tries until it succeeds; a peer whose program has ended is not
// waited for.
func eventually(ctx context.Context, s *standing, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		if s != nil {
			if lost := s.lost(); lost != nil {
				return lost
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("not ready after %s: %w", startLimit, err)
		}
	}
}

func connects(address string) error {
	conn, err := net.DialTimeout("tcp", address, askLimit)
	if err != nil {
		return err
	}
	return conn.Close()
}

// ask sends a work's request once and checks the answer; for the cached work
// again, whose answer must be the first one kept.
func ask(network, address string, w Work) error {
	first, err := askOnce(network, address, w)
	if err != nil || !w.Cached || network == "unix" {
		return err
	}
	second, err := askOnce(network, address, w)
	if err == nil && (first == "" || first != second) {
		err = errors.New("it does not answer from its cache")
	}
	return err
}

// askOnce returns the serial of the answer.
func askOnce(network, address string, w Work) (serial string, err error) {
	conn, err := net.DialTimeout(network, address, askLimit)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(askLimit)); err != nil {
		return "", err
	}
	if _, err := conn.Write(w.request()); err != nil {
		return "", err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	switch {
	case err != nil:
		return "", err
	case answer.StatusCode != http.StatusOK:
		return "", fmt.Errorf("answered %s", answer.Status)
	case n != int64(w.length):
		return "", fmt.Errorf("answered %d bytes, not %d", n, w.length)
	case w.Cached && answer.Header.Get(serialField) == "":
		return "", fmt.Errorf("the answer has lost its field %s", serialField)
	}
	return answer.Header.Get(serialField), nil
}
