package userspace

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/fairevict"
	"github.com/coracle-io/coracle/internal/netnamespace"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Bounds of connections. A connection of TCP takes two sockets, a flow of UDP one.
const (
	mostOfPort = 2_048  // of one port of a Service
	mostOfAll  = 16_384 // of all
)

// room bounds the connections of each listener, and of all. When there is no more, a new one
// takes the place of the oldest of the client that has most, so that no client keeps others
// from a Service.
type room struct {
	mostOfPort, mostOfAll int

	mu  sync.Mutex // guards the following, and the seats of listeners
	all seats
}

func newRoom() *room { return &room{mostOfPort: mostOfPort, mostOfAll: mostOfAll} }

// seats are connections by their clients.
type seats = fairevict.Set[netip.Addr, *seat]

// seat is the place of a connection among those of its listener, and among all.
type seat struct {
	connection    connection
	ofPort, ofAll *fairevict.Entry[netip.Addr, *seat]
}

// add gives a client's connection a seat, and returns the one that must end for it, nil if
// none must.
func (r *room) add(s *seat, ofPort *seats, client netip.Addr) (victim *seat) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case ofPort.Len() >= r.mostOfPort:
		victim = ofPort.Victim().Member
	case r.all.Len() >= r.mostOfAll:
		victim = r.all.Victim().Member
	}
	if victim != nil {
		victim.free()
	}
	s.ofPort, s.ofAll = ofPort.Add(client, s), r.all.Add(client, s)
	return victim
}

// remove gives a seat back. One that has been given to another connection stays that one's.
func (r *room) remove(s *seat) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.free()
}

// free frees a seat. The caller must hold the mutex of the room.
func (s *seat) free() {
	s.ofPort.Remove()
	s.ofAll.Remove()
}

// listener takes the connections to one port of a Service, which the table of nftables
// redirects to a port of the node.
type listener struct {
	// label says in the log which port it is of.
	label    string
	family   v1.IPFamily
	netNS    int
	port     uint16
	balancer balancer
	room     *room
	seats    seats // the mutex of room guards it
	// ctx ends when the listener is closed.
	ctx    context.Context
	cancel context.CancelFunc
	work   supervise.WaitGroup
	// closeSocket closes the socket that listens.
	closeSocket func() error

	mu     sync.Mutex // guards the following
	ended  bool
	active map[connection]netip.AddrPort // with its endpoint; the zero value before it has one
}

// connection is a connection of TCP or a flow of UDP.
type connection interface {
	// abort ends it at once, and tells both sides as far as its protocol can.
	abort()
}

// listen opens a listener at a port of the node that the kernel chooses.
func listen(ctx context.Context, netNS int, label string, protocol v1.Protocol, family v1.IPFamily, all *room) (*listener, error) {
	l := &listener{label: label, family: family, netNS: netNS, room: all, active: map[connection]netip.AddrPort{}}
	l.ctx, l.cancel = context.WithCancel(ctx)
	var serve func()
	err := l.inside(func() (err error) {
		if protocol == v1.ProtocolUDP {
			serve, err = l.listenUDP()
		} else {
			serve, err = l.listenTCP()
		}
		return err
	})
	if err != nil {
		l.cancel()
		return nil, fmt.Errorf("opening a port for %s: %w", label, err)
	}
	l.run(serve)
	return l, nil
}

// inside calls do, which makes a socket, in the network namespace. It keeps no thread of
// its own for that in the namespace of the process.
func (l *listener) inside(do func() error) error {
	if l.netNS == 0 {
		return do()
	}
	return netnamespace.Do(l.netNS, do)
}

// network returns the name of a network of the listener's family, for "tcp" or "udp".
func (l *listener) network(of string) string {
	if l.family == v1.IPv6Protocol {
		return of + "6"
	}
	return of + "4"
}

// run does work in a goroutine, and recovers from its panics.
func (l *listener) run(work func()) {
	l.work.Go(l.ctx, func() { supervise.Contain(l.ctx, "the proxy of "+l.label, work) })
}

// set sets the endpoints, and ends the connections to others.
func (l *listener) set(endpoints []netip.AddrPort, affinity time.Duration) {
	l.balancer.set(endpoints, affinity)
	stay := map[netip.AddrPort]bool{{}: true}
	for _, e := range endpoints {
		stay[e] = true
	}
	l.abort(func(endpoint netip.AddrPort) bool { return !stay[endpoint] })
}

// abort ends the connections whose endpoint is among some.
func (l *listener) abort(among func(netip.AddrPort) bool) {
	var ending []connection
	l.mu.Lock()
	for c, endpoint := range l.active {
		if among(endpoint) {
			ending = append(ending, c)
		}
	}
	l.mu.Unlock()
	for _, c := range ending {
		c.abort()
	}
}

// close ends the listener with all of its connections, and waits for that.
func (l *listener) close() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.cancel()
	_ = l.closeSocket()
	l.abort(func(netip.AddrPort) bool { return true })
	l.work.Wait()
}

// admit adds a connection of a client, and ends another one if there are too many. It
// returns nil if the listener has ended.
func (l *listener) admit(c connection, client netip.Addr) *seat {
	if !l.activate(c) {
		return nil
	}
	s := &seat{connection: c}
	if victim := l.room.add(s, &l.seats, client); victim != nil {
		klog.FromContext(l.ctx).V(2).Info("There are too many connections; ending one for another", "service", l.label)
		victim.connection.abort()
	}
	return s
}

// activate adds a connection to those that end with the listener. It reports false if that
// has ended.
func (l *listener) activate(c connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.active[c] = netip.AddrPort{}
	return true
}

// use records the endpoint of a connection. It reports false if the connection must end,
// because the endpoint has gone meanwhile or the listener has ended.
func (l *listener) use(c connection, endpoint netip.AddrPort) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active[c] = endpoint
	return !l.ended && l.balancer.has(endpoint)
}

// leave removes a connection that was admitted.
func (l *listener) leave(s *seat) {
	l.room.remove(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.active, s.connection)
}

// has reports whether an endpoint is among those to choose from.
func (b *balancer) has(endpoint netip.AddrPort) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.endpoints, endpoint)
}

// dialTimeouts are how long the endpoints may take to answer that are tried one after
// another for one connection.
func dialTimeouts() []time.Duration {
	return []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}
}

// dial connects to an endpoint for a client, until ctx ends. If one does not answer, it
// tries the next.
func (l *listener) dial(ctx context.Context, network string, client netip.Addr) (net.Conn, netip.AddrPort, error) {
	var failure error
	for _, patience := range dialTimeouts() {
		endpoint, ok := l.balancer.choose(client, time.Now())
		if !ok {
			return nil, endpoint, fmt.Errorf("there is no endpoint of %s", l.label)
		}
		var to net.Conn
		failure = l.inside(func() (err error) {
			dialer := net.Dialer{Timeout: patience}
			to, err = dialer.DialContext(ctx, network, endpoint.String())
			return err
		})
		if failure == nil {
			return to, endpoint, nil
		}
		if ctx.Err() != nil { // which is not for want of an answer
			break
		}
		l.balancer.forget(client)
	}
	return nil, netip.AddrPort{}, failure
}
