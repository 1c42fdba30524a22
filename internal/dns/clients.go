package dns

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/coracle-io/coracle/internal/crowd"
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

// clientAt is what the queries from an address count for: this machine has many
// loopback addresses, and is one client.
func clientAt(from net.Addr) netip.Addr {
	if a := addressOf(from); !a.IsLoopback() {
		return a
	}
	return netip.IPv6Loopback()
}

// quota bounds what all clients together, and each of them, have under way.
// Where all have too much, the oldest use of the client with most is displaced.
type quota struct {
	all, each int

	mu   sync.Mutex                      // guards uses
	uses crowd.Crowd[netip.Addr, func()] // how to displace each
}

func newQuota(all, each int) *quota { return &quota{all: all, each: each} }

// take counts one more use by a client, and reports whether that is within the
// client's bound. Then give must be called once the use has ended, for whatever
// reason. displace ends the use; it is called at most once, and must not block.
func (q *quota) take(client netip.Addr, displace func()) (give func(), ok bool) {
	q.mu.Lock()
	if q.uses.LenOf(client) >= q.each {
		q.mu.Unlock()
		return nil, false
	}
	var oldest *crowd.Place[netip.Addr, func()]
	if q.uses.Len() >= q.all {
		oldest = q.uses.Oldest()
		oldest.Leave()
	}
	place := q.uses.Add(client, displace)
	q.mu.Unlock()
	if oldest != nil {
		oldest.Member()
	}
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		place.Leave()
	}, true
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
		if l.clients.allowed(conn.RemoteAddr()) {
			if give, ok := l.quota.take(clientAt(conn.RemoteAddr()), func() { _ = conn.Close() }); ok {
				return &countedConn{Conn: conn, done: give}, nil
			}
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
