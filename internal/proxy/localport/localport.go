// Package localport finds out which ports of the node programs have, and reserves
// those to which the proxy's rules lead:
//
//	wanted ──► has a program a socket for it? ──► a socket of this process takes the rest
//	            (sock_diag(7))                    (bind(2), never listen(2))
//
// A rule takes the packets before any socket sees them, so the reservation serves
// no packets. It makes the port look taken to a program that starts later, which
// would otherwise listen and get no connections, and to the proxy of another
// cluster.
package localport

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/proxy"
)

const (
	// quiet is how long a port must have been free before a rule takes it, so that a
	// pod that waits for the port of sshd does not get it while sshd restarts.
	quiet = 10 * time.Second
	// mostHeld bounds the sockets of reservations. Each takes a file descriptor.
	mostHeld = 4096
	// mostAsked bounds the ports whose connections one Claim looks for. For each, the
	// kernel goes through all of its connections.
	mostAsked = 64
)

// Keeper is a proxy.Ports for the network namespace of the thread that calls it.
// One goroutine uses it.
type Keeper struct {
	kernel kernel
	held   map[proxy.LocalPort]*reservation
	seen   map[proxy.LocalPort]time.Time // when a program last had a wanted port
	asked  int                           // ports whose connections this Claim has looked for
}

// kernel is what a Keeper asks of the kernel.
type kernel interface {
	addresses() ([]netip.Addr, error)
	// sockets visits the sockets of a protocol that receive connections or datagrams
	// of any sender.
	sockets(protocol v1.Protocol, visit func(socket)) error
	// connections reports whether connections have the port at this end: live ones,
	// and some that have ended, which the kernel remembers for a minute.
	connections(p proxy.LocalPort) (live, ended bool, err error)
	// bind returns unix.EADDRINUSE if another socket has the port. If ended is set,
	// connections to a server that has ended do not count.
	bind(p proxy.LocalPort, ended bool) (*reservation, error)
}

// reservation is a socket that is bound to a port and does nothing.
type reservation struct {
	inode uint32
	close func()
}

// New returns a Keeper that has reserved nothing.
func New() *Keeper {
	return &Keeper{kernel: namespace{}, held: map[proxy.LocalPort]*reservation{}, seen: map[proxy.LocalPort]time.Time{}}
}

// Addresses implements proxy.Ports.
func (k *Keeper) Addresses() ([]netip.Addr, error) { return k.kernel.addresses() }

// Release implements proxy.Ports.
func (k *Keeper) Release() { k.release() }

// Claim implements proxy.Ports.
func (k *Keeper) Claim(wanted map[proxy.LocalPort]proxy.Claim) (map[proxy.LocalPort]proxy.Obstacle, error) {
	uses, err := k.uses(wanted)
	now := time.Now()
	maps.DeleteFunc(k.seen, func(_ proxy.LocalPort, at time.Time) bool { return now.Sub(at) >= quiet })
	obstacles := map[proxy.LocalPort]proxy.Obstacle{}
	for p := range wanted {
		if uses[p] == taken {
			k.seen[p], obstacles[p] = now, proxy.InUse
		} else if _, recently := k.seen[p]; recently {
			obstacles[p] = proxy.RecentlyInUse
		}
	}
	reserve := k.reservations(wanted, obstacles)
	k.release(reserve...)
	k.asked = 0
	for _, p := range reserve {
		if k.held[p] == nil && !k.reserve(p, uses[p]) {
			k.seen[p], obstacles[p] = now, proxy.InUse
		}
	}
	return obstacles, err
}

// reserve reserves a port as far as it can be. It returns false if another process
// has it. What cannot be reserved may have a socket that gets nothing of what the
// rule takes: a server at another address, such as loopback, or a connection.
// Otherwise its socket cannot be seen, as those of reservations.
func (k *Keeper) reserve(p proxy.LocalPort, u use) bool {
	r, err := k.kernel.bind(p, false)
	if errors.Is(err, unix.EADDRINUSE) && u != near {
		if k.asked++; k.asked > mostAsked {
			return false
		}
		live, ended, unknown := k.kernel.connections(p)
		if unknown != nil || !live && !ended {
			return false
		}
		if r, err = k.kernel.bind(p, true); errors.Is(err, unix.EADDRINUSE) && !live {
			return false
		}
	}
	if err == nil {
		k.held[p] = r
	}
	return true
}

