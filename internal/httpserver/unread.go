package httpserver

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// LimitUnread ends a request once its client has taken nothing of what is
// being sent for so long; 0 is no limit. A stream that has nothing to send
// lasts. A connection that is taken over keeps the limit.
func LimitUnread(w http.ResponseWriter, limit time.Duration) http.ResponseWriter {
	if limit == 0 {
		return w
	}
	return &unreadLimiter{w, http.NewResponseController(w), limit}
}

type unreadLimiter struct {
	http.ResponseWriter
	control *http.ResponseController
	limit   time.Duration
}

// Unwrap implements what http.ResponseController looks for.
func (l *unreadLimiter) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// Write implements http.ResponseWriter.
func (l *unreadLimiter) Write(data []byte) (n int, err error) {
	defer l.sending()()
	return l.ResponseWriter.Write(data)
}

// Flush implements http.Flusher.
func (l *unreadLimiter) Flush() { _ = l.FlushError() }

// FlushError implements what http.ResponseController looks for.
func (l *unreadLimiter) FlushError() error {
	defer l.sending()()
	return l.control.Flush()
}

// sending bounds what is done until done is called. HTTP/2 ends a stream at
// its deadline even if nothing is being sent.
func (l *unreadLimiter) sending() (done func()) {
	_ = l.control.SetWriteDeadline(time.Now().Add(l.limit)) // not every writer has deadlines
	return func() { _ = l.control.SetWriteDeadline(time.Time{}) }
}

// Hijack implements http.Hijacker.
func (l *unreadLimiter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := l.control.Hijack()
	if err != nil {
		return nil, nil, err
	}
	limited := &unreadConn{Conn: conn, limit: l.limit}
	buffered.Writer.Reset(limited)
	return limited, buffered, nil
}

// unreadConn is a connection whose writes end at the limit, unless its user
// has set a deadline.
type unreadConn struct {
	net.Conn
	limit    time.Duration
	deadline atomic.Bool // is the user's
}

// Write implements net.Conn.
func (c *unreadConn) Write(data []byte) (int, error) {
	if !c.deadline.Load() {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(c.limit)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(data)
}

// SetWriteDeadline implements net.Conn.
func (c *unreadConn) SetWriteDeadline(at time.Time) error {
	c.deadline.Store(!at.IsZero())
	return c.Conn.SetWriteDeadline(at)
}

// SetDeadline implements net.Conn.
func (c *unreadConn) SetDeadline(at time.Time) error {
	c.deadline.Store(!at.IsZero())
	return c.Conn.SetDeadline(at)
}
