package dns

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/coracle-io/coracle/internal/fairevict"
)

// clients decides which clients are answered: the pods, this machine, the
// machines of the cluster's other DNS servers, and other nodes. A server that answers everyone
// reveals the cluster's names to its network and can be used in reflection
// attacks (RFC 5358).
type clients struct {
	pods []netip.Prefix // if empty, everyone is answered
	// server reports whether an address belongs to another DNS server or node of this
	// cluster.
	server func(netip.Addr) bool
	// interfaces returns the addresses of this machine.
	interfaces func() ([]net.Addr, error)

	mu   sync.Mutex // guards the rest
	own  []netip.Addr
	read time.Time
}

// ownAddressesTTL is how long the addresses of this machine are cached.
const ownAddressesTTL = 5 * time.Second

func newClients(pods []netip.Prefix, server func(netip.Addr) bool) *clients {
	return &clients{pods: pods, server: server, interfaces: net.InterfaceAddrs}
}

// allowed reports whether the sender of a query is answered.
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
	if now := time.Now(); now.Sub(c.read) > ownAddressesTTL {
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

// addressOf returns the IP address of a UDP or TCP peer, or an invalid one if
// it has none.
func addressOf(peer net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(peer.String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

// clientAt returns the address that the queries of a peer are counted for. This
// machine has many loopback addresses and is one client.
func clientAt(from net.Addr) netip.Addr {
	if a := addressOf(from); !a.IsLoopback() {
		return a
	}
	return netip.IPv6Loopback()
}

// quota bounds the uses under way, of all clients together and of each. When
// all have reached their bound, a new use displaces the oldest use of the
// client with the most.
type quota struct {
	all, each int

	mu   sync.Mutex                        // guards uses
	uses fairevict.Set[netip.Addr, func()] // how to displace each
}

func newQuota(all, each int) *quota { return &quota{all: all, each: each} }

// acquire counts one more use by a client. It returns false if the client has
// reached its bound. Otherwise the caller must call release when the use has
// ended, for whatever reason. displace ends the use; it is called at most once
// and must not block.
func (q *quota) acquire(client netip.Addr, displace func()) (release func(), ok bool) {
	q.mu.Lock()
	if q.uses.GroupLen(client) >= q.each {
		q.mu.Unlock()
		return nil, false
	}
	var victim *fairevict.Entry[netip.Addr, func()]
	if q.uses.Len() >= q.all {
		victim = q.uses.Victim()
		victim.Remove()
	}
	place := q.uses.Add(client, displace)
	q.mu.Unlock()
	if victim != nil {
		victim.Member()
	}
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		place.Remove()
	}, true
}

// listener accepts the TCP connections of allowed clients within the quota, and
// closes all others.
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
			if release, ok := l.quota.acquire(clientAt(conn.RemoteAddr()), func() { _ = conn.Close() }); ok {
				return &countedConn{Conn: conn, release: release}, nil
			}
		}
		_ = conn.Close()
	}
}

// countedConn releases its place in the quota when it is closed.
type countedConn struct {
	net.Conn
	release func()
}

func (c *countedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
