package engine

import (
	"strconv"
	"time"

	"github.com/usher-edge/usher/edge"
)

// refuse ends the request with an answer of usher's own, as its cause demands.
// Nothing of another answer must have been sent.
func (c *conn) refuse(cause edge.Cause) {
	if cause.Ending() == edge.Gone {
		c.finish(edge.Result{Ending: edge.Gone, Cause: cause, BytesIn: c.result(cause).BytesIn})
		c.abort()
		return
	}
	o := c.refusal(cause)
	c.endOwn(&o, c.write(c.mem.out))
}

// own is an answer of usher's own that is in m.out.
type own struct {
	res  edge.Result
	head int // how long its head is
}

// refusal builds the answer of refuse.
func (c *conn) refusal(cause edge.Cause) own {
	if !c.beginsOwn() {
		cause = c.whyCut()
	}
	v := cause.Verdict()
	c.settleBody()
	page := c.ownPage(cause)
	m := c.mem
	m.out = appendStatus(m.text(ownHead+len(page.Body)), v.Status)
	m.out = appendDate(m.out)
	m.out = append(m.out, "Content-Type: "...)
	m.out = append(m.out, page.Type...)
	m.out = append(m.out, "\r\nCache-Control: no-store\r\n"...)
	if after := v.RetryAfter(c.lane.RetryAfter()); after > 0 {
		m.out = append(m.out, "Retry-After: "...)
		m.out = strconv.AppendInt(m.out, int64(after), 10)
		m.out = append(m.out, "\r\n"...)
	}
	if v.Error != "" {
		m.out = append(m.out, "Proxy-Status: usher; error="...)
		m.out = append(m.out, v.Error...)
		m.out = append(m.out, "\r\n"...)
	}
	if v.Status == 405 {
		m.out = append(m.out, "Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n"...)
	}
	return c.own(page.Body, edge.Result{Ending: cause.Ending(), Cause: cause, Status: v.Status, BytesIn: c.result(cause).BytesIn})
}

// ownPage is the body that tells a cause.
func (c *conn) ownPage(cause edge.Cause) edge.Page {
	if cause == edge.CauseMaintenance {
		if page, ok := c.lane.Maintenance(); ok {
			return page
		}
	}
	return edge.Page{Type: "text/plain; charset=utf-8", Body: []byte(cause.Verdict().Text + "\n")}
}

// rejectHead answers a request whose head is not to be had: with the answer,
// the connection ends, as nobody knows where the next request would begin.
func (c *conn) rejectHead(cause edge.Cause) {
	if c.lane == nil {
		c.lane = c.srv.opt.Edge.Open(c)
	}
	c.lane.Begin(time.Now())
	c.lane.Client = c.ip
	c.mem.req.Reset()
	c.mem.seal()
	c.keep, c.mem.try = false, attempt{}
	c.refuse(cause)
	c.linger = true
}

// answerOptions answers OPTIONS *, which is about the server (RFC 9110 §9.3.7), and
// one whose last recipient the server is (§7.6.2).
func (c *conn) answerOptions() {
	c.beginsOwn() // no drain cuts it, and Shutdown lets it be for a moment
	c.settleBody()
	c.mem.out = appendDate(appendStatus(c.mem.out, 200))
	o := c.own(nil, edge.Result{Ending: edge.Own, Status: 200})
	c.endOwn(&o, c.write(c.mem.out))
}

// own completes the head in m.out, and puts the body behind it.
func (c *conn) own(body []byte, res edge.Result) own {
	m := c.mem
	m.out = append(m.out, "Content-Length: "...)
	m.out = strconv.AppendInt(m.out, int64(len(body)), 10)
	m.out = append(m.out, "\r\n"...)
	m.out = c.appendConnection(m.out)
	o := own{res: res, head: len(m.out)}
	if string(m.req.Method) != "HEAD" {
		m.out = append(m.out, body...)
	}
	return o
}

// endOwn ends the request, whose answer the client has, or as far as failed says.
func (c *conn) endOwn(o *own, failed edge.Cause) {
	took, res := len(c.mem.out), o.res
	if failed != edge.CauseNone {
		took = c.mem.took
		res.Ending, res.Cause = edge.Gone, failed
	}
	res.Status, res.BytesOut = sentOf(res.Status, took, o.head)
	if c.finish(res) && failed != edge.CauseNone {
		c.abort()
	}
}

// sentOf is what the client was sent of an answer of which so many bytes went out:
// no status without a whole head.
func sentOf(status, took, head int) (sent int, body int64) {
	if took < head {
		return 0, 0
	}
	return status, int64(took - head)
}

// hit answers from the cache.
func (c *conn) hit(f *edge.Found) {
	if !c.begins() {
		c.refuse(c.whyCut())
		return
	}
	c.hitHead(f)
	took, failed := c.writeLong(c.mem.out, f.Body)
	c.endHit(f, took, failed)
}

