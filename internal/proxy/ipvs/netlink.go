package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/netdump"
	"github.com/coracle-io/coracle/internal/nft"
)

// The kernel's interface, from linux/ip_vs.h: a family of generic netlink. Its messages
// have nested attributes for a virtual server and for a destination, its endpoint.
const (
	familyName    = "IPVS"
	familyVersion = 1

	cmdNewService = 1
	cmdSetService = 2
	cmdDelService = 3
	cmdGetService = 4
	cmdNewDest    = 5
	cmdSetDest    = 6
	cmdDelDest    = 7
	cmdGetDest    = 8
	cmdSetConfig  = 12

	attrService    = 1
	attrDest       = 2
	attrTimeoutTCP = 4
	attrTimeoutFin = 5
	attrTimeoutUDP = 6

	serviceFamily    = 1
	serviceProtocol  = 2
	serviceAddress   = 3
	servicePort      = 4
	serviceMark      = 5
	serviceScheduler = 6
	serviceFlags     = 7
	serviceTimeout   = 8
	serviceNetmask   = 9

	destAddress  = 1
	destPort     = 2
	destMethod   = 3
	destWeight   = 4
	destUpper    = 5
	destLower    = 6
	destActive   = 7
	destInactive = 8
	destFamily   = 11

	flagPersistent = 0x1
	flagSourcePort = 0x10 // IP_VS_SVC_F_SCHED2, mh-port and sh-port

	methodMasquerade = 0 // IP_VS_CONN_F_MASQ: the kernel translates addresses
)

// destination is an endpoint as the kernel has it.
type destination struct {
	weight uint32
	// connections are those that the kernel knows, also ones that have ended a moment
	// ago. Only a list of destinations has them.
	connections uint64
}

// kernel is what a Backend asks of IPVS. A change of what is not there is an error.
type kernel interface {
	// list returns all virtual servers that are known by address and port.
	list() (map[frontend]server, error)
	// destinations returns the destinations of a virtual server.
	destinations(f frontend) (map[netip.AddrPort]destination, error)
	// put adds a virtual server, or with exists changes it.
	put(f frontend, s server, exists bool) error
	remove(f frontend) error
	// putDestination adds a destination, or with exists changes its weight.
	putDestination(f frontend, to netip.AddrPort, weight uint32, exists bool) error
	removeDestination(f frontend, to netip.AddrPort) error
	// setTimeouts sets how long connections are known; 0 leaves a timeout as it is.
	setTimeouts(t Timeouts) error
	close()
}

// family is the IPVS of a network namespace.
type family struct {
	id     int
	socket *nl.SocketHandle
}

// connect returns the IPVS of a network namespace, by its file descriptor; 0 is that of
// the calling thread. The error is unix.ENOENT if the kernel has none.
func connect(netNS int) (kernel, error) {
	handle, err := openHandle(netNS)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	is, err := handle.GenlFamilyGet(familyName)
	if err != nil {
		return nil, fmt.Errorf("looking for IPVS in the kernel: %w", err)
	}
	ns := netns.None()
	if netNS != 0 {
		ns = netns.NsHandle(netNS)
	}
	socket, err := nl.GetNetlinkSocketAt(ns, netns.None(), unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("connecting to IPVS: %w", err)
	}
	f := &family{int(is.ID), &nl.SocketHandle{Socket: socket}}
	if err := errors.Join(socket.SetSendTimeout(&nl.SocketTimeoutTv), socket.SetReceiveTimeout(&nl.SocketTimeoutTv)); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// openHandle opens a connection for links, addresses and families of generic netlink.
func openHandle(netNS int) (*netlink.Handle, error) {
	if netNS == 0 {
		return netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_GENERIC)
	}
	return netlink.NewHandleAt(netns.NsHandle(netNS), unix.NETLINK_ROUTE, unix.NETLINK_GENERIC)
}

func (k *family) close() { k.socket.Close() }

// header is struct genlmsghdr for a command.
type header uint8

// Len implements nl.NetlinkRequestData.
func (header) Len() int { return nl.SizeofGenlmsg }

// Serialize implements nl.NetlinkRequestData.
func (h header) Serialize() []byte { return []byte{byte(h), familyVersion, 0, 0} }

// send sends a request and returns the answers, without their headers.
func (k *family) send(command uint8, flags int, attributes ...*nl.RtAttr) ([][]byte, error) {
	request := nl.NewNetlinkRequest(k.id, flags)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_GENERIC: k.socket}
	request.AddData(header(command))
	for _, a := range attributes {
		request.AddData(a)
	}
	answers, err := request.Execute(unix.NETLINK_GENERIC, 0)
	for i := range answers {
		answers[i] = answers[i][min(nl.SizeofGenlmsg, len(answers[i])):]
	}
	return answers, err
}

// change sends a request whose answer is an error or nothing.
func (k *family) change(command uint8, attributes ...*nl.RtAttr) error {
	_, err := k.send(command, unix.NLM_F_ACK, attributes...)
	return err
}

