package http1

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// byByte reads a field line one byte at a time, by tables and means of its own.
func byByte(line string, limit int) (read string) {
	name := len(line)
	for i := range len(line) {
		if !strings.Contains("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", line[i:i+1]) {
			name = i
			break
		}
	}
	switch {
	case name > limit:
		return faultNameLong.request.Reason
	case name == len(line):
		return "more"
	case name == 0 || line[name] != ':':
		return nameFault([]byte(line), name).request.Reason
	}
	end := name + 1
	for end < len(line) && (line[end] == '\t' || line[end] >= ' ' && line[end] != 0x7f) {
		end++
	}
	switch rest := line[end:]; {
	case rest == "" || rest == "\r":
		return "more"
	case rest[0] == '\n':
		return faultBareLF.request.Reason
	case rest[0] != '\r':
		return faultControl.request.Reason
	case rest[1] != '\n':
		return faultBareCR.request.Reason
	}
	return fmt.Sprintf("%d %q %q %d", end+2, line[:name], strings.Trim(line[name+1:end], " \t"), slowName(line[:name]))
}

// slowName is what lookup finds, found by comparing with all.
func slowName(name string) Name {
	text := strings.ToLower(name)
	dashed := strings.ReplaceAll(text, "_", "-")
	class := NameOther
	for n, t := range nameText() {
		if t == dashed {
			class = Name(n)
		}
	}
	switch _, after, more := strings.Cut(dashed, "x-forwarded-"); {
	case class != NameOther && dashed == text:
		return class
	case class != NameOther:
		return NameAlias
	case more && after != "" && strings.HasPrefix(dashed, "x-forwarded-"):
		class = NameForwardedMore
	case dashed == "proxy" || len(dashed) > 6 && strings.HasPrefix(dashed, "proxy-"):
		class = NameProxy
	case len(dashed) > 6 && strings.HasPrefix(dashed, "usher-"):
		class = NameUsher
	}
	if class != NameOther && dashed != text {
		return NameAlias
	}
	return class
}

func readField(t *testing.T, line string, limit int) string {
	var f Field
	next, bad := f.read([]byte(line), 0, limit)
	switch {
	case bad != nil:
		return bad.request.Reason
	case next == 0:
		return "more"
	}
	if as := fmt.Sprintf("%s: %s\r\n", f.Name, f.Value); f.plain && as != line[:next] {
		t.Fatalf("%q is said to be plain", line)
	}
	return fmt.Sprintf("%d %q %q %d", next, f.Name, f.Value, f.Known)
}

func sameByByte(t *testing.T, line string, limit int) {
	if got, want := readField(t, line, limit), byByte(line, limit); got != want {
		t.Fatalf("%q, limit %d: %s, want %s", line, limit, got, want)
	}
}

// The words of a line end at other bytes of it in each of these.
func TestAFieldReadsTheSameByByte(t *testing.T) {
	names := []string{"", "a", "X-Forwarded-Port", "Proxy", "Proxy-A", "usher-generation", "Content_Length", "Sec-WebSocket-Protocols", strings.Repeat("n", 24)}
	for n := Accept; n < nameCount; n++ {
		names = append(names, string(titles[n].name()))
	}
	for _, name := range names {
		for _, more := range []string{"", strings.Repeat("Next: line\r\n", 3)} {
			line := name + ": a b\r\n" + more
			for at := range len(name) + len(": a b\r\n") {
				sameByByte(t, line[:at], DefaultName)
				sameByByte(t, line, at)
				b := []byte(line)
				for c := range 256 {
					b[at] = byte(c)
					sameByByte(t, string(b), DefaultName)
				}
			}
		}
	}
}

func TestAValueReadsTheSameByByte(t *testing.T) {
	for size := range 18 {
		for at := range size {
			for c := range 256 {
				value := []byte(strings.Repeat("\xff ~ ", 5)[:size])
				value[at] = byte(c)
				for _, blank := range []string{"", " \t"} {
					sameByByte(t, "Host:"+blank+string(value)+"\r\n", DefaultName)
					sameByByte(t, "A:"+blank+string(value)+blank+"\r\n\r\nGET / HTTP/1.1\r\n", DefaultName)
				}
			}
		}
	}
}

var strictHost = regexp.MustCompile(`^([0-9A-Za-z_-]+(?:\.[0-9A-Za-z_-]+)*\.?)(?::0*([1-9][0-9]*))?$`)

// slowHost is what authority finds, but that it knows no addresses.
func slowHost(b []byte) (n int, port uint16, ok bool) {
	m := strictHost.FindSubmatch(b)
	if m == nil {
		return 0, 0, false
	}
	labels := strings.Split(strings.TrimSuffix(string(m[1]), "."), ".")
	number, _ := strconv.Atoi(string(m[2]))
	fits := number <= 65535 && len(b)-len(m[1]) <= len(":65535")
	if strings.Trim(labels[len(labels)-1], "0123456789") == "" || !fits {
		return 0, 0, false
	}
	return len(m[1]), uint16(number), true
}

func TestAHostReadsTheSameByByte(t *testing.T) {
	for _, host := range []string{"a", "a.", "a:80", "app0.bench.localhost", "a_b.x-9.test.:65535", "123.test:00001", "a.9z"} {
		for at := range len(host) {
			for c := range 256 {
				for _, next := range []byte("x.-7_:/") {
					b := []byte(host)
					b[at] = byte(c)
					if at+1 < len(b) && next != 'x' {
						b[at+1] = next
					}
					n, port, ok := authority(b)
					if wantN, wantPort, want := slowHost(b); ok != want || ok && (n != wantN || port != wantPort) {
						t.Fatalf("%q: %d, %d, %t, want %d, %d, %t", b, n, port, ok, wantN, wantPort, want)
					}
				}
			}
		}
	}
}

func TestAMethodAndATargetReadTheSameByByte(t *testing.T) {
	for c := range 256 {
		for at := range 18 {
			b := bytes.Repeat([]byte("x"), 18)
			b[at] = byte(c)
			line := "/" + string(b) + " HTTP/1.1\r\n"
			if n, bad := targetEnd([]byte(line), 0, 0, DefaultTarget); (bad == nil && n == 1+len(b)) != (c > ' ' && c < 0x7f && c != '#' && c != '%') {
				t.Fatalf("%q: %d, %v", line, n, bad)
			}
			var r Request
			n, bad := r.requestLine([]byte(string(b)+" / HTTP/1.1\r\n"), &Limits{Target: DefaultTarget})
			if (bad == nil && n > 0) != strictName.Match(b) {
				t.Fatalf("%q: %d, %v", b, n, bad)
			}
		}
	}
}

var strictName = regexp.MustCompile(`^[!#$%&'*+\-.^_\x60|~0-9A-Za-z]+$`)
