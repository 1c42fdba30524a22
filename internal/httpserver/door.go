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

	"github.com/coracle-io/coracle/internal/crowd"
)

const (
	// maxUnknown is how many connections a door holds open whose client has
	// not proved who it is, in the middle of a handshake for example.
	maxUnknown = 2048
	// maxPerUser is how many connections one user has. Clients send all their
	// requests through a few.
	maxPerUser = 1000
	// fewest is what a door takes in however few files the process may open.
	fewest = 256
)

// Door is a listener that bounds connections, so that files remain for the
// rest of the process:
//
//	unknown ─ Known ─▶ of a user (maxPerUser) ─ one of all known
//	   │                   │                        │
//	oldest of the      new one is            oldest of the user with
//	address with most  refused               most is closed
//	is closed
//
// Nobody waits: who comes in where the door is full displaces another.
// Connections of system:masters are neither refused nor displaced.
type Door struct {
	net.Listener
	limits limits

	mu      sync.Mutex     // guards the following
	unknown visitors       // by address
	known   visitors       // by user, service accounts by namespace
	users   map[string]int // connections of each user
}

type limits struct{ unknown, known, perUser int }

// NewDoor puts a door before a listener that few clients need.
func NewDoor(l net.Listener) *Door { return newDoor(l, share(files(), 16)) }

// NewMainDoor puts a door before the listener that the process is there for:
// it takes in connections for three eighths of the files that the process may
// open. A request that is passed on, as to a node, takes a second file, and
// the rest is for the store and other listeners.
func NewMainDoor(l net.Listener) *Door { return newDoor(l, share(files()/8*3, 1)) }

func newDoor(l net.Listener, most limits) *Door {
	return &Door{Listener: l, limits: most, users: map[string]int{}}
}

// files is how many files this process may open. Go raises the soft limit to
// the hard one when a process starts.
func files() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fewest
	}
	return limit.Cur
}

// share gives a door the given part of the files.
func share(files, part uint64) limits {
	all := int(max(min(files/part, 1<<20), fewest))
	unknown := min(maxUnknown, all/4)
	return limits{unknown: unknown, known: all - unknown, perUser: min(maxPerUser, all/4)}
}

type visitors = crowd.Crowd[string, *visitor]

// visitor is a connection.
type visitor struct {
	net.Conn
	door  *Door
	known atomic.Bool

	// The door's mutex guards the following.
	place *crowd.Place[string, *visitor] // nil for the unbounded
	user  string                         // whom it counts for; "" is nobody
	gone  bool
}

type visitorKey struct{}

// Known says that the client of whom the context's request is has proved who
// it is. It returns false if that user has too many connections: the request
// must be refused then, and its connection ended. The members of
// system:masters and of the given groups have as many as they like.
func Known(ctx context.Context, who user.Info, unbounded ...string) bool {
	v, ok := ctx.Value(visitorKey{}).(*visitor)
	if !ok || v.known.Load() {
		return true
	}
	displaced, welcome := v.door.recognise(v, who, unbounded)
	if displaced != nil {
		_ = displaced.Close()
	}
	return welcome
}

// TooMany tells a user whom Known refuses what to do.
const TooMany = "this user has too many connections: end some, or send requests through fewer"

// Accept implements net.Listener.
func (d *Door) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	v := &visitor{Conn: conn, door: d}
	if displaced := d.enter(v, address(conn)); displaced != nil {
		_ = displaced.Close()
	}
	return v, nil
}

// address is what the clients of one machine have in common: an IPv4 address,
// or the network of an IPv6 address.
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

// enter takes a visitor in, and returns who has to go for that.
func (d *Door) enter(v *visitor, from string) (displaced *visitor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	displaced = d.makeRoom(&d.unknown, d.limits.unknown)
	v.place = d.unknown.Add(from, v)
	return displaced
}

// recognise moves a visitor among the known, and returns who has to go for that.
func (d *Door) recognise(v *visitor, who user.Info, unbounded []string) (displaced *visitor, welcome bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v.gone || v.known.Load() {
		return nil, true
	}
	name := who.GetName()
	privileged := slices.ContainsFunc(who.GetGroups(), func(group string) bool {
		return group == user.SystemPrivilegedGroup || slices.Contains(unbounded, group)
	})
	if !privileged && d.users[name] >= d.limits.perUser {
		return nil, false
	}
	v.place.Leave()
	v.place = nil
	v.known.Store(true)
	if privileged {
		return nil, true
	}
	displaced = d.makeRoom(&d.known, d.limits.known)
	v.user = name
	d.users[name]++
	v.place = d.known.Add(Tenant(name), v)
	return displaced, true
}

// makeRoom returns who has to go before another is taken in. The mutex is held.
func (d *Door) makeRoom(among *visitors, most int) *visitor {
	if among.Len() < most {
		return nil
	}
	oldest := among.Oldest()
	if oldest == nil {
		return nil
	}
	d.forget(oldest.Member)
	return oldest.Member
}

// Tenant is what a user counts as where many share something: whoever can make
// one service account in a namespace can make many.
func Tenant(name string) string {
	if strings.HasPrefix(name, serviceaccount.ServiceAccountUsernamePrefix) {
		if namespace, _, err := serviceaccount.SplitUsername(name); err == nil {
			return serviceaccount.ServiceAccountUsernamePrefix + namespace
		}
	}
	return name
}

// forget drops a visitor. The mutex is held.
func (d *Door) forget(v *visitor) {
	if v.gone {
		return
	}
	v.gone = true
	v.place.Leave()
	if v.user == "" {
		return
	}
	if d.users[v.user]--; d.users[v.user] == 0 {
		delete(d.users, v.user)
	}
}

// Close implements net.Conn.
func (v *visitor) Close() error {
	v.door.mu.Lock()
	v.door.forget(v)
	v.door.mu.Unlock()
	return v.Conn.Close()
}
