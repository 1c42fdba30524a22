package httpserver

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/fairevict"
)

const (
	// maxUnknown bounds the open connections of clients that have not
	// authenticated, such as those in the middle of a handshake.
	maxUnknown = 2048
	// maxPerUser bounds the connections of one user. Clients send all their
	// requests through a few.
	maxPerUser = 1000
	// fewest is the least bound of a listener, however few files the process
	// may open.
	fewest = 256
)

// Listener is a net.Listener that bounds connections, so that file descriptors
// remain for the rest of the process:
//
//	unknown ─ MarkAuthenticated ─▶ of a user (maxPerUser) ─ of all users
//	   │                               │                        │
//	the oldest of the             the new one is          the oldest of the
//	address with most             refused                 tenant with most
//	is closed                                             is closed
//
// A new connection never waits: when the listener is full, it evicts another.
// Connections of system:masters are neither refused nor evicted. What connections have
// sent before a request has begun is bounded as well, at the cost of those that have sent
// most (heads.go).
type Listener struct {
	net.Listener
	limits limits

	mu      sync.Mutex     // guards the following
	unknown connections    // by address
	known   connections    // by tenant
	users   map[string]int // connections of each user
	// The bytes before requests that have not begun, of unknown connections and of each
	// tenant.
	unknownHeads fairevict.Sizes[*connection]
	heads        map[string]int
}

type limits struct{ unknown, known, perUser int }

// NewListener wraps a listener that few clients use. It takes at most a
// sixteenth of the files that the process may open.
func NewListener(inner net.Listener) *Listener { return newListener(inner, share(files(), 16)) }

// NewMainListener wraps the main listener of a process. It takes at most three
// eighths of the files that the process may open. A proxied request needs a
// second file, and the rest is left to the store and to other listeners.
func NewMainListener(inner net.Listener) *Listener { return newListener(inner, share(files()/8*3, 1)) }

func newListener(inner net.Listener, bounds limits) *Listener {
	return &Listener{Listener: inner, limits: bounds, users: map[string]int{}, heads: map[string]int{}}
}

// files returns how many files this process may open. Go raises the soft limit
// to the hard one when a process starts.
func files() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fewest
	}
	return limit.Cur
}

// share returns the limits of a listener that takes 1/part of the files.
func share(files, part uint64) limits {
	all := int(max(min(files/part, 1<<20), fewest))
	unknown := min(maxUnknown, all/4)
	return limits{unknown: unknown, known: all - unknown, perUser: min(maxPerUser, all/4)}
}

type connections = fairevict.Set[string, *connection]

// connection is a connection that a Listener has accepted.
type connection struct {
	net.Conn
	listener *Listener
	known    atomic.Bool // its client has authenticated
	heading  atomic.Bool // it sends what precedes a request

	// The goroutine that serves the connection alone uses these: whether it speaks
	// HTTP/2, once that was asked.
	asked, http2 bool

	// The listener's mutex guards the following.
	entry  *fairevict.Entry[string, *connection] // nil for unbounded users
	user   string                                // in whose count it is; "" is in none
	closed bool
	// The bytes that it has sent before its next request: as an unknown one, and as one
	// of the user.
	unknownHead fairevict.Size[*connection]
	head        int
}

type connectionKey struct{}

// MarkAuthenticated records that the client whose request ctx belongs to has
// authenticated as a user. It returns false if that user has too many
// connections: the caller must then refuse the request and end the connection.
// Members of system:masters and of the groups in unbounded have no bound.
func MarkAuthenticated(ctx context.Context, who user.Info, unbounded ...string) bool {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok || c.known.Load() {
		return true
	}
	evicted, allowed := c.listener.authenticated(c, who, unbounded)
	if evicted != nil {
		_ = evicted.Close()
	}
	return allowed
}

// TooManyConnections is the message for a user that MarkAuthenticated refuses.
const TooManyConnections = "this user has too many connections: end some, or send requests through fewer"

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: conn, listener: l}
	c.unknownHead.Member = c
	if evicted := l.addUnknown(c, address(conn)); evicted != nil {
		_ = evicted.Close()
	}
	return c, nil
}

// address returns what the connections of one machine have in common: the IPv4
// address, or the /64 network of the IPv6 address.
func address(conn net.Conn) string {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return ""
	}
	ip := at.Addr().Unmap()
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	return netip.PrefixFrom(ip, bits).Masked().String()
}

// addUnknown adds a new connection, and returns the one that it evicts, if any.
func (l *Listener) addUnknown(c *connection, from string) (evicted *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	evicted = l.makeRoom(&l.unknown, l.limits.unknown)
	c.entry = l.unknown.Add(from, c)
	return evicted
}

// authenticated moves a connection to the known ones, and returns the one that
// it evicts, if any. It returns false if the user has too many.
func (l *Listener) authenticated(c *connection, who user.Info, unbounded []string) (evicted *connection, allowed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.closed || c.known.Load() {
		return nil, true
	}
	name := who.GetName()
	privileged := slices.ContainsFunc(who.GetGroups(), func(group string) bool {
		return group == user.SystemPrivilegedGroup || slices.Contains(unbounded, group)
	})
	if !privileged && l.users[name] >= l.limits.perUser {
		return nil, false
	}
	c.entry.Remove()
	c.entry = nil
	l.forgetHead(c)
	c.known.Store(true)
	if privileged {
		return nil, true
	}
	evicted = l.makeRoom(&l.known, l.limits.known)
	c.user = name
	l.users[name]++
	c.entry = l.known.Add(Tenant(name), c)
	return evicted, true
}

// makeRoom removes and returns the connection to evict before another is added
// to a set, or nil if there is room. Callers hold the mutex, and close the
// connection after they have released it.
func (l *Listener) makeRoom(in *connections, limit int) *connection {
	if in.Len() < limit {
		return nil
	}
	victim := in.Victim()
	if victim == nil {
		return nil
	}
	l.remove(victim.Member)
	return victim.Member
}

// Tenant returns the name under which a user's share of something common is
// counted. All service accounts of a namespace are one tenant, since a user
// that can create one can create many. Any other user is a tenant.
func Tenant(name string) string {
	if strings.HasPrefix(name, serviceaccount.ServiceAccountUsernamePrefix) {
		if namespace, _, err := serviceaccount.SplitUsername(name); err == nil {
			return serviceaccount.ServiceAccountUsernamePrefix + namespace
		}
	}
	return name
}

// remove takes a connection out of all counts. Callers hold the mutex.
func (l *Listener) remove(c *connection) {
	if c.closed {
		return
	}
	c.closed = true
	l.forgetHead(c)
	c.entry.Remove()
	if c.user == "" {
		return
	}
	if l.users[c.user]--; l.users[c.user] == 0 {
		delete(l.users, c.user)
	}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.listener.mu.Lock()
	c.listener.remove(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
