package l2announce

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// packet is what this package understands of an ARP packet (RFC 826) or a neighbour
// solicitation or advertisement (RFC 4861).
type packet struct {
	from hardware // who has sent it
	// asks is the address whose hardware address the sender wants to know, and asker
	// the address of the sender, unspecified if it has none yet. An invalid asks is no
	// question.
	asks, asker netip.Addr
	// claims is the address that the sender says it has; invalid for none.
	claims netip.Addr
}

// Offsets and values in ARP packets for Ethernet and IPv4.
const (
	arpSize    = 28
	arpRequest = 1
	arpReply   = 2
)

// parseARP parses an ARP packet. Those of other protocols are not ok.
func parseARP(b []byte) (p packet, ok bool) {
	if len(b) < arpSize || binary.BigEndian.Uint16(b) != unix.ARPHRD_ETHER || binary.BigEndian.Uint16(b[2:]) != unix.ETH_P_IP || b[4] != 6 || b[5] != 4 {
		return p, false
	}
	sender, target := netip.AddrFrom4([4]byte(b[14:18])), netip.AddrFrom4([4]byte(b[24:28]))
	p.from = hardware(b[8:14])
	switch binary.BigEndian.Uint16(b[6:]) {
	case arpRequest:
		if sender != target { // otherwise it is an announcement
			p.asks, p.asker = target, sender
		}
	case arpReply:
	default:
		return p, false
	}
	if !sender.IsUnspecified() {
		p.claims = sender
	}
	return p, p.from.isMachine()
}

// isMachine reports whether the address can be that of one interface.
func (h hardware) isMachine() bool { return h[0]&1 == 0 && !h.isZero() }

// arp returns an ARP packet.
func arp(operation uint16, from hardware, sender netip.Addr, to hardware, target netip.Addr) []byte {
	b := make([]byte, 0, arpSize)
	b = binary.BigEndian.AppendUint16(b, unix.ARPHRD_ETHER)
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IP)
	b = append(b, 6, 4)
	b = binary.BigEndian.AppendUint16(b, operation)
	b = append(b, from[:]...)
	b = append(b, sender.AsSlice()...)
	b = append(b, to[:]...)
	return append(b, target.AsSlice()...)
}

// Offsets and values in IPv6 packets of neighbour discovery.
const (
	ipv6Size         = 40
	neighbourSize    = 24 // of a solicitation or advertisement without options
	solicitation     = 135
	advertisement    = 136
	solicitedFlag    = 1 << 6
	overrideFlag     = 1 << 5
	targetLinkOption = 2
	neighbourHops    = 255 // what a router would have reduced
)

// allNodes returns the multicast address of all nodes of a link.
func allNodes() netip.Addr { return netip.MustParseAddr("ff02::1") }

// solicitedNode returns the multicast address at which the holder of an address is
// asked.
func solicitedNode(a netip.Addr) netip.Addr {
	group, of := netip.MustParseAddr("ff02::1:ff00:0").As16(), a.As16()
	copy(group[13:], of[13:])
	return netip.AddrFrom16(group)
}

// multicast returns the hardware address of a multicast address (RFC 2464).
func multicast(a netip.Addr) hardware {
	of := a.As16()
	return hardware{0x33, 0x33, of[12], of[13], of[14], of[15]}
}

// parseNeighbour parses an IPv6 packet that an interface with the hardware address
// from has sent. Padding of the link may follow it.
func parseNeighbour(b []byte, from hardware) (p packet, ok bool) {
	if len(b) < ipv6Size+neighbourSize || b[0]>>4 != 6 || b[6] != unix.IPPROTO_ICMPV6 || b[7] != neighbourHops || b[ipv6Size+1] != 0 {
		return p, false
	}
	source, destination, target := netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40])), netip.AddrFrom16([16]byte(b[48:64]))
	size := int(binary.BigEndian.Uint16(b[4:]))
	if size < neighbourSize || size%8 != 0 || size > len(b)-ipv6Size || checksum(source, destination, b[ipv6Size:ipv6Size+size]) != 0 {
		return p, false
	}
	p.from = from
	switch b[ipv6Size] {
	case solicitation:
		p.asks, p.asker = target, source
	case advertisement:
		p.claims = target
	default:
		return p, false
	}
	return p, from.isMachine() && !target.IsMulticast()
}