// release closes all reservations except some.
func (k *Keeper) release(except ...proxy.LocalPort) {
	stay := map[proxy.LocalPort]bool{}
	for _, p := range except {
		stay[p] = true
	}
	for p, r := range k.held {
		if !stay[p] {
			r.close()
			delete(k.held, p)
		}
	}
}

// reservations returns the ports to reserve, in an order that does not depend on
// chance. A port of all addresses includes those of single addresses.
func (k *Keeper) reservations(wanted map[proxy.LocalPort]proxy.Claim, obstacles map[proxy.LocalPort]proxy.Obstacle) (reserve []proxy.LocalPort) {
	var list []proxy.LocalPort
	for p, c := range wanted {
		hold := c.Hold == proxy.HoldIfVacant || c.Hold == proxy.HoldIfHeld && k.held[p] != nil
		if hold && obstacles[p] == "" && p.Protocol != v1.ProtocolSCTP { // a socket for SCTP would load its module
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b proxy.LocalPort) int { // ports of all addresses first
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Family, b.Family))
	})
	everywhere := map[proxy.LocalPort]bool{}
	for _, p := range list {
		all := p
		all.Address = netip.Addr{}
		if len(reserve) < mostHeld && !everywhere[all] {
			reserve, everywhere[all] = append(reserve, p), !p.Address.IsValid()
		}
	}
	return reserve
}

// use is what programs do with a port.
type use int

const (
	unused use = iota
	near       // a program has the port, and gets nothing of what a rule takes
	taken      // a program gets what the rule would take
)

// uses finds out what programs do with ports. It visits all sockets and remembers
// none, so that its memory depends on what is wanted alone.
func (k *Keeper) uses(wanted map[proxy.LocalPort]proxy.Claim) (map[proxy.LocalPort]use, error) {
	type number struct {
		protocol v1.Protocol
		port     uint16
	}
	byNumber, protocols := map[number][]proxy.LocalPort{}, map[v1.Protocol]bool{}
	for p := range wanted {
		n := number{p.Protocol, p.Port}
		byNumber[n], protocols[p.Protocol] = append(byNumber[n], p), true
	}
	own := map[uint32]bool{}
	for _, r := range k.held {
		own[r.inode] = true
	}
	uses := map[proxy.LocalPort]use{}
	var errs []error
	for protocol := range protocols {
		errs = append(errs, k.kernel.sockets(protocol, func(s socket) {
			if own[s.inode] {
				return
			}
			for _, p := range byNumber[number{protocol, s.port}] {
				uses[p] = max(uses[p], useOf(s, p, wanted[p]))
			}
		}))
	}
	return uses, errors.Join(errs...)
}

// socket is a socket that receives connections or datagrams of any sender.
type socket struct {
	address netip.Addr // unspecified: of all addresses
	port    uint16
	only6   bool // an unspecified IPv6 address without the IPv4 ones
	inode   uint32
	state   uint8
}

// useOf returns what a socket on the same protocol and port has of what a rule would
// take. A rule for all addresses can take connections to loopback in IPv4 only.
func useOf(s socket, p proxy.LocalPort, c proxy.Claim) use {
	address := s.address.Unmap()
	if address.Is6() && address.IsUnspecified() {
		if p.Family == v1.IPv4Protocol && s.only6 {
			return unused
		}
		return taken
	}
	if address.Is4() != (p.Family == v1.IPv4Protocol) {
		return unused
	}
	switch {
	case address.IsUnspecified(), address == p.Address:
		return taken
	case p.Address.IsValid(), address.IsMulticast(), address.IsLoopback() && !(c.Loopback && address.Is4()), !c.At.Contains(address):
		return near
	}
	return taken
}