// dump returns all answers to a request for a list.
func (k *family) dump(command uint8, attributes ...*nl.RtAttr) ([][]byte, error) {
	return netdump.Complete(func() ([][]byte, error) { return k.send(command, unix.NLM_F_DUMP, attributes...) })
}

func (k *family) list() (map[frontend]server, error) {
	answers, err := k.dump(cmdGetService)
	if err != nil {
		return nil, fmt.Errorf("listing virtual servers: %w", err)
	}
	all := map[frontend]server{}
	for _, message := range answers {
		f, s, ok, err := parseService(message)
		if err != nil {
			return nil, fmt.Errorf("reading a virtual server: %w", err)
		}
		if ok {
			all[f] = s
		}
	}
	return all, nil
}

func (k *family) destinations(f frontend) (map[netip.AddrPort]destination, error) {
	answers, err := k.dump(cmdGetDest, f.attribute())
	if err != nil {
		return nil, fmt.Errorf("listing the destinations of %s: %w", f, err)
	}
	all := map[netip.AddrPort]destination{}
	for _, message := range answers {
		to, d, err := parseDestination(message, f.at.Addr().Is4())
		if err != nil {
			return nil, fmt.Errorf("reading a destination of %s: %w", f, err)
		}
		all[to] = d
	}
	return all, nil
}

func (k *family) put(f frontend, s server, exists bool) error {
	command := uint8(cmdNewService)
	if exists {
		command = cmdSetService
	}
	err := k.change(command, serviceAttribute(f, s))
	if errors.Is(err, unix.ENOENT) && !exists {
		return fmt.Errorf("adding the virtual server %s: the kernel has no scheduler %q (module ip_vs_%s): %w", f, s.scheduler, s.scheduler, err)
	}
	return wrap(err, "setting the virtual server %s", f)
}

func (k *family) remove(f frontend) error {
	return wrap(k.change(cmdDelService, f.attribute()), "removing the virtual server %s", f)
}

func (k *family) putDestination(f frontend, to netip.AddrPort, weight uint32, exists bool) error {
	command := uint8(cmdNewDest)
	if exists {
		command = cmdSetDest
	}
	return wrap(k.change(command, f.attribute(), destinationAttribute(to, weight)), "setting the destination %s of %s", to, f)
}

func (k *family) removeDestination(f frontend, to netip.AddrPort) error {
	return wrap(k.change(cmdDelDest, f.attribute(), destinationKey(to)), "removing the destination %s of %s", to, f)
}

func (k *family) setTimeouts(t Timeouts) error {
	return wrap(k.change(cmdSetConfig, timeoutAttributes(t)...), "setting timeouts of IPVS")
}

// wrap adds what was tried to an error.
func wrap(err error, format string, values ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, values...), err)
}

// attribute returns the attribute that names a virtual server.
func (f frontend) attribute() *nl.RtAttr {
	a := nl.NewRtAttr(attrService, nil)
	a.AddRtAttr(serviceFamily, nl.Uint16Attr(addressFamily(f.at.Addr())))
	a.AddRtAttr(serviceProtocol, nl.Uint16Attr(uint16(nft.ProtocolNumber(f.protocol))))
	a.AddRtAttr(serviceAddress, address(f.at.Addr()))
	a.AddRtAttr(servicePort, nl.BEUint16Attr(f.at.Port()))
	return a
}

func (f frontend) String() string { return fmt.Sprintf("%s %s", f.protocol, f.at) }

// serviceAttribute returns the attribute with all of a virtual server. The netmask of
// persistence is that of a single client, in IPv6 the length of its prefix.
func serviceAttribute(f frontend, s server) *nl.RtAttr {
	a := f.attribute()
	a.AddRtAttr(serviceScheduler, nl.ZeroTerminated(s.scheduler))
	const mask = ^uint32(0) // all flags are told
	a.AddRtAttr(serviceFlags, append(nl.Uint32Attr(s.flags()), nl.Uint32Attr(mask)...))
	a.AddRtAttr(serviceTimeout, nl.Uint32Attr(s.persistence))
	netmask := ^uint32(0)
	if f.at.Addr().Is6() {
		netmask = 128
	}
	a.AddRtAttr(serviceNetmask, nl.Uint32Attr(netmask))
	return a
}

func (s server) flags() (flags uint32) {
	if s.persistence > 0 {
		flags |= flagPersistent
	}
	if s.sourcePort {
		flags |= flagSourcePort
	}
	return flags
}

// destinationKey returns the attribute that names a destination.
func destinationKey(to netip.AddrPort) *nl.RtAttr {
	a := nl.NewRtAttr(attrDest, nil)
	a.AddRtAttr(destFamily, nl.Uint16Attr(addressFamily(to.Addr())))
	a.AddRtAttr(destAddress, address(to.Addr()))
	a.AddRtAttr(destPort, nl.BEUint16Attr(to.Port()))
	return a
}

