package peers

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// What the origin serves.
const (
	pathSmall  = "/small"
	pathLarge  = "/large"
	pathUpload = "/upload"
	pathCached = "/cached"

	smallBytes  = 128
	largeBytes  = 1 << 20
	uploadBytes = 64 << 10

	hostCached = "cached.bench.localhost"
	// serialField tells one answer of pathCached from another: two equal ones
	// are one answer, given twice.
	serialField = "X-Origin-Serial"
)

// origin is what all peers stand in front of.
type origin struct {
	what   string // for the report
	files  []File
	socket string
	tcp    string
	stop   func()
}

// startOrigin prefers nginx, which costs the machine least.
func startOrigin(dir string, cores, most int) (*origin, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	o := &origin{socket: filepath.Join(dir, "o.sock"), tcp: "127.0.0.1:" + strconv.Itoa(port)}
	path, err := exec.LookPath("nginx")
	if err != nil {
		return o, o.own()
	}
	return o, o.nginx(path, dir, cores, most)
}

func (o *origin) nginx(path, dir string, cores, most int) error {
	for name, size := range map[string]int{"small": smallBytes, "large": largeBytes, "cached": smallBytes, "upload": smallBytes} {
		if err := os.WriteFile(filepath.Join(dir, name), content(size), 0o644); err != nil {
			return err
		}
	}
	text := lines(
		when(os.Geteuid() == 0, "user root;"),
		"daemon off;",
		"pid nginx.pid;",
		"error_log stderr error;",
		fmt.Sprintf("worker_processes %d;", cores),
		"worker_rlimit_nofile 16384;",
		fmt.Sprintf("events { worker_connections %d; }", 8*most+64),
		"http {",
		"  access_log off;",
		"  # Apps write their answers from memory, at once.",
		"  sendfile off;",
		"  output_buffers 1 2m;",
		"  server_tokens off;",
		"  keepalive_timeout 1h;",
		fmt.Sprintf("  keepalive_requests %d;", forever),
		"  client_max_body_size 16m;",
		"  client_body_buffer_size 128k;",
		nginxTemp("  "),
		"  open_file_cache max=16 inactive=1h;",
		"  open_file_cache_valid 1h;",
		"  server {",
		fmt.Sprintf("    listen unix:%s backlog=4096;", o.socket),
		fmt.Sprintf("    listen %s backlog=4096;", o.tcp),
		"    root "+dir+";",
		fmt.Sprintf("    location = %s { return 200 %q; }", pathSmall, content(smallBytes)),
		fmt.Sprintf("    location = %s { add_header Cache-Control max-age=3600; add_header %s $request_id; }", pathCached, serialField),
		"    # The mirror makes it read the whole body before it answers.",
		fmt.Sprintf("    location = %s { mirror /nowhere; error_page 405 =200 /small; }", pathUpload),
		"    location = /nowhere { internal; return 204; }",
		"  }",
		"}",
	)
	name := filepath.Join(dir, "origin.conf")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		return err
	}
	o.what, o.files = "nginx", []File{{"origin.conf", text}}
	r, err := program{path: path, args: []string{"-p", dir, "-c", name, "-e", "stderr"}}.start(dir)
	if err != nil {
		return err
	}
	o.stop = r.stop
	return nil
}

// content is the body of an answer.
func content(size int) []byte {
	return []byte(strings.Repeat("usher bench 0123456789 abcdef ... ", size/34+1)[:size])
}

// own is the origin of a machine without nginx. It runs in this process.
func (o *origin) own() error {
	small, large := content(smallBytes), content(largeBytes)
	var serial atomic.Int64
	server := &fasthttp.Server{
		NoDefaultServerHeader: true, NoDefaultDate: true, MaxRequestBodySize: 16 << 20, Concurrency: 1 << 20,
		// A goroutine of its own outlives the server by as much.
		MaxIdleWorkerDuration: 100 * time.Millisecond,
		Handler: func(c *fasthttp.RequestCtx) {
			switch string(c.Path()) {
			case pathSmall, pathUpload:
				c.SetBody(small)
			case pathLarge:
				c.Response.SetBodyRaw(large)
			case pathCached:
				c.Response.Header.Set("Cache-Control", "max-age=3600")
				c.Response.Header.Set(serialField, strconv.FormatInt(serial.Add(1), 10))
				c.SetBody(small)
			default:
				c.SetStatusCode(fasthttp.StatusNotFound)
			}
		},
	}
	var open []net.Listener
	for network, address := range map[string]string{"unix": o.socket, "tcp": o.tcp} {
		l, err := net.Listen(network, address)
		if err != nil {
			for _, l := range open {
				_ = l.Close() // nobody has used it
			}
			return fmt.Errorf("origin: %w", err)
		}
		open = append(open, l)
	}
	var serving sync.WaitGroup
	for _, l := range open {
		serving.Go(func() { _ = server.Serve(l) }) // it ends with its listener
	}
	o.what = "this program itself (nginx is not installed, which would cost the machine less)"
	o.stop = func() {
		for _, l := range open {
			_ = l.Close() // nothing is lost
		}
		_ = server.Shutdown()
		serving.Wait()
	}
	return nil
}

// freePort is one that nothing listens on now.
func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}
