package dns

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// clients decides who is answered: the pods, this machine and the machines of
// the cluster's other DNS servers. A server that answered everybody would tell
// the names of the cluster to its neighbours and could be used to flood others
// (RFC 5358).
type clients struct {
	pods []netip.Prefix // none answers everybody
	// server tells whether an address is that of another DNS server of this
	// cluster.
	server func(netip.Addr) bool
	// interfaces reads the addresses of this machine.
	interfaces func() ([]net.Addr, error)

	mu   sync.Mutex // guards the rest
	own  []netip.Addr
	read time.Time
}

// ownLife is how long the addresses of this machine are remembered.
const ownLife = 5 * time.Second

func newClients(pods []netip.Prefix, server func(netip.Addr) bool) *clients {
	return &clients{pods: pods, server: server, interfaces: net.InterfaceAddrs}
}

// allowed tells whether the sender of a query is answered.
func (c *clients) allowed(from net.Addr) bool {
	if len(c.pods) == 0 {
		return true
	}
	a := addressOf(from)
	if slices.ContainsFunc(c.pods, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return true
	}
	return a.IsLoopback() || c.isOwn(a) || c.server(a)
}

func (c *clients) isOwn(a netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.read) > ownLife {
		list, err := c.interfaces()
		if err != nil {
			return false
		}
		c.own, c.read = nil, now
		for _, address := range list {
			if p, err := netip.ParsePrefix(address.String()); err == nil {
				c.own = append(c.own, p.Addr())
			}
		}
	}
	return slices.Contains(c.own, a)
}

// addressOf is the IP address of a UDP or TCP peer; invalid if it has none.
func addressOf(peer net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(peer.String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

// quota bounds what all clients together, and each of them, have under way.
type quota struct {
	all, each int

	mu   sync.Mutex // guards uses
	uses map[netip.Addr]int
	sum  int
}

func newQuota(all, each int) *quota {
	return &quota{all: all, each: each, uses: map[netip.Addr]int{}}
}

// take counts one more use by a client and reports whether it is within the
// bounds. Then it must be given back.
func (q *quota) take(client netip.Addr) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sum >= q.all || q.uses[client] >= q.each {
		return false
	}
	q.sum++
	q.uses[client]++
	return true
}

func (q *quota) give(client netip.Addr) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sum--
	if q.uses[client]--; q.uses[client] == 0 {
		delete(q.uses, client)
	}
}

// listener accepts the TCP connections of clients that are allowed, as many as
// the quota permits, and closes the others at once.
type listener struct {
	net.Listener
	clients *clients
	quota   *quota
}

func (l listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client := addressOf(conn.RemoteAddr())
		if l.clients.allowed(conn.RemoteAddr()) && l.quota.take(client) {
			return &countedConn{Conn: conn, done: sync.OnceFunc(func() { l.quota.give(client) })}, nil
		}
		_ = conn.Close()
	}
}

// countedConn gives its place back when it is closed.
type countedConn struct {
	net.Conn
	done func()
}

func (c *countedConn) Close() error {
	defer c.done()
	return c.Conn.Close()
}
