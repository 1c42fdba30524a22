package httpserver

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// LimitUnread returns a writer that fails once the client has read nothing of
// the data being sent for the given time. Zero is no limit. A stream with
// nothing to send may last. A hijacked connection keeps the limit.
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

// Unwrap returns the wrapped writer, for http.ResponseController.
func (l *unreadLimiter) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// Write implements http.ResponseWriter.
func (l *unreadLimiter) Write(data []byte) (n int, err error) {
	defer l.sending()()
	return l.ResponseWriter.Write(data)
}

// Flush implements http.Flusher.
func (l *unreadLimiter) Flush() { _ = l.FlushError() }

// FlushError flushes and returns the error, for http.ResponseController.
func (l *unreadLimiter) FlushError() error {
	defer l.sending()()
	return l.control.Flush()
}

// sending sets the write deadline, and done clears it. It must not stay set:
// HTTP/2 ends a stream at its deadline even if nothing is being sent.
func (l *unreadLimiter) sending() (done func()) {
	_ = l.control.SetWriteDeadline(time.Now().Add(l.limit)) // fails if the writer has no deadlines
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

// unreadConn is a connection whose writes fail after the limit, unless its user
// has set a deadline.
type unreadConn struct {
	net.Conn
	limit    time.Duration
	deadline atomic.Bool // whether the user has set one
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