// hitHead builds the head of a page of the cache in m.out.
func (c *conn) hitHead(f *edge.Found) {
	c.settleBody()
	m := c.mem
	m.out = appendStatus(m.text(ownHead+len(f.Fields)+len(f.Extra)), f.Status)
	m.out = append(m.out, f.Fields...)
	m.out = append(m.out, f.Extra...)
	m.out = append(m.out, "Age: "...)
	m.out = strconv.AppendInt(m.out, int64(f.Age/time.Second), 10)
	m.out = append(m.out, "\r\nCache-Status: usher; hit; ttl="...)
	m.out = strconv.AppendInt(m.out, int64(f.TTL/time.Second), 10)
	m.out = append(m.out, "\r\nVia: 1.1 "...)
	m.out = append(m.out, c.viaName()...)
	m.out = append(m.out, "\r\n"...)
	if f.Length >= 0 {
		m.out = append(m.out, "Content-Length: "...)
		m.out = strconv.AppendInt(m.out, f.Length, 10)
		m.out = append(m.out, "\r\n"...)
	}
	m.out = c.appendConnection(m.out)
}

// endHit ends the request, of whose answer the client took so much.
func (c *conn) endHit(f *edge.Found, took int, failed edge.Cause) {
	res := edge.Result{Ending: edge.Cached}
	if failed != edge.CauseNone {
		res.Ending, res.Cause = edge.Gone, failed
	}
	res.Status, res.BytesOut = sentOf(f.Status, took, len(c.mem.out))
	if c.finish(res) && failed != edge.CauseNone {
		c.abort()
	}
}

// appendConnection ends a head with what the connection does next.
func (c *conn) appendConnection(b []byte) []byte {
	if c.srv.draining.Load() {
		c.keep = false
	}
	switch {
	case !c.keep:
		b = append(b, "Connection: close\r\n"...)
	case c.mem.req.Minor == 0:
		b = append(b, "Connection: keep-alive\r\n"...)
	}
	return append(b, "\r\n"...)
}

// write sends bytes to the client. What fails it is the client's leaving or
// slowness; then m.took of them have been sent.
func (c *conn) write(b []byte) edge.Cause { return c.writeAll(b, nil, nil) }

// writeSlowly waits for the client to take everything, and says how much it took.
func (c *conn) writeSlowly(pieces ...[]byte) (int, error) {
	m, n := c.mem, 0
	for _, p := range pieces {
		if len(p) > 0 {
			m.vec[n] = p
			n++
		}
	}
	if n == 1 {
		return c.nc.Write(m.vec[0]) // write(2) costs less than writev(2) of one piece
	}
	m.bufs = m.vec[:n]
	took, err := m.bufs.WriteTo(c.nc)
	return int(took), err
}

func (c *conn) wrote(err error) edge.Cause {
	was := c.clock.rest()
	switch {
	case was.late(), timedOut(err):
		return edge.CauseSlowClient
	case err != nil:
		return edge.CauseClientGone
	default:
		return edge.CauseNone
	}
}

// dateFormat is the IMF-fixdate of RFC 9110 §5.6.7.
const dateFormat = "Mon, 02 Jan 2006 15:04:05 GMT"

// appendDate says when usher made an answer of its own (RFC 9110 §6.6.1).
func appendDate(b []byte) []byte {
	b = append(b, "Date: "...)
	b = time.Now().UTC().AppendFormat(b, dateFormat)
	return append(b, "\r\n"...)
}

func appendStatus(b []byte, status int) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	b = append(b, reason(status)...)
	return append(b, "\r\n"...)
}

// reason is the phrase of the statuses that usher answers with by itself.
func reason(status int) string {
	switch status {
	case 200:
		return "OK"
	case 203:
		return "Non-Authoritative Information"
	case 204:
		return "No Content"
	case 206:
		return "Partial Content"
	case 301:
		return "Moved Permanently"
	case 304:
		return "Not Modified"
	case 308:
		return "Permanent Redirect"
	case 400:
		return "Bad Request"
	case 404:
		return "Not Found"
	case 405:
		return "Method Not Allowed"
	case 408:
		return "Request Timeout"
	case 410:
		return "Gone"
	case 413:
		return "Content Too Large"
	case 414:
		return "URI Too Long"
	case 416:
		return "Range Not Satisfiable"
	case 417:
		return "Expectation Failed"
	case 429:
		return "Too Many Requests"
	case 431:
		return "Request Header Fields Too Large"
	case 502:
		return "Bad Gateway"
	case 503:
		return "Service Unavailable"
	case 504:
		return "Gateway Timeout"
	case 505:
		return "HTTP Version Not Supported"
	case 508:
		return "Loop Detected"
	default:
		return ""
	}
}
