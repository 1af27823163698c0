package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// writeJSON answers with v. Status documents are never cached: they are true
// for an instant.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	setStill(w)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that left is no error of ours
	return nil
}

func setStill(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(stallTimeout))
}

// writeProblem answers with problem details (RFC 9457).
func writeProblem(w http.ResponseWriter, err error) {
	p := problemOf(err)
	if rec, ok := w.(*recorder); ok {
		rec.code, rec.cause = p.Code, err
	}
	body, _ := json.Marshal(p) // strings and numbers only
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	if p.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="usher admin"`)
	}
	setStill(w)
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n'))
}

// readJSON decodes the one JSON object in the body into v; an empty body leaves
// v as it is. The content type is required even then: a page in a browser
// cannot send it across origins without being asked first.
func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	ct, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if ct != "application/json" {
		return &Error{
			Kind: BadMedia, Detail: "a change is sent as application/json",
			Hint: "set Content-Type: application/json",
		}
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer func() { _ = rc.SetReadDeadline(time.Time{}) }()

	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxJSON))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		_, err = dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = errors.New("data after the json object")
		}
	}
	return bodyError(err)
}

func bodyError(err error) error {
	var tooBig *http.MaxBytesError
	if errors.As(err, &tooBig) {
		return &Error{
			Kind: TooLarge, Code: "body-too-large", Cause: err,
			Detail: fmt.Sprintf("the request body is larger than %d bytes", tooBig.Limit),
			Hint:   "send artifacts to /v1/apps/{app}/builds",
		}
	}
	return &Error{
		Kind: Invalid, Code: "body-invalid", Cause: err,
		Detail: "the request body cannot be read: " + strings.TrimPrefix(err.Error(), "json: "),
		Hint:   "see admin/README.md for the fields of each request",
	}
}

// ifMatch reads the precondition of a change (RFC 9110 section 13.1.1). The
// wildcard asks only that the app exists, which every change does anyway.
func ifMatch(r *http.Request) (string, error) {
	fields := r.Header.Values("If-Match")
	if len(fields) == 0 {
		return "", nil
	}
	tag := strings.TrimSpace(strings.Join(fields, ","))
	if tag == "*" {
		return "", nil
	}
	if strings.HasPrefix(tag, "W/") {
		return "", &Error{
			Kind: Precondition, Code: CodeVersionMismatch,
			Detail: "a weak entity tag never matches", Hint: "send the ETag as it was received",
		}
	}
	version, ok := unquote(tag)
	if !ok {
		return "", &Error{
			Kind: Invalid, Code: "if-match-invalid",
			Detail: "If-Match is not one quoted entity tag", Hint: `send it as If-Match: "version"`,
		}
	}
	return version, nil
}

func unquote(tag string) (string, bool) {
	if len(tag) < 3 || tag[0] != '"' || tag[len(tag)-1] != '"' {
		return "", false
	}
	v := tag[1 : len(tag)-1]
	return v, !strings.ContainsAny(v, "\", ")
}

// queryUint reads a number from least on; one that is not given is otherwise, which
// may be below that.
func queryUint(r *http.Request, name string, least, otherwise uint64) (uint64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || n < least {
		return 0, &Error{
			Kind: Invalid, Code: "query-invalid", Cause: err,
			Detail: name + " is not a whole number from " + strconv.FormatUint(least, 10) + " to 2^63-1: " + strconv.Quote(text),
		}
	}
	return n, nil
}

func queryBool(r *http.Request, name string) (bool, error) {
	q := r.URL.Query()
	if !q.Has(name) {
		return false, nil
	}
	switch text := q.Get(name); text {
	case "", "1", "true":
		return true, nil
	case "0", "false":
		return false, nil
	default:
		return false, &Error{
			Kind: Invalid, Code: "query-invalid",
			Detail: name + " is neither true nor false: " + strconv.Quote(text),
		}
	}
}
