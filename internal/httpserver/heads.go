package httpserver

import (
	"crypto/tls"
	"net"
	"net/http"
)

// headBytes is how many bytes a connection may send on average before a request of it
// begins: of a TLS handshake, and of headers. net/http makes up to thirty times as much
// memory of short headers, which it holds until they are complete or HeaderTimeout ends.
const headBytes = 8 << 10

// HeaderSize returns the number of values in a header, and their bytes with those of
// their names. Each value takes about two hundred bytes of memory besides.
func HeaderSize(h http.Header) (values, bytes int) {
	for name, list := range h {
		values += len(list)
		bytes += len(name)
		for _, value := range list {
			bytes += len(value)
		}
	}
	return values, bytes
}

// followHeads is the ConnState of servers. It finds out when a connection of a Listener
// sends what precedes a request.
func followHeads(conn net.Conn, state http.ConnState) {
	secure, encrypted := conn.(*tls.Conn)
	if encrypted {
		conn = secure.NetConn()
	}
	c, ok := conn.(*connection)
	if !ok {
		return
	}
	if state == http.StateIdle && !c.asked {
		c.asked, c.http2 = true, encrypted && secure.ConnectionState().NegotiatedProtocol == "h2"
	}
	// Between two requests of HTTP/2 there are pings, and it bounds the number of headers.
	heading := state == http.StateNew || state == http.StateIdle && !(c.http2 && c.known.Load())
	c.heading.Store(heading)
	if !heading {
		c.listener.endHead(c)
	}
}

// Read implements net.Conn.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.heading.Load() {
		for _, evicted := range c.listener.countHead(c, n) {
			_ = evicted.Close()
		}
	}
	return n, err
}

// countHead counts bytes that precede a request, and returns the connections that it
// evicts: those that have sent most, if all unknown ones have sent too much, or this one,
// if its tenant has.
func (l *Listener) countHead(c *connection, n int) (evicted []*connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := c.known.Load()
	if c.closed || known && c.user == "" { // of an unbounded user
		return nil
	}
	if known {
		c.head += n
		tenant := Tenant(c.user)
		if l.heads[tenant] += n; l.heads[tenant] > l.limits.perUser*headBytes {
			l.remove(c)
			evicted = append(evicted, c)
		}
		return evicted
	}
	l.unknownHeads.Add(&c.unknownHead, n)
	for l.unknownHeads.Total() > l.limits.unknown*headBytes {
		victim := l.unknownHeads.Largest().Member
		l.remove(victim)
		evicted = append(evicted, victim)
	}
	return evicted
}

// endHead records that a connection has sent all that precedes a request.
func (l *Listener) endHead(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetHead(c)
}

// forgetHead takes what precedes the next request of a connection out of all counts.
// Callers hold the mutex.
func (l *Listener) forgetHead(c *connection) {
	l.unknownHeads.Set(&c.unknownHead, 0)
	if c.head == 0 {
		return
	}
	tenant := Tenant(c.user)
	if l.heads[tenant] -= c.head; l.heads[tenant] == 0 {
		delete(l.heads, tenant)
	}
	c.head = 0
}
