package http1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"
)

// unframe runs a body through f in pieces of step bytes, as an engine would,
// and returns the data, what is left over, and how it ended. It must not matter
// whether the chunks of a piece are taken one by one or together.
func unframe(f *Framer, wire []byte, step int) (data, rest []byte, done bool, err error) {
	g := *f
	g.section, g.fields = nil, nil
	together, left, all, failed := unframeBy(&g, g.Gather, bytes.Clone(wire), step)
	data, rest, done, err = unframeBy(f, f.Next, wire, step)
	if all != done || failed != err || done && (!bytes.Equal(together, data) || !bytes.Equal(left, rest)) {
		panic(fmt.Sprintf("%.200q in pieces of %d: together %.200q %t %v, one by one %.200q %t %v", wire, step, together, all, failed, data, done, err))
	}
	return data, rest, done, err
}

func unframeBy(f *Framer, next func([]byte) ([]byte, int, bool, error), wire []byte, step int) (data, rest []byte, done bool, err error) {
	fed := 0
	for {
		fed = min(fed+step, len(wire))
		for {
			d, n, done, err := next(wire[:fed])
			if err != nil {
				return data, nil, false, err
			}
			data = append(data, d...)
			wire, fed = wire[n:], fed-n
			if done {
				return data, wire, true, nil
			}
			if n == 0 || fed == 0 {
				break
			}
		}
		if fed == len(wire) {
			return data, wire, false, nil
		}
	}
}

func TestChunkedBodiesAreReadInAnyPieces(t *testing.T) {
	const rest = "GET / HTTP/1.1"
	cases := []struct{ rfc, name, wire, want string }{
		{"9112 7.1", "one chunk", "5\r\nhello\r\n0\r\n\r\n", "hello"},
		{"9112 7.1", "two chunks", "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", "hello world"},
		{"9112 7.1", "empty", "0\r\n\r\n", ""},
		{"9112 7.1", "upper-case size", "A\r\n0123456789\r\n0\r\n\r\n", "0123456789"},
		{"9112 7.1", "leading zeros", "0000000000000005\r\nhello\r\n000\r\n\r\n", "hello"},
		{"9112 7.1.1", "extensions with blanks", "5; a = b ; c\r\nhello\r\n0\r\n\r\n", "hello"},
		{"9112 7.1.1", "quoted extension", "5;a=\"b;\\\"c\\\\\";d\r\nhello\r\n0\r\n\r\n", "hello"},
		{"9112 7.1.1", "4 KiB of extensions", "5;" + strings.Repeat("a", 4096-1) + "\r\nhello\r\n0\r\n\r\n", "hello"},
		{"9112 7.1.2", "trailer", "5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-B:\r\n\r\n", "hello"},
		{"9112 7.1", "CRLF as data", "4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n"},
	}
	for _, c := range cases {
		for _, step := range []int{1, 2, 3, 7, 1 << 20} {
			t.Run(fmt.Sprintf("%s/%s/%d", c.rfc, c.name, step), func(t *testing.T) {
				var f Framer
				f.Reset(Chunked)
				data, left, done, err := unframe(&f, []byte(c.wire+rest), step)
				if err != nil || !done || !f.Done() || string(data) != c.want || string(left) != rest {
					t.Errorf("data %q, left %q, done %t, %v", data, left, done, err)
				}
				for n := range c.wire {
					f.Reset(Chunked)
					if _, _, done, err := unframe(&f, []byte(c.wire[:n]), step); done || err != nil || f.Done() {
						t.Fatalf("cut at %d: done %t, %v", n, done, err)
					}
				}
			})
		}
	}
}

