package localport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/netdump"
	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/proxy"
)

// namespace is the network namespace of the calling thread.
type namespace struct{}

// addresses leaves out those of Services, which the node has in the proxy mode ipvs.
func (namespace) addresses() ([]netip.Addr, error) {
	virtual := -1
	link, err := netlink.LinkByName(clusternames.VirtualLink)
	if err == nil {
		virtual = link.Attrs().Index
	} else if _, missing := errors.AsType[netlink.LinkNotFoundError](err); !missing {
		return nil, fmt.Errorf("looking for the interface %s: %w", clusternames.VirtualLink, err)
	}
	list, err := netdump.Complete(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("listing the node's addresses: %w", err)
	}
	var addresses []netip.Addr
	for _, a := range list {
		if address, ok := netip.AddrFromSlice(a.IP); ok && a.LinkIndex != virtual {
			addresses = append(addresses, address.Unmap())
		}
	}
	return addresses, nil
}

// States of sockets (tcp_states.h in the kernel), as bits. A datagram socket is
// closed as long as it is connected to no peer. Bound sockets, which are neither
// connected nor listen, have a state of their own that is none of these.
const (
	stateClosed = 1 << 7
	stateListen = 1 << 10
	statesAny   = 1<<12 - 1
	timeWait    = 6 // a number, not a bit
)

func (namespace) sockets(protocol v1.Protocol, visit func(socket)) error {
	states := uint32(stateListen)
	if protocol == v1.ProtocolUDP {
		states = stateClosed
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		if err := diagnose(request{family: family, protocol: nft.ProtocolNumber(protocol), states: states}, visit); err != nil {
			return err
		}
	}
	return nil
}

func (namespace) connections(p proxy.LocalPort) (live, ended bool, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} { // a socket of IPv6 may have a connection of IPv4
		r := request{family: family, protocol: nft.ProtocolNumber(p.Protocol), states: statesAny &^ stateListen, port: p.Port}
		if err := diagnose(r, func(s socket) { live, ended = live || s.state != timeWait, ended || s.state == timeWait }); err != nil {
			return false, false, err
		}
	}
	return live, ended, nil
}

// request is struct inet_diag_req_v2 of sock_diag(7).
type request struct {
	family, protocol uint8
	states           uint32
	port             uint16 // at this end; 0 is any
}

const (
	sizeOfID      = 48                // struct inet_diag_sockid
	sizeOfRequest = 8 + sizeOfID      // struct inet_diag_req_v2
	sizeOfMessage = 4 + sizeOfID + 20 // struct inet_diag_msg
)

// Len implements nl.NetlinkRequestData.
func (request) Len() int { return sizeOfRequest }

// Serialize implements nl.NetlinkRequestData.
func (r request) Serialize() []byte {
	b := make([]byte, sizeOfRequest)
	b[0], b[1] = r.family, r.protocol
	binary.NativeEndian.PutUint32(b[4:], r.states)
	binary.BigEndian.PutUint16(b[8:], r.port)
	return b
}

// diagnose visits the sockets that match a request. A kernel without the protocol
// has none.
func diagnose(r request, visit func(socket)) error {
	req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	req.AddData(r)
	err := req.ExecuteIter(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY, func(message []byte) bool {
		if s, ok := parse(message); ok && (r.port == 0 || s.port == r.port) {
			visit(s)
		}
		return true
	})
	if err != nil && !(r.protocol == unix.IPPROTO_SCTP && errors.Is(err, unix.ENOENT)) {
		return fmt.Errorf("listing sockets of protocol %d: %w", r.protocol, err)
	}
	return nil
}

// parse reads struct inet_diag_msg and the attribute behind it that says whether a
// socket of IPv6 is one of IPv6 alone.
func parse(message []byte) (s socket, ok bool) {
	if len(message) < sizeOfMessage {
		return s, false
	}
	size := 4
	if message[0] == unix.AF_INET6 {
		size = 16
	}
	s.state, s.port = message[1], binary.BigEndian.Uint16(message[4:])
	s.address, ok = netip.AddrFromSlice(message[8 : 8+size])
	s.inode = binary.NativeEndian.Uint32(message[sizeOfMessage-4:])
	attributes, err := nl.ParseRouteAttr(message[sizeOfMessage:])
	if err != nil {
		return s, false
	}
	for _, a := range attributes {
		if a.Attr.Type == netlink.INET_DIAG_SKV6ONLY && len(a.Value) > 0 {
			s.only6 = a.Value[0] != 0
		}
	}
	return s, ok
}

func (namespace) bind(p proxy.LocalPort, ended bool) (*reservation, error) {
	family, kind := unix.AF_INET, unix.SOCK_STREAM
	if p.Family == v1.IPv6Protocol {
		family = unix.AF_INET6
	}
	if p.Protocol == v1.ProtocolUDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	r, err := reserve(fd, family, p, ended)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("binding to port %d: %w", p.Port, err)
	}
	return r, nil
}

// reserve binds a new socket. It has neither SO_REUSEADDR nor SO_REUSEPORT: with
// either, a program could still listen on the port. SO_REUSEADDR is set for the
// moment of bind(2) if the port has connections of a server that has ended, which
// the kernel remembers for a minute.
func reserve(fd, family int, p proxy.LocalPort, ended bool) (*reservation, error) {
	var address unix.Sockaddr
	if family == unix.AF_INET6 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return nil, err
		}
		address = &unix.SockaddrInet6{Port: int(p.Port), Addr: addressOr(p.Address, netip.IPv6Unspecified()).As16()}
	} else {
		address = &unix.SockaddrInet4{Port: int(p.Port), Addr: addressOr(p.Address, netip.IPv4Unspecified()).As4()}
	}
	if p.Protocol == v1.ProtocolUDP { // keep the fewest of the datagrams that no rule takes
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0); err != nil {
			return nil, err
		}
	}
	ended = ended && p.Protocol == v1.ProtocolTCP
	if ended {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return nil, err
		}
	}
	if err := unix.Bind(fd, address); err != nil {
		return nil, err
	}
	if ended {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0); err != nil {
			return nil, err
		}
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, err
	}
	return &reservation{inode: uint32(stat.Ino), close: func() { _ = unix.Close(fd) }}, nil
}

func addressOr(a, all netip.Addr) netip.Addr {
	if a.IsValid() {
		return a
	}
	return all
}
