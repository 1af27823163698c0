package peers

import (
	"fmt"
	"strings"
)

// Work is one kind of load.
type Work struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	// Connections at once; each sends its next request when it has its answer,
	// unless there is a Rate.
	Connections int     `json:"connections"`
	Rate        float64 `json:"rate_per_s,omitempty"` // requests/s on a fixed schedule
	Cached      bool    `json:"cached,omitempty"`     // for peers that can cache

	path   string
	upload int // bytes of the body of a POST; 0: a GET
	length int // bytes of each answer's body
	bars   []Bar
}

// Bar is the most that a ratio of usher to a peer may be.
type Bar struct {
	Against string  `json:"against"`
	Measure Measure `json:"measure"`
	Most    float64 `json:"most"`
	// Next is where it shall go from there; 0 if nothing is said.
	Next float64 `json:"next,omitempty"`
}

// Measure is what a ratio is of. Of all but PerSecond, less is better.
type Measure string

// Measures.
const (
	CPU       Measure = "cpu"        // µs of CPU time per request
	P50       Measure = "p50"        // of latency
	P99       Measure = "p99"        // of latency
	P999      Measure = "p99.9"      // of latency
	PerSecond Measure = "per_second" // requests answered right
)

func cpuBars(nginx, nextNginx, haproxy, nextHAProxy float64) []Bar {
	return []Bar{
		{Nginx, CPU, nginx, nextNginx},
		{HAProxy, CPU, haproxy, nextHAProxy},
	}
}

// Works are all there are, in the order in which they are done and reported.
func Works() []Work {
	small := func(id, title string, connections int, bars []Bar) Work {
		return Work{ID: id, Title: title, Connections: connections, path: pathSmall, length: smallBytes, bars: bars}
	}
	rated := small("small-rate", "small GET, 6,000/s", 64, cpuBars(1.4, 0.85, 1.0, 0.60))
	rated.Rate = 6000
	return []Work{
		small("small-64", "small GET, 64 connections", 64, append(cpuBars(1.0, 0.70, 0.85, 0.60),
			Bar{HAProxy, P99, 1.1, 0}, Bar{Caddy, CPU, 0.2, 0}, Bar{Kamal, CPU, 0.2, 0})),
		small("small-512", "small GET, 512 connections", 512, cpuBars(1.0, 0.65, 0.80, 0.50)),
		small("small-4", "small GET, 4 connections", 4, cpuBars(1.15, 0.80, 0.95, 0.70)),
		rated,
		{
			ID: "large", Title: "1 MiB response, 16 connections", Connections: 16, path: pathLarge, length: largeBytes,
			bars: cpuBars(0.60, 0.5, 0.70, 0.6),
		},
		{
			ID: "upload", Title: "64 KiB POST, 64 connections", Connections: 64, path: pathUpload, length: smallBytes,
			upload: uploadBytes, bars: cpuBars(1.05, 0.80, 0.85, 0.65),
		},
		{
			ID: "cached", Title: "cached small GET, 64 connections", Connections: 64, Cached: true, path: pathCached, length: smallBytes,
			bars: cpuBars(0.65, 0.55, 0.80, 0.65),
		},
	}
}

// host is the Host field; usher routes by it.
func (w Work) host() string {
	if w.Cached {
		return hostCached
	}
	return hostOf(0)
}

// request is the bytes of one.
func (w Work) request() []byte {
	var b strings.Builder
	method := "GET"
	if w.upload > 0 {
		method = "POST"
	}
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: usher-bench\r\nAccept: */*\r\n", method, w.path, w.host())
	if w.upload > 0 {
		fmt.Fprintf(&b, "Content-Type: application/octet-stream\r\nContent-Length: %d\r\n", w.upload)
	}
	b.WriteString("\r\n")
	b.Write(content(w.upload))
	return []byte(b.String())
}
