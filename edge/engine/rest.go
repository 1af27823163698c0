package engine

import "github.com/usher-edge/usher/edge/http1"

// rest says where a request's body is, and so where the next request begins. It
// is restWaits at the beginning of each try, and changes here and in stopPump.
type rest uint8

const (
	restWaits rest = iota // what has come of it is still here: another try finds it again
	restMoves             // a pump reads it
	restNone              // all of it is used up: the next request begins at m.in[m.r]
	restLost              // a part is used up, or may never come: no request can follow
)

// useUp takes the part of the body that went with the head out of m.in, so that
// no other try can ask for it.
func (c *conn) useUp(then rest) {
	m := c.mem
	m.r += m.try.prefix
	m.try.prefix, m.try.rest = 0, then
}

// lose gives the rest of the body up: the connection ends with the answer, and
// the client may still be sending.
func (c *conn) lose() {
	c.mem.try.rest = restLost
	c.keep, c.linger = false, true
}

// settleBody comes before an answer of usher's own: a body that no app has taken
// is skipped if all of it is here already.
func (c *conn) settleBody() {
	m := c.mem
	if m.try.rest != restWaits {
		return
	}
	length := m.req.Length
	if length == http1.Chunked || length > int64(m.w-m.r) || length > 0 && m.req.Expect {
		c.lose()
		return
	}
	m.try.prefix = int(length)
	c.useUp(restNone)
}