func TestChunkedBodiesThatAreNotStrictAreRefused(t *testing.T) {
	big := strings.Repeat("a", maxExtension)
	cases := []struct{ rfc, name, wire string }{
		{"9112 7.1", "no size", "\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1", "signed size", "+5\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1", "negative size", "-5\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1", "0x size", "0x5\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1", "blank before the size", " 5\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1", "blank after the size", "5 \r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1", "tab after the size", "5\t\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1", "blank before an extension", "5 ;a\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1", "letters in the size", "5g\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1", "underscore in the size", "1_0\r\n"},
		{"9112 7.1", "17 digits", "00000000000000005\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1", "size over an int64", "8000000000000000\r\n"},
		{"9112 7.1", "size over 64 bits", "FFFFFFFFFFFFFFFFF\r\n"},
		{"9112 7.1", "LF after the size", "5\nhello\r\n0\r\n\r\n"},
		{"9112 7.1", "CR without LF after the size", "5\rhello\r\n0\r\n\r\n"},
		{"9112 7.1", "LF after the data", "5\r\nhello\n0\r\n\r\n"},
		{"9112 7.1", "CR without LF after the data", "5\r\nhello\r0\r\n\r\n"},
		{"9112 7.1", "data too long", "5\r\nhello!\r\n0\r\n\r\n"},
		{"9112 7.1", "data too short", "6\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1", "no end of data", "5\r\nhello0\r\n\r\n"},
		{"9112 7.1", "two other bytes at the end of data", "5\r\nhelloXX0\r\n\r\n"},
		{"9112 7.1", "LF LF at the end of data", "5\r\nhello\n\n0\r\n\r\n"},
		{"9112 7.1", "no size, and that is all", "\r\n\r\n"},
		{"9112 7.1", "CR and another byte after the size", "5\rXhello\r\n0\r\n\r\n"},
		{"9112 7.1", "another byte and LF at the end", "5\r\nhello\r\n0\r\n\x00\n"},
		{"9112 7.1", "LF ends the body", "5\r\nhello\r\n0\r\n\n"},
		{"9112 7.1", "CR without LF at the end", "5\r\nhello\r\n0\r\n\rX"},
		{"9112 7.1.1", "LF in an extension", "5;\nhello\r\n0\r\n\r\n"},
		{"9112 7.1.1", "LF after an extension", "5;a\nhello\r\n0\r\n\r\n"},
		{"9112 7.1.1", "CR in an extension", "5;a\rX\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1.1", "control in an extension", "5;a\x01\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1.1", "tab in an extension", "5;\ta\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1.1", "CR inside quotes", "5;a=\"b\r\n\"\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1.1", "CR alone inside quotes", "5;a=\"b\rc\"\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1.1", "escaped CR alone", "5;a=\"b\\\rc\"\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1.1", "control inside quotes", "5;a=\"\x01\"\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1.1", "tab inside quotes", "5;a=\"\t\"\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1.1", "DEL inside quotes", "5;a=\"\x7f\"\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1.1", "LF inside quotes", "5;a=\"b\n\"\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1.1", "escaped CR", "5;a=\"b\\\r\n\"\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1.1", "extension without a name", "5;\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1.1", "value without a name", "5;=a\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1.1", "name without its value", "5;a=\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1.1", "something after a quoted value", "5;a=\"b\"c\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1.1", "over 4 KiB of extensions", "5;" + big + "\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1.1", "over 4 KiB of extensions in small chunks", strings.Repeat("1;aaaaaaaaaaaaaaa\r\nx\r\n", 400) + "0\r\n\r\n"},
		{"9112 7.1.1", "over 4 KiB of quotes", "5;a=\"" + big + "\"\r\nhello\r\n0\r\n\r\n"},
		{"9110 6.5", "trailer that is no field", "0\r\nX\r\n\r\n"},
		{"9110 6.5", "trailer with a folded line", "0\r\nX: a\r\n b\r\n\r\n"},
		{"9110 6.5", "trailer with LF", "0\r\nX: a\n\r\n\r\n"},
		{"9110 6.5", "trailer with a control", "0\r\nX: a\x00\r\n\r\n"},
		{"9110 6.5.1", "Content-Length as trailer", "0\r\nContent-Length: 5\r\n\r\n"},
		{"9110 6.5.1", "Transfer-Encoding as trailer", "0\r\ntransfer-encoding: chunked\r\n\r\n"},
		{"9110 6.5.1", "Host as trailer", "0\r\nHost: b.test\r\n\r\n"},
		{"9110 6.5", "trailer over 8 KiB", "0\r\nX: " + strings.Repeat("a", maxTrailer) + "\r\n\r\n"},
		{"9110 6.5", "33 trailer fields", "0\r\n" + strings.Repeat("X: a\r\n", 33) + "\r\n"},
	}
	for _, c := range cases {
		for _, step := range []int{1, 5, 1 << 20} {
			t.Run(fmt.Sprintf("%s/%s/%d", c.rfc, c.name, step), func(t *testing.T) {
				var f Framer
				f.Reset(Chunked)
				_, _, done, err := unframe(&f, []byte(c.wire), step)
				var e *Error
				if done || !errors.As(err, &e) || e.Status != 400 {
					t.Errorf("done %t, %v", done, err)
				}
			})
		}
	}
}

