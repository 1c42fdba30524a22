package server

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// limitIdle ends the connection that a stream takes over once nothing has gone
// through it for so long, in either direction; 0 is no limit.
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
	return limited, buffered, limited.busy()
}

// idleConn is a connection that ends once it has carried nothing for limit.
type idleConn struct {
	net.Conn
	limit time.Duration
}

// busy puts off the end.
func (c *idleConn) busy() error { return c.SetDeadline(time.Now().Add(c.limit)) }

// Read implements net.Conn.
func (c *idleConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil {
		err = c.busy()
	}
	return n, err
}

// Write implements net.Conn.
func (c *idleConn) Write(p []byte) (int, error) {
	if err := c.busy(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
