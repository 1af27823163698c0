package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// parked counts requests that waited for an app, and for how long in all.
type parked struct {
	count  float64
	waited time.Duration
}

func (p parked) since(earlier parked) parked {
	return parked{count: p.count - earlier.count, waited: p.waited - earlier.waited}
}

// String is "12, 34 ms each", or a dash.
func (p parked) String() string {
	if p.count < 1 {
		return "-"
	}
	return fmt.Sprintf("%.0f, %.1f ms each", p.count, float64(p.waited.Microseconds())/1000/p.count)
}

// parked reads usher's metrics.
func (d *daemon) parked(ctx context.Context, app string) (parked, error) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.stage.adminSocket())
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://usher/metrics", nil)
	if err != nil {
		return parked{}, err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return parked{}, fmt.Errorf("read metrics: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return parked{}, fmt.Errorf("read metrics: %s", response.Status)
	}
	return parseParked(response.Body, app)
}

// parseParked finds the two lines of an app in the Prometheus text format.
func parseParked(metrics io.Reader, app string) (parked, error) {
	const name = "usher_park_duration_seconds"
	label := `{app="` + app + `"} `
	var p parked
	lines := bufio.NewScanner(metrics)
	found := 0
	for lines.Scan() {
		line := lines.Text()
		if value, ok := strings.CutPrefix(line, name+"_count"+label); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return parked{}, fmt.Errorf("read metrics: %w", err)
			}
			p.count = n
			found++
		}
		if value, ok := strings.CutPrefix(line, name+"_sum"+label); ok {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return parked{}, fmt.Errorf("read metrics: %w", err)
			}
			p.waited = time.Duration(seconds * float64(time.Second))
			found++
		}
	}
	if err := lines.Err(); err != nil {
		return parked{}, fmt.Errorf("read metrics: %w", err)
	}
	if found != 2 {
		return parked{}, fmt.Errorf("read metrics: no %s of app %s", name, app)
	}
	return p, nil
}