// neighbour returns the IPv6 packet of a solicitation or an advertisement.
func neighbour(kind, flags byte, source, destination, target netip.Addr, options ...byte) []byte {
	body := append([]byte{kind, 0, 0, 0, flags, 0, 0, 0}, target.AsSlice()...)
	body = append(body, options...)
	binary.BigEndian.PutUint16(body[2:], checksum(source, destination, body))
	b := make([]byte, 0, ipv6Size+len(body))
	b = append(b, 6<<4, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	b = append(b, unix.IPPROTO_ICMPV6, neighbourHops)
	b = append(b, source.AsSlice()...)
	b = append(b, destination.AsSlice()...)
	return append(b, body...)
}

// checksum returns the checksum of an ICMPv6 message (RFC 4443) of an even length, whose
// own field is zero. If the field has the right checksum, it returns 0.
func checksum(source, destination netip.Addr, body []byte) uint16 {
	sum := uint32(len(body)) + unix.IPPROTO_ICMPV6
	for _, part := range [][]byte{source.AsSlice(), destination.AsSlice(), body} {
		for i := 0; i+1 < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// frame is a packet and the hardware address that it is sent to.
type frame struct {
	to   hardware
	data []byte
}

// everybody is the hardware address of broadcasts.
func everybody() hardware { return hardware{0xff, 0xff, 0xff, 0xff, 0xff, 0xff} }

// answer returns what tells the sender of a question that this interface has the
// address.
func answer(p packet, own hardware) frame {
	if p.asks.Is4() {
		return frame{p.from, arp(arpReply, own, p.asks, p.from, p.asker)}
	}
	// Who has no address yet gets the answer by multicast, but not everybody else does.
	flags, destination := byte(overrideFlag|solicitedFlag), p.asker
	if p.asker.IsUnspecified() {
		flags, destination = overrideFlag, allNodes()
	}
	return frame{p.from, advertise(flags, p.asks, destination, own)}
}

func advertise(flags byte, address, destination netip.Addr, own hardware) []byte {
	return neighbour(advertisement, flags, address, destination, address, append([]byte{targetLinkOption, 1}, own[:]...)...)
}

// announcement returns what tells everybody that this interface has an address: ARP in
// both forms, as some machines understand only one, or an unsolicited advertisement.
func announcement(a netip.Addr, own hardware) []frame {
	if a.Is4() {
		return []frame{
			{everybody(), arp(arpRequest, own, a, hardware{}, a)},
			{everybody(), arp(arpReply, own, a, own, a)},
		}
	}
	return []frame{{multicast(allNodes()), advertise(overrideFlag, a, allNodes(), own)}}
}

// probe returns a question for an address that changes nobody's memory, because it has
// no sender (RFC 5227, RFC 4862). It is for one machine, or for everybody.
func probe(a netip.Addr, own, to hardware) frame {
	if a.Is4() {
		if to.isZero() {
			to = everybody()
		}
		return frame{to, arp(arpRequest, own, netip.IPv4Unspecified(), hardware{}, a)}
	}
	group := solicitedNode(a)
	if to.isZero() {
		to = multicast(group)
	}
	return frame{to, neighbour(solicitation, 0, netip.IPv6Unspecified(), group, a)}
}

// neighbourFilter returns the program by which the kernel passes on only neighbour
// solicitations and advertisements, of all IPv6 packets.
func neighbourFilter() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 6, Size: 1}, // next header
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: 3},
		bpf.LoadAbsolute{Off: ipv6Size, Size: 1}, // type
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: solicitation, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: advertisement, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: 1 << 16},
	}
}
