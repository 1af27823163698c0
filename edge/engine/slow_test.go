package engine

import (
	"bytes"
	"errors"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A second parser of HTTP/1.1, simple and slow: it takes whole messages apart
// with regular expressions and shares no code with edge/http1. It reads what
// clients and apps send, and what usher makes of it.

// message is a request or an answer that was read whole.
type message struct {
	method, target, host string // of requests; target in origin-form
	status               int    // of answers
	fields               map[string][]string
	body                 []byte
	last                 bool // the connection ends with it
}

var (
	errPartial = errors.New("the bytes end within the message")
	errRefused = errors.New("the message is malformed")
	errMore    = errors.New("bytes follow the last message")
)

var (
	slowRequestLine = regexp.MustCompile(`^([!#$%&'*+.^_|~0-9A-Za-z\x60-]{1,64}) ((?:[!"$&-~]|%[0-9A-Fa-f]{2})+) HTTP/1\.([01])$`)
	slowForwards    = regexp.MustCompile(`^[0-9]{1,18}$`)
	slowStatusLine  = regexp.MustCompile(`^HTTP/1\.([01]) ([1-9][0-9]{2})(?: [\t -~\x{80}-\x{ff}]*)?$`)
	slowField       = regexp.MustCompile(`^([!#$%&'*+.^_|~0-9A-Za-z\x60-]{1,128}):[ \t]*((?:[!-~\x{80}-\x{ff}](?:[\t -~\x{80}-\x{ff}]*[!-~\x{80}-\x{ff}])?)?)[ \t]*$`)
	slowAbsolute    = regexp.MustCompile(`^(?i:https?)://([^/?@]*)([/?].*)?$`)
	slowHost        = regexp.MustCompile(`^([0-9A-Za-z._-]{1,254}|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?$`)
	slowLength      = regexp.MustCompile(`^[0-9]{1,18}$`)
	slowChunk       = regexp.MustCompile(`^([0-9A-Fa-f]{1,16})((?:;[^\r\n]*)?)$`)
	slowExtensions  = regexp.MustCompile(`^(?:; *[!#$%&'*+.^_|~0-9A-Za-z\x60-][!#$%&'*+.^_|~0-9A-Za-z\x60 -]*(?:= *(?:[!#$%&'*+.^_|~0-9A-Za-z\x60-][!#$%&'*+.^_|~0-9A-Za-z\x60 -]*|"(?:[^"\\]|\\.)*" *))?)*$`)
)

// latin1 makes each byte a rune, because regexp reads UTF-8.
func latin1(b []byte) string {
	runes := make([]rune, len(b))
	for i, c := range b {
		runes[i] = rune(c)
	}
	return string(runes)
}

// readHead takes a head off b: its first line and fields. One that usher has
// written may be larger by what it adds.
func readHead(b []byte, ours bool) (first string, fields [][2]string, rest []byte, err error) {
	head, rest, ok := bytes.Cut(b, []byte("\r\n\r\n"))
	if !ok {
		return "", nil, nil, errPartial
	}
	lines := strings.Split(latin1(head), "\r\n")
	if !ours && (len(head)+4 > 32<<10 || len(lines) > 101) {
		return "", nil, nil, errRefused
	}
	for _, l := range lines[1:] {
		m := slowField.FindStringSubmatch(l)
		if m == nil {
			return "", nil, nil, errRefused
		}
		fields = append(fields, [2]string{strings.ToLower(m[1]), m[2]})
	}
	return lines[0], fields, rest, nil
}

// readFraming finds how long the body is: digits, "chunked", or "".
func readFraming(fields map[string][]string, minor string) (string, error) {
	cl, te := fields["content-length"], fields["transfer-encoding"]
	switch {
	case len(cl)+len(te) == 0:
		return "", nil
	case len(cl)+len(te) > 1:
		return "", errRefused
	case len(te) == 1 && (minor == "0" || !strings.EqualFold(te[0], "chunked")):
		return "", errRefused
	case len(te) == 1:
		return "chunked", nil
	case !slowLength.MatchString(cl[0]):
		return "", errRefused
	}
	return cl[0], nil
}

// options are the elements of Connection, in lower case.
func options(fields map[string][]string) (all []string) {
	for _, o := range strings.Split(strings.Join(fields["connection"], ","), ",") {
		if o = strings.ToLower(strings.Trim(o, " \t")); o != "" {
			all = append(all, o)
		}
	}
	return all
}

func ends(fields map[string][]string, minor string) bool {
	o := options(fields)
	return slices.Contains(o, "close") || minor == "0" && !slices.Contains(o, "keep-alive")
}

func byName(fields [][2]string) map[string][]string {
	m := map[string][]string{}
	for _, f := range fields {
		m[f[0]] = append(m[f[0]], f[1])
	}
	return m
}

// readRequest takes a request off b. One that usher has written may have an
// empty Host, where a client of HTTP/1.0 sent none (RFC 9112 3.2).
func readRequest(b []byte, ours bool) (m message, rest []byte, err error) {
	b = bytes.TrimPrefix(b, []byte("\r\n"))
	first, fields, rest, err := readHead(b, ours)
	if err != nil {
		return m, nil, err
	}
	line := slowRequestLine.FindStringSubmatch(first)
	if line == nil || strings.Contains(line[2], "%00") || len(line[2]) > 8<<10 || line[1] == "CONNECT" || line[1] == "TRACE" {
		return m, nil, errRefused
	}
	m = message{method: line[1], target: line[2], fields: byName(fields)}
	if h := m.fields["host"]; ours && len(h) == 1 && h[0] == "" {
		m.fields["host"], line[3] = nil, "0"
	}
	if err := m.readHost(line[3]); err != nil {
		return m, nil, err
	}
	length, err := readFraming(m.fields, line[3])
	if err != nil {
		return m, nil, err
	}
	m.last = ends(m.fields, line[3]) && !ours
	if e := m.fields["expect"]; len(e) > 1 || len(e) == 1 && !strings.EqualFold(e[0], "100-continue") {
		return m, nil, errRefused
	}
	if n := m.fields["max-forwards"]; m.method == "OPTIONS" && (len(n) > 1 || len(n) == 1 && !slowForwards.MatchString(n[0])) {
		return m, nil, errRefused
	}
	if len(options(m.fields)) > 64 {
		return m, nil, errRefused
	}
	if length == "" {
		length = "0"
	}
	rest, err = m.readBody(rest, length)
	return m, rest, err
}

// readHost checks Host and target together and brings the target into
// origin-form.
func (m *message) readHost(minor string) error {
	hosts := m.fields["host"]
	if len(hosts) > 1 || len(hosts) == 0 && minor == "1" || len(hosts) == 1 && !isHost(hosts[0]) {
		return errRefused
	}
	if len(hosts) == 1 {
		m.host = hosts[0]
	}
	switch {
	case strings.HasPrefix(m.target, "/"):
		return nil
	case m.target == "*":
		if m.method != "OPTIONS" {
			return errRefused
		}
		return nil
	}
	a := slowAbsolute.FindStringSubmatch(m.target)
	if a == nil || !isHost(a[1]) || m.host != "" && !strings.EqualFold(m.host, a[1]) {
		return errRefused
	}
	m.host, m.target = a[1], a[2]
	switch {
	case m.target == "" && m.method == "OPTIONS":
		m.target = "*"
	case !strings.HasPrefix(m.target, "/"):
		m.target = "/" + m.target
	}
	return nil
}

func isHost(s string) bool {
	m := slowHost.FindStringSubmatch(s)
	if m == nil {
		return false
	}
	if m[2] != "" {
		if p, err := strconv.Atoi(m[2]); err != nil || p < 1 || p > 65535 {
			return false
		}
	}
	if v6, ok := strings.CutPrefix(m[1], "["); ok {
		a, err := netip.ParseAddr(strings.TrimSuffix(v6, "]"))
		return err == nil && a.Is6()
	}
	labels := strings.Split(strings.TrimSuffix(m[1], "."), ".")
	if slices.Contains(labels, "") {
		return false
	}
	if strings.Trim(labels[len(labels)-1], "0123456789") == "" {
		a, err := netip.ParseAddr(m[1])
		return err == nil && a.Is4()
	}
	return true
}

// readBody takes a body of that length off b.
func (m *message) readBody(b []byte, length string) (rest []byte, err error) {
	if length == "chunked" {
		return m.readChunks(b)
	}
	n, err := strconv.Atoi(length)
	if err != nil || n > len(b) {
		return nil, errPartial
	}
	m.body = b[:n]
	return b[n:], nil
}

// readChunks reads a chunked body. What is malformed may be found where the
// bytes end within a line, or a line later: both are no message.
func (m *message) readChunks(b []byte) (rest []byte, err error) {
	allowance := 4 << 10
	for {
		line, after, ok := bytes.Cut(b, []byte("\r\n"))
		if !ok {
			return nil, errPartial
		}
		c := slowChunk.FindStringSubmatch(latin1(line))
		if c == nil || !slowExtensions.MatchString(c[2]) || strings.ContainsFunc(c[2], isControl) {
			return nil, errRefused
		}
		if allowance -= len(line) - len(c[1]); allowance < 0 {
			return nil, errRefused
		}
		n, err := strconv.ParseUint(c[1], 16, 63)
		if err != nil {
			return nil, errRefused
		}
		if n == 0 {
			return readTrailer(after)
		}
		if n+2 > uint64(len(after)) {
			return nil, errPartial
		}
		if string(after[n:n+2]) != "\r\n" {
			return nil, errRefused
		}
		m.body = append(m.body, after[:n]...)
		allowance = min(4<<10, allowance+int(n))
		b = after[n+2:]
	}
}

func isControl(r rune) bool { return r < 0x20 || r == 0x7f }

func readTrailer(b []byte) (rest []byte, err error) {
	if rest, ok := bytes.CutPrefix(b, []byte("\r\n")); ok {
		return rest, nil
	}
	section, rest, ok := bytes.Cut(b, []byte("\r\n\r\n"))
	if !ok {
		return nil, errPartial
	}
	lines := strings.Split(latin1(section), "\r\n")
	if len(lines) > 32 || len(section) > 8<<10-4 {
		return nil, errRefused
	}
	for _, l := range lines {
		f := slowField.FindStringSubmatch(l)
		if f == nil || slices.Contains([]string{"content-length", "transfer-encoding", "host"}, strings.ToLower(f[1])) {
			return nil, errRefused
		}
	}
	return rest, nil
}

// readRequests reads a connection's requests up to the last, or to what is
// none.
func readRequests(b []byte, ours bool) (all []message, err error) {
	for len(b) > 0 {
		var m message
		if m, b, err = readRequest(b, ours); err != nil {
			return all, err
		}
		if all = append(all, m); m.last {
			return all, nil
		}
	}
	return all, nil
}

// readAnswer reads all bytes of a connection that ended neatly as the answer to
// one request, written by an app or by usher; interim ones before it are skipped. interim is how many.
func readAnswer(b []byte, method string, ours bool) (m message, interim int, err error) {
	for {
		first, fields, rest, err := readHead(b, ours)
		if err != nil {
			return m, interim, err
		}
		line := slowStatusLine.FindStringSubmatch(first)
		if line == nil {
			return m, interim, errRefused
		}
		m = message{fields: byName(fields)}
		m.status, _ = strconv.Atoi(line[2])
		length, err := readFraming(m.fields, line[1])
		if err != nil || m.status == 101 || len(options(m.fields)) > 64 {
			return m, interim, errRefused
		}
		if m.status < 200 {
			interim++
			b = rest
			continue
		}
		switch {
		case method == "HEAD" || m.status == 204 || m.status == 304:
		case length == "":
			m.body, rest = rest, nil
		default:
			if rest, err = m.readBody(rest, length); err != nil {
				return m, interim, err
			}
		}
		if len(rest) > 0 {
			return m, interim, errMore
		}
		return m, interim, nil
	}
}
