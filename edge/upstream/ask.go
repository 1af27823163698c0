package upstream

import (
	"syscall"
	"time"
	"unsafe"

	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/rawio"
)

// question is one whole request on its way, and where the head of its answer
// goes.
type question struct {
	out    []byte // what is still to be sent
	body   []byte // and after it
	res    *http1.Response
	method []byte
	sent   bool // all of it, or as much as the kernel took at once
	err    error
}

// Ask sends a whole request, in two pieces that may be empty, and reads the first response head: Write, Sent and
// ReadHead in one. It waits in the poller from before the first byte is sent, so
// that the answer needs no read that comes too early, and looks at the socket
// after the poller has begun to note what comes, so that no FIN is missed.
//
// An error that is Undelivered says that nothing was sent. Any other is ReadHead's,
// whatever became of the writing: the app may have answered before it closed.
func (c *Conn) Ask(head, body []byte, res *http1.Response, method []byte) error {
	if c.raw == nil {
		return c.askPlainly(head, body, res, method)
	}
	c.setReadDeadline(time.Time{})
	res.Reset()
	c.asked = question{out: head, body: body, res: res, method: method}
	return c.outcome(c.raw.Read(c.ask))
}

// outcome is what Ask comes to, after a wait that came to err: what the app did not
// take at once is sent now.
func (c *Conn) outcome(err error) error {
	q := &c.asked
	head, body, res, method, failed := q.out, q.body, q.res, q.method, q.err
	*q = question{}
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return c.headFailed(err)
	case len(head)+len(body) > 0:
		return c.askPlainly(head, body, res, method)
	}
	c.begun(res)
	return nil
}

// askPlainly is Ask, or what is left of it, without a callback of the poller.
func (c *Conn) askPlainly(head, body []byte, res *http1.Response, method []byte) error {
	_, err := c.Write(head)
	if Undelivered(err) {
		return err
	}
	if err == nil && len(body) > 0 {
		_, err = c.Write(body)
	}
	c.Sent = err == nil
	return c.ReadHead(res, method, time.Time{})
}

// askOn is called at once, and then whenever there may be something to read. It
// reports whether there is nothing more to wait for.
func (c *Conn) askOn(fd uintptr) (done bool) {
	if !c.asked.sent {
		c.asked.sent = true
		return c.sendOn(fd)
	}
	rawio.StackAhead(512, 1536)
	rawio.Ahead(unsafe.Pointer(c.asked.res), unsafe.Sizeof(*c.asked.res))
	return c.headOn(fd)
}

// sendOn sends as much as the kernel takes. It reports true if that is not all,
// or if there is nobody to send it to.
func (c *Conn) sendOn(fd uintptr) (done bool) {
	q := &c.asked
	if q.err = c.begin(int(fd)); q.err != nil {
		return true
	}
	if c.interrupted.Load() {
		q.err = c.writeFailed(errInterrupted)
		return true
	}
	n, err := rawio.WriteBoth(fd, q.out, q.body)
	c.wrote.Add(int64(n))
	k := min(n, len(q.out))
	q.out, q.body = q.out[k:], q.body[n-k:]
	switch {
	case err != nil && err != syscall.EAGAIN:
		q.err = c.writeFailed(err)
		return true
	case len(q.out)+len(q.body) > 0:
		return true
	}
	c.Sent = true
	return false
}

// headOn reads until the head is complete.
func (c *Conn) headOn(fd uintptr) (done bool) {
	q := &c.asked
	for {
		err := c.readOn(fd)
		if err == syscall.EAGAIN {
			return false
		}
		var n int
		if err == nil {
			n, err = q.res.Parse(c.unread(), q.method, &c.pool.opt.Limits)
		}
		if err != nil {
			q.err = c.headFailed(err)
			return true
		}
		if c.r += n; n > 0 {
			c.head = n
			return true
		}
	}
}