// destinationAttribute returns the attribute with all of a destination. It has no bounds
// of connections.
func destinationAttribute(to netip.AddrPort, weight uint32) *nl.RtAttr {
	a := destinationKey(to)
	for _, field := range []struct {
		kind  int
		value uint32
	}{{destMethod, methodMasquerade}, {destWeight, weight}, {destUpper, 0}, {destLower, 0}} {
		a.AddRtAttr(field.kind, nl.Uint32Attr(field.value))
	}
	return a
}

func timeoutAttributes(t Timeouts) (list []*nl.RtAttr) {
	for _, timeout := range []struct {
		kind  int
		value time.Duration
	}{{attrTimeoutTCP, t.TCP}, {attrTimeoutFin, t.TCPFin}, {attrTimeoutUDP, t.UDP}} {
		list = append(list, nl.NewRtAttr(timeout.kind, nl.Uint32Attr(uint32(timeout.value/time.Second))))
	}
	return list
}

func addressFamily(a netip.Addr) uint16 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// address returns union nf_inet_addr.
func address(a netip.Addr) []byte {
	b := make([]byte, 16)
	copy(b, a.AsSlice())
	return b
}

// fields are attributes by their types.
type fields map[uint16][]byte

var errShort = errors.New("an attribute is too short")

// nested returns the attributes in one of a message.
func nested(message []byte, kind uint16) (fields, error) {
	outer, err := parse(message)
	if err != nil {
		return nil, err
	}
	return parse(outer[kind])
}

func parse(data []byte) (fields, error) {
	list, err := nl.ParseRouteAttr(data)
	if err != nil {
		return nil, err
	}
	f := fields{}
	for _, a := range list {
		f[a.Attr.Type&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)] = a.Value
	}
	return f, nil
}

func (f fields) uint16(kind uint16, order binary.ByteOrder) (uint16, error) {
	if len(f[kind]) < 2 {
		return 0, errShort
	}
	return order.Uint16(f[kind]), nil
}

func (f fields) uint32(kind uint16) (uint32, error) {
	if len(f[kind]) < 4 {
		return 0, errShort
	}
	return binary.NativeEndian.Uint32(f[kind]), nil
}

func (f fields) address(kind uint16, is4 bool) (netip.Addr, error) {
	if len(f[kind]) < 16 {
		return netip.Addr{}, errShort
	}
	if is4 {
		return netip.AddrFrom4([4]byte(f[kind])), nil
	}
	return netip.AddrFrom16([16]byte(f[kind])), nil
}

// parseService reads a virtual server. ok is false for one that is known by a packet mark
// or has a protocol that no Service has.
func parseService(message []byte) (f frontend, s server, ok bool, err error) {
	all, err := nested(message, attrService)
	if err != nil {
		return f, s, false, err
	}
	if _, marked := all[serviceMark]; marked {
		return f, s, false, nil
	}
	number, err1 := all.uint16(serviceFamily, binary.NativeEndian)
	protocol, err2 := all.uint16(serviceProtocol, binary.NativeEndian)
	a, err3 := all.address(serviceAddress, number == unix.AF_INET)
	port, err4 := all.uint16(servicePort, binary.BigEndian)
	flags, err5 := all.uint32(serviceFlags)
	timeout, err6 := all.uint32(serviceTimeout)
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return f, s, false, err
	}
	f.at = netip.AddrPortFrom(a, port)
	if f.protocol, ok = protocolOf(protocol); !ok {
		return f, s, false, nil
	}
	s.scheduler, s.sourcePort = unix.ByteSliceToString(all[serviceScheduler]), flags&flagSourcePort != 0
	if flags&flagPersistent != 0 {
		s.persistence = timeout
	}
	return f, s, true, nil
}

// protocolOf returns a protocol by its number.
func protocolOf(number uint16) (v1.Protocol, bool) {
	for _, p := range []v1.Protocol{v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP} {
		if uint16(nft.ProtocolNumber(p)) == number {
			return p, true
		}
	}
	return "", false
}

// parseDestination reads a destination of a virtual server.
func parseDestination(message []byte, is4 bool) (netip.AddrPort, destination, error) {
	all, err := nested(message, attrDest)
	if err != nil {
		return netip.AddrPort{}, destination{}, err
	}
	if number, err := all.uint16(destFamily, binary.NativeEndian); err == nil { // since Linux 3.18
		is4 = number == unix.AF_INET
	}
	a, err1 := all.address(destAddress, is4)
	port, err2 := all.uint16(destPort, binary.BigEndian)
	weight, err3 := all.uint32(destWeight)
	active, err4 := all.uint32(destActive)
	inactive, err5 := all.uint32(destInactive)
	err = errors.Join(err1, err2, err3, err4, err5)
	return netip.AddrPortFrom(a, port), destination{weight, uint64(active) + uint64(inactive)}, err
}

// isMissing reports whether an error says that what was to be changed is not there.
// ESRCH is about virtual servers, ENOENT about destinations.
func isMissing(err error) bool {
	return errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.ENOENT)
}
