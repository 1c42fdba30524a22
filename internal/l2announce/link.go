package l2announce

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/netdump"
	"github.com/coracle-io/coracle/internal/supervise"
)

// nic is an Ethernet interface of this machine that has addresses.
type nic struct {
	index    int
	name     string
	own      hardware
	prefixes []netip.Prefix // its addresses, each with the length of its subnet
	// inside says that it is a cluster's, which leads to no other machine.
	inside bool
}

// nics returns the interfaces at which somebody may ask for addresses.
func nics() ([]nic, error) {
	of, err := netdump.GlobalAddresses()
	if err != nil {
		return nil, err
	}
	links, err := netdump.Complete(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing the interfaces of this machine: %w", err)
	}
	var list []nic
	for _, link := range links {
		is := link.Attrs()
		silent := is.RawFlags&unix.IFF_UP == 0 || is.RawFlags&(unix.IFF_NOARP|unix.IFF_POINTOPOINT|unix.IFF_LOOPBACK) != 0
		if len(of[is.Index]) > 0 && !silent && len(is.HardwareAddr) == len(hardware{}) {
			list = append(list, nic{is.Index, is.Name, hardware(is.HardwareAddr), of[is.Index], clusternames.IsClusters(is.Name)})
		}
	}
	return list, nil
}

// nicFor returns the interface on which an address is announced: one in whose subnets
// it is, if possible that of an address of the node itself. If there is none, it is the
// one with an address of the node: routers there may have a route to the announced one.
// On the interfaces of clusters, nobody needs to ask, and for an address of this machine
// its kernel answers. There is only one, so that the node does not contest its own
// announcements.
func nicFor(a netip.Addr, list []nic, own []netip.Addr) (n nic, ok bool) {
	isThis := func(p netip.Prefix) bool { return p.Addr() == a }
	if slices.ContainsFunc(list, func(n nic) bool { return slices.ContainsFunc(n.prefixes, isThis) }) {
		return nic{}, false
	}
	near := func(p netip.Prefix) bool { return p.Masked().Contains(a) }
	isOwn := func(p netip.Prefix) bool { return slices.Contains(own, p.Addr()) }
	for _, fits := range []func(netip.Prefix) bool{func(p netip.Prefix) bool { return near(p) && isOwn(p) }, near, isOwn} {
		if i := slices.IndexFunc(list, func(n nic) bool { return slices.ContainsFunc(n.prefixes, fits) }); i >= 0 {
			return list[i], !list[i].inside
		}
	}
	return nic{}, false
}

// link is an interface on which addresses are announced: packet sockets (packet(7)) for
// ARP and for IPv6, and a socket that is a member of multicast groups, so that switches
// and the interface itself pass on the questions that are sent there.
type link struct {
	nic
	arp, ipv6 *socket
	groups    int // file descriptor
	members   map[netip.Addr]int
}

// openLink opens an interface. What arrives there goes to the channel until the link is
// closed.
func openLink(ctx context.Context, n nic, arrived chan<- arrival) (*link, error) {
	l := &link{nic: n, groups: -1, members: map[netip.Addr]int{}}
	var err error
	if l.arp, err = openSocket(n, unix.ETH_P_ARP, nil); err == nil {
		l.ipv6, err = openSocket(n, unix.ETH_P_IPV6, neighbourFilter())
	}
	if err == nil {
		l.groups, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if errors.Is(err, unix.EAFNOSUPPORT) { // a kernel without IPv6
			l.groups, err = -1, nil
		}
	}
	if err != nil {
		l.close()
		return nil, fmt.Errorf("listening on %s: %w", n.name, err)
	}
	for _, s := range []*socket{l.arp, l.ipv6} {
		supervise.Go(ctx, func() { s.read(ctx, arrived) })
	}
	return l, nil
}

func (l *link) close() {
	for _, s := range []*socket{l.arp, l.ipv6} {
		if s != nil {
			_ = s.file.Close()
		}
	}
	if l.groups >= 0 {
		_ = unix.Close(l.groups)
	}
}

// join makes the interface hear questions for an address.
func (l *link) join(a netip.Addr) error {
	if !a.Is6() {
		return nil
	}
	group := solicitedNode(a)
	if l.members[group] == 0 {
		if err := l.member(unix.IPV6_ADD_MEMBERSHIP, group); err != nil {
			return fmt.Errorf("joining the group %s on %s: %w", group, l.name, err)
		}
	}
	l.members[group]++
	return nil
}

