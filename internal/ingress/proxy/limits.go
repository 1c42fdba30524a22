package proxy

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/coracle-io/coracle/internal/fairevict"
	"github.com/coracle-io/coracle/internal/memory"
)

const (
	// leastConnections and mostConnectionsEver bound what mostConnections returns.
	leastConnections, mostConnectionsEver = 256, 16384
	// connectionMemory is what a connection may take, in bytes: buffers of both sides,
	// headers, and the stacks of its goroutines.
	connectionMemory = 64 << 10
	// streamBuffer is how much of a body of HTTP/2 is kept that the other side does not
	// take: of a request for a backend that does not read, or of a response for such a
	// client.
	streamBuffer = 64 << 10
	// maxHeaderValues bounds the headers of a request and of a response in number: each
	// takes two hundred bytes besides its own, as long as the request is in progress.
	maxHeaderValues = 256
	// maxPath bounds the path of a request in bytes: each of its elements takes sixteen
	// besides its own, as long as the request is in progress.
	maxPath = 8 << 10
	// headBytes is how many bytes a connection may send on average before a request of it
	// begins. They become up to thirty times as much memory, that of a connection.
	headBytes = connectionMemory / 32
)

// mostConnections returns how many connections of clients the proxy has open, and how
// many requests in progress, at most: those for a quarter of the memory of the process,
// and an eighth of the files that it may open. Each request may need a file for the
// connection to its endpoint.
func mostConnections() int {
	most := uint64(mostConnectionsEver)
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil {
		most = min(most, files.Cur/8)
	}
	if limit := memory.ProcessLimit(); limit > 0 {
		most = min(most, uint64(limit)/4/connectionMemory)
	}
	return int(max(most, leastConnections))
}

// connections bounds the connections of all listeners. When there is no room, a new one
// takes the place of the oldest of the address that has most.
type connections struct {
	most    int
	metrics *Metrics

	mu    sync.Mutex // guards the following
	open  fairevict.Set[string, *connection]
	heads fairevict.Sizes[*connection] // the bytes before requests that have not begun
}

// connection is a connection of a client.
type connection struct {
	net.Conn
	of      *connections
	heading atomic.Bool // it sends what precedes a request

	// The mutex of of guards the following.
	entry  *fairevict.Entry[string, *connection]
	head   fairevict.Size[*connection]
	closed bool
}

// add adds a connection, and returns the one that must be closed for it, if any.
func (c *connections) add(conn *connection) (victim *connection) {
	from := origin(conn.RemoteAddr())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open.Len() >= c.most {
		if e := c.open.Victim(); e != nil {
			victim = e.Member
			c.remove(victim)
		}
	}
	conn.entry = c.open.Add(from, conn)
	c.metrics.open.Set(float64(c.open.Len()))
	return victim
}

// followHeads is the ConnState of servers. It finds out when a connection sends what
// precedes a request. In HTTP/2 that includes pings between requests, which cannot be told
// from headers under TLS. They are few: httpserver.IdleTimeout after a request the connection
// ends, however often its client pings.
func followHeads(conn net.Conn, state http.ConnState) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	c, ok := conn.(*connection)
	if !ok {
		return
	}
	heading := state == http.StateNew || state == http.StateIdle
	c.heading.Store(heading)
	if !heading {
		c.of.mu.Lock()
		c.of.heads.Set(&c.head, 0)
		c.of.mu.Unlock()
	}
}

// Read implements net.Conn.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.heading.Load() {
		for _, victim := range c.of.countHead(c, n) {
			c.of.metrics.refused.WithLabelValues("connection").Inc()
			_ = victim.Close()
		}
	}
	return n, err
}

// countHead counts bytes that precede a request. If there are too many, it returns the
// connections that must be closed: those that have sent most of them.
func (c *connections) countHead(of *connection, n int) (victims []*connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of.closed {
		return nil
	}
	c.heads.Add(&of.head, n)
	for c.heads.Total() > c.most*headBytes {
		victim := c.heads.Largest().Member
		c.remove(victim)
		victims = append(victims, victim)
	}
	return victims
}

// remove takes a connection out of all counts. Callers hold the mutex.
func (c *connections) remove(conn *connection) {
	conn.closed = true
	conn.entry.Remove()
	c.heads.Set(&conn.head, 0)
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.remove(c)
	c.of.metrics.open.Set(float64(c.of.open.Len()))
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// origin returns what the connections of one client have in common: its IPv4 address, or
// the /64 network of its IPv6 address.
func origin(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return ""
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}

// listener is a listener with the bound.
type listener struct {
	net.Listener
	connections *connections
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: conn, of: l.connections}
	c.head.Member = c
	if victim := l.connections.add(c); victim != nil {
		l.connections.metrics.refused.WithLabelValues("connection").Inc()
		_ = victim.Close()
	}
	return c, nil
}

// shares bounds the requests in progress. A namespace has no more than are still free,
// so that there is always room for another one.
type shares struct {
	most int

	mu    sync.Mutex // guards the following
	all   int
	count map[string]int // by namespace
}

func newShares(most int) *shares { return &shares{most: most, count: map[string]int{}} }

// acquire counts a request for a namespace. It returns false if there is no room for it;
// otherwise the caller calls release once.
func (s *shares) acquire(namespace string) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count[namespace] >= s.most-s.all {
		return nil, false
	}
	s.all++
	s.count[namespace]++
	return func() { s.release(namespace) }, true
}

func (s *shares) release(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.count[namespace]--; s.count[namespace] == 0 {
		delete(s.count, namespace)
	}
}