func TestExtensionsMayGoOnAsLongAsDataDoes(t *testing.T) {
	chunk := "40;sig=" + strings.Repeat("a", 60) + "\r\n" + strings.Repeat("x", 0x40) + "\r\n"
	var f Framer
	f.Reset(Chunked)
	data, _, done, err := unframe(&f, []byte(strings.Repeat(chunk, 1000)+"0\r\n\r\n"), 1000)
	if len(data) != 64000 || !done || err != nil {
		t.Errorf("%d bytes, done %t, %v", len(data), done, err)
	}
}

func TestTrailersThatAreNoTrailersAreDropped(t *testing.T) {
	var f Framer
	for _, step := range []int{1, 1 << 20} {
		f.Reset(Chunked)
		wire := "1\r\nx\r\n0\r\nX-Sum: \t a b \r\nAuthorization: x\r\nset-cookie: a\r\nx-forwarded-for: 1\r\nContent_Length: 1\r\n" +
			"Connection: close\r\nServer-Timing: a\r\nProxy-X: 1\r\nUsher-Generation: 3\r\nContent-Type: x\r\n\r\n"
		_, _, done, err := unframe(&f, []byte(wire), step)
		if !done || err != nil {
			t.Fatalf("done %t, %v", done, err)
		}
		var got []string
		for _, x := range f.Trailer() {
			got = append(got, string(x.Name)+"="+string(x.Value))
		}
		if want := []string{"X-Sum=a b", "Server-Timing=a"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if f.Reset(Chunked); len(f.Trailer()) != 0 {
		t.Error("trailers survive Reset")
	}
}

func TestBodiesOfKnownLengthEndThere(t *testing.T) {
	for _, step := range []int{1, 3, 100} {
		var f Framer
		f.Reset(5)
		data, rest, done, err := unframe(&f, []byte("hello world"), step)
		if string(data) != "hello" || string(rest) != " world" || !done || err != nil || !f.Done() {
			t.Errorf("step %d: %q, %q, %t, %v", step, data, rest, done, err)
		}
		f.Reset(12)
		if data, _, done, _ = unframe(&f, []byte("hello world"), step); len(data) != 11 || done || f.Done() {
			t.Errorf("step %d: a short body ends after %d bytes, done %t", step, len(data), done)
		}
	}
	var f Framer
	f.Reset(0)
	if data, n, done, err := f.Next([]byte("x")); len(data) != 0 || n != 0 || !done || err != nil {
		t.Errorf("empty body: %q, %d, %t, %v", data, n, done, err)
	}
}

func TestBodiesUntilCloseNeverEndByThemselves(t *testing.T) {
	var f Framer
	f.Reset(UntilClose)
	data, rest, done, err := unframe(&f, []byte("0\r\n\r\nhello"), 4)
	if string(data) != "0\r\n\r\nhello" || len(rest) != 0 || done || err != nil || f.Done() {
		t.Errorf("%q, %q, %t, %v", data, rest, done, err)
	}
}

func TestWhatIsAheadIsWhatComesInOnePiece(t *testing.T) {
	for name, c := range map[string]struct {
		length int64
		read   string
		want   int64
	}{
		"a length":             {100, "", 100},
		"the rest of it":       {100, "0123456789", 90},
		"all of it":            {3, "abc", 0},
		"no body":              {0, "", 0},
		"until close":          {UntilClose, "abc", math.MaxInt64},
		"no chunk yet":         {Chunked, "", 0},
		"within a chunk size":  {Chunked, "ff", 0},
		"a chunk":              {Chunked, "ff\r\n", 255},
		"the rest of a chunk":  {Chunked, "ff\r\nabc", 252},
		"between two chunks":   {Chunked, "3\r\nabc\r\n", 0},
		"the end of a chunked": {Chunked, "3\r\nabc\r\n0\r\n\r\n", 0},
	} {
		var f Framer
		f.Reset(c.length)
		if _, _, _, err := unframe(&f, []byte(c.read), 100); err != nil {
			t.Fatal(err)
		}
		if n := f.Ahead(); n != c.want {
			t.Errorf("%s: %d, want %d", name, n, c.want)
		}
	}
}

func TestDataPointsIntoTheBuffer(t *testing.T) {
	buf := []byte("5\r\nhello\r\n3\r\nabc\r\n0\r\n\r\n")
	var f Framer
	f.Reset(Chunked)
	data, n, done, err := f.Next(buf)
	if err != nil || done || &data[0] != &buf[3] || string(data) != "hello" {
		t.Fatalf("%q, %d, %t, %v", data, n, done, err)
	}
	if data, _, done, err = f.Next(buf[n:]); err != nil || !done || &data[0] != &buf[13] {
		t.Fatalf("the last piece does not come with the end: %q, %t, %v", data, done, err)
	}
}

func TestChunksThatCameTogetherAreOnePiece(t *testing.T) {
	buf := []byte("5\r\nhello\r\n1;x=y\r\n \r\n5\r\nworld\r\n0\r\nX: y\r\n\r\nrest")
	var f Framer
	f.Reset(Chunked)
	data, n, done, err := f.Gather(buf)
	if err != nil || !done || string(data) != "hello world" || &data[0] != &buf[3] || string(buf[n:]) != "rest" {
		t.Fatalf("%q, %q is left, %t, %v", data, buf[n:], done, err)
	}
	if trailer := f.Trailer(); len(trailer) != 1 || string(trailer[0].Value) != "y" {
		t.Errorf("%+v", trailer)
	}
	f.Reset(Chunked)
	if data, _, done, err = f.Gather([]byte("5\r\nhello\r\nzz\r\n")); err == nil || done || data != nil {
		t.Errorf("%q, %t, %v", data, done, err)
	}
}

func TestLargeChunksAreNotMoved(t *testing.T) {
	large := strings.Repeat("x", mostMoved+1)
	buf := AppendChunk(AppendChunk(AppendChunk(nil, []byte("a")), []byte("b")), []byte(large))
	buf = AppendLastChunk(AppendChunk(buf, []byte("c")), nil)
	var f Framer
	f.Reset(Chunked)
	data, n, done, err := f.Gather(buf)
	if string(data) != "ab" || done || err != nil {
		t.Fatalf("%.20q, %t, %v", data, done, err)
	}
	first := &buf[n]
	if data, _, done, err = f.Gather(buf[n:]); string(data) != large+"c" || &data[0] != first || !done || err != nil {
		t.Fatalf("%.20q, %d bytes, %t, %v", data, len(data), done, err)
	}
}

func TestWrittenChunksAreReadBack(t *testing.T) {
	want := strings.Repeat("0123456789abcdef", 300)
	var wire []byte
	for i, sizes := 0, []int{1, 15, 16, 17, 255, 256, 4095}; i < len(want); {
		n := min(sizes[i%len(sizes)], len(want)-i)
		wire = AppendChunk(wire, []byte(want[i:i+n]))
		wire = AppendChunk(wire, nil)
		i += n
	}
	wire = AppendLastChunk(wire, []Field{{Name: []byte("X-A"), Value: []byte("b")}, {Name: []byte("X-C")}})
	got, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(wire)))
	if err != nil || string(got) != want {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if !strings.HasSuffix(string(wire), "\r\n0\r\nX-A: b\r\nX-C: \r\n\r\n") {
		t.Errorf("end %q", wire[len(wire)-30:])
	}
	var f Framer
	f.Reset(Chunked)
	if got, _, done, err := unframe(&f, wire, 100); !done || err != nil || string(got) != want || len(f.Trailer()) != 2 {
		t.Errorf("own framer: %d bytes, %t, %v, %d trailers", len(got), done, err, len(f.Trailer()))
	}
}
