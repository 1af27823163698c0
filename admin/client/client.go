// Package client talks to the admin API of a running usher.
//
// Guarantees:
//
//   - A refusal comes back as the *admin.Error that the daemon answered with.
//   - When the daemon cannot be reached, or goes away before it has answered,
//     the error wraps [ErrUnreachable].
//   - Cancelling a context stops waiting. It never cancels what usher does.
//   - Nothing is sent twice. [Client.Follow] and [Client.Events] connect again
//     by themselves; they only read.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/usher-edge/usher/admin"
)

// Errors of the connection, as opposed to answers.
var (
	// ErrUnreachable is wrapped by all of them.
	ErrUnreachable = errors.New("usher cannot be reached")
	// ErrLost is wrapped too if the connection was made, so that usher may have
	// taken the request.
	ErrLost = fmt.Errorf("%w any more", ErrUnreachable)
)

// answerTimeout is how long the daemon may take for the head of an answer that
// is no stream.
const answerTimeout = 90 * time.Second

// Options of a [Client]. The zero value is for unix sockets.
type Options struct {
	// Token for a TCP address.
	Token string
	// Retry is the first pause before a stream is connected again; it doubles up
	// to ten times itself. 0 is 200ms.
	Retry time.Duration
}

// Client is safe for use by many goroutines.
type Client struct {
	addr    admin.Address
	base    string
	token   string
	retry   time.Duration
	silence time.Duration
	http    *http.Client
}

// New makes a client of the daemon at addr. It connects when it is first used.
func New(addr admin.Address, o Options) *Client {
	if o.Retry == 0 {
		o.Retry = 200 * time.Millisecond
	}
	t := &http.Transport{
		MaxIdleConnsPerHost:   2,
		IdleConnTimeout:       30 * time.Second,
		ExpectContinueTimeout: 10 * time.Second, // usher answers before it reads
		DisableCompression:    true,
	}
	c := &Client{
		addr: addr, base: addr.Scheme + "://" + addr.Host,
		token: o.Token, retry: o.Retry, silence: silence,
	}
	if addr.Scheme == "unix" {
		c.base = "http://localhost"
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", addr.Path)
		}
	}
	c.http = &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Address is where the client looks for the daemon.
func (c *Client) Address() admin.Address { return c.addr }

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call is one request.
type call struct {
	method string
	path   []string // segments after /v1, not yet escaped
	query  url.Values
	header http.Header
	body   io.Reader
}

func (c *Client) newRequest(ctx context.Context, k call) (*http.Request, error) {
	u := c.base + "/v1"
	for _, segment := range k.path {
		u += "/" + url.PathEscape(segment)
	}
	if len(k.query) > 0 {
		u += "?" + k.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, k.method, u, k.body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	for name, values := range k.header {
		req.Header[name] = values
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	req.Header.Set("User-Agent", "usher")
	return req, nil
}

// open sends k and returns the answer if it is a good one; the caller closes it.
func (c *Client) open(ctx context.Context, k call) (*http.Response, error) {
	req, err := c.newRequest(ctx, k)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, c.connError(err)
	}
	if res.StatusCode >= 300 {
		defer res.Body.Close()
		return nil, readProblem(res)
	}
	return res, nil
}

// connError names the address and drops the "Get http://localhost/…" that says
// nothing here.
func (c *Client) connError(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	kind := ErrLost
	var oe *net.OpError
	if errors.As(err, &oe) && oe.Op == "dial" {
		kind = ErrUnreachable
		err = oe.Err // the address is in the message already
	}
	return fmt.Errorf("%w at %s: %w", kind, c.addr, err)
}

// do sends k and reads the JSON answer into out, unless out is nil.
func (c *Client) do(ctx context.Context, k call, out any) (*http.Response, error) {
	wait, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	res, err := c.open(wait, k)
	if err != nil {
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w at %s: no answer within %s", ErrLost, c.addr, answerTimeout)
		}
		return nil, err
	}
	return res, c.decode(ctx, res, out)
}

func (c *Client) decode(ctx context.Context, res *http.Response, out any) error {
	defer res.Body.Close()
	if out == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		return nil
	}
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w at %s: read answer: %w", ErrLost, c.addr, err)
	}
	return nil
}

// problemBody is the part of a problem that becomes an *admin.Error.
type problemBody struct {
	Detail    string          `json:"detail"`
	Kind      admin.Kind      `json:"kind"`
	Code      string          `json:"code"`
	Hint      string          `json:"hint"`
	Operation string          `json:"operation"`
	Findings  []admin.Finding `json:"findings"`
}

func readProblem(res *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	ct, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	var p problemBody
	if err == nil && ct == "application/problem+json" {
		err = json.Unmarshal(body, &p)
	}
	if err != nil || p.Kind == "" {
		return &admin.Error{
			Kind:   admin.Internal,
			Detail: "the answer was " + res.Status + " and not from usher's admin api",
			Hint:   "check the admin address",
		}
	}
	return &admin.Error{
		Kind: p.Kind, Code: p.Code, Detail: p.Detail, Hint: p.Hint,
		Operation: p.Operation, Findings: p.Findings,
	}
}

func get(path ...string) call { return call{method: http.MethodGet, path: path} }

func post(req any, path ...string) (call, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return call{}, fmt.Errorf("encode request: %w", err)
	}
	return call{
		method: http.MethodPost, path: path, body: bytes.NewReader(body),
		header: http.Header{"Content-Type": {"application/json"}},
	}, nil
}

// isStream reports whether res carries server-sent events.
func isStream(res *http.Response) bool {
	return strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream")
}
