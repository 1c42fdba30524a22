package server

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// limitIdle closes the connection that a stream takes over once it has carried
// nothing in either direction for limit. 0 means no limit.
func limitIdle(w http.ResponseWriter, limit time.Duration) http.ResponseWriter {
	if limit == 0 {
		return w
	}
	return idleLimiter{w, limit}
}

type idleLimiter struct {
	http.ResponseWriter
	limit time.Duration
}

// Unwrap implements what http.ResponseController looks for.
func (l idleLimiter) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// Hijack implements http.Hijacker.
func (l idleLimiter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(l.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	limited := &idleConn{conn, l.limit}
	return limited, buffered, limited.extend()
}

// idleConn is a connection that ends once it has carried nothing for limit. The
// libraries of WebSockets set deadlines of their own, with each message that they
// carry: those end at limit, too.
type idleConn struct {
	net.Conn
	limit time.Duration
}

// within returns a deadline, or the limit if that is sooner. The zero time is no
// deadline.
func (c *idleConn) within(at time.Time) time.Time {
	if last := time.Now().Add(c.limit); at.IsZero() || at.After(last) {
		return last
	}
	return at
}

// SetDeadline implements net.Conn.
func (c *idleConn) SetDeadline(at time.Time) error { return c.Conn.SetDeadline(c.within(at)) }

// SetReadDeadline implements net.Conn.
func (c *idleConn) SetReadDeadline(at time.Time) error { return c.Conn.SetReadDeadline(c.within(at)) }

// SetWriteDeadline implements net.Conn.
func (c *idleConn) SetWriteDeadline(at time.Time) error { return c.Conn.SetWriteDeadline(c.within(at)) }

// extend extends the deadline of the connection.
func (c *idleConn) extend() error { return c.SetDeadline(time.Now().Add(c.limit)) }

// Read implements net.Conn.
func (c *idleConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil {
		err = c.extend()
	}
	return n, err
}

// Write implements net.Conn.
func (c *idleConn) Write(p []byte) (int, error) {
	if err := c.extend(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