// leave undoes join.
func (l *link) leave(a netip.Addr) {
	if !a.Is6() {
		return
	}
	group := solicitedNode(a)
	if l.members[group]--; l.members[group] <= 0 {
		delete(l.members, group)
		_ = l.member(unix.IPV6_DROP_MEMBERSHIP, group) // it goes with the socket otherwise
	}
}

func (l *link) member(option int, group netip.Addr) error {
	return unix.SetsockoptIPv6Mreq(l.groups, unix.IPPROTO_IPV6, option, &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(l.index)})
}

// send sends frames of the protocol of an address.
func (l *link) send(a netip.Addr, frames ...frame) error {
	s := l.arp
	if a.Is6() {
		s = l.ipv6
	}
	for _, f := range frames {
		if err := s.send(f); err != nil {
			return fmt.Errorf("sending on %s: %w", l.name, err)
		}
	}
	return nil
}

// socket is a packet socket for one protocol on one interface, without Ethernet
// headers.
type socket struct {
	nic      nic
	protocol uint16
	file     *os.File
	raw      syscall.RawConn
}

// arrival is a packet that has arrived at an interface.
type arrival struct {
	index int
	packet
}

func openSocket(n nic, protocol uint16, filter []bpf.Instruction) (*socket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0) // hears nothing before bind
	if err != nil {
		return nil, err
	}
	err = attach(fd, filter)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(protocol), Ifindex: n.index})
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	s := &socket{nic: n, protocol: protocol, file: os.NewFile(uintptr(fd), n.name)}
	if s.raw, err = s.file.SyscallConn(); err != nil {
		_ = s.file.Close()
		return nil, err
	}
	return s, nil
}

// attach sets the filter of a socket; an empty one passes everything.
func attach(fd int, filter []bpf.Instruction) error {
	raw, err := bpf.Assemble(filter)
	if err != nil || len(raw) == 0 {
		return err
	}
	var program []unix.SockFilter
	for _, r := range raw {
		program = append(program, unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K})
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// networkOrder returns a number whose bytes in memory are in the order of the network.
func networkOrder(n uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], n)
	return binary.NativeEndian.Uint16(b[:])
}

// mostBytes is more than neighbour discovery needs. A longer packet is cut off, and so
// has a wrong length.
const mostBytes = 2048

// read passes on what arrives until the socket is closed. While nobody takes it, the
// kernel drops what does not fit into the socket's buffer.
func (s *socket) read(ctx context.Context, arrived chan<- arrival) {
	buffer := make([]byte, mostBytes)
	for {
		var size int
		var from unix.Sockaddr
		var failed error
		closed := s.raw.Read(func(fd uintptr) bool {
			size, from, failed = unix.Recvfrom(int(fd), buffer, 0)
			return !errors.Is(failed, unix.EAGAIN)
		})
		switch {
		case closed != nil:
			return
		case errors.Is(failed, unix.EINTR), errors.Is(failed, unix.ENETDOWN): // the socket works again when the interface is up
			continue
		case failed != nil:
			klog.FromContext(ctx).Error(failed, "Reading packets failed: this node does not answer for addresses there", "interface", s.nic.name)
			return
		}
		p, ok := s.parse(buffer[:size], from)
		if !ok {
			continue
		}
		select {
		case arrived <- arrival{s.nic.index, p}:
		case <-ctx.Done():
			return
		}
	}
}

func (s *socket) parse(b []byte, from unix.Sockaddr) (packet, bool) {
	sender, ok := from.(*unix.SockaddrLinklayer)
	switch {
	case !ok || sender.Halen != uint8(len(hardware{})):
		return packet{}, false
	case s.protocol == unix.ETH_P_ARP:
		return parseARP(b)
	}
	return parseNeighbour(b, hardware(sender.Addr[:6]))
}

// send sends a frame. It does not wait: what has no room is lost, as on the link.
func (s *socket) send(f frame) error {
	to := &unix.SockaddrLinklayer{Protocol: networkOrder(s.protocol), Ifindex: s.nic.index, Halen: uint8(len(f.to))}
	copy(to.Addr[:], f.to[:])
	var failed error
	if err := s.raw.Write(func(fd uintptr) bool {
		failed = unix.Sendto(int(fd), f.data, 0, to)
		return true
	}); err != nil {
		return err
	}
	if errors.Is(failed, unix.EAGAIN) || errors.Is(failed, unix.ENOBUFS) || errors.Is(failed, unix.EINTR) {
		return nil
	}
	return failed
}
