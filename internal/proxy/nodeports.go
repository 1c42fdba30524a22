package proxy

import (
	"fmt"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// NodePortAddresses says at which addresses of the node its node ports answer, as
// kube-proxy's nodePortAddresses. The zero value means all addresses, except for those of
// loopback.
type NodePortAddresses struct {
	// Ranges are ranges of addresses.
	Ranges []netip.Prefix
	// Primary adds the node's primary address of each family, by its object.
	Primary bool
	// Bind replaces the primary address of its family, if it is valid.
	Bind netip.Addr
	// Loopback adds the loopback addresses of IPv4 that are in Ranges, or all of them
	// without Ranges.
	Loopback bool
}

// HasLoopback reports whether the loopback addresses of IPv4 are among the addresses.
func (n NodePortAddresses) HasLoopback() bool {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if !n.Primary {
		return NodePortRanges(n.Ranges).Contains(loopback)
	}
	return slices.ContainsFunc(n.Ranges, func(p netip.Prefix) bool { return p.Contains(loopback) })
}

// The words for ranges of addresses.
const (
	nodePortsPrimary   = "primary"
	nodePortsLocalhost = "localhost"
	nodePortsAll       = "all"
)

// ParseNodePortAddresses parses a list of CIDRs and the words primary, localhost and
// all.
func ParseNodePortAddresses(list []string) (NodePortAddresses, error) {
	n := NodePortAddresses{}
	for _, text := range list {
		switch text {
		case nodePortsPrimary:
			n.Primary = true
		case nodePortsLocalhost:
			n.Ranges = append(n.Ranges, loopbackRanges()...)
		case nodePortsAll:
			n.Ranges = append(n.Ranges, netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0))
		default:
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return NodePortAddresses{}, fmt.Errorf("%q: want a range such as 192.0.2.0/24, %s, %s or %s", text, nodePortsPrimary, nodePortsAll, nodePortsLocalhost)
			}
			n.Ranges = append(n.Ranges, p.Masked())
		}
	}
	return n, nil
}

// loopbackRanges are ranges in which no node port answers, unless
// NodePortAddresses.Loopback is set.
func loopbackRanges() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

// NodePortRanges are the ranges in which node ports answer. As in upstream, a family
// of which there is no range has node ports at all addresses.
type NodePortRanges []netip.Prefix

// Of returns the ranges of one family; nil means all addresses.
func (r NodePortRanges) Of(is4 bool) []netip.Prefix {
	var own []netip.Prefix
	for _, p := range r {
		if p.Addr().Is4() != is4 {
			continue
		}
		if p.Bits() == 0 {
			return nil
		}
		own = append(own, p)
	}
	return own
}

// Contains reports whether an address is in the ranges.
func (r NodePortRanges) Contains(a netip.Addr) bool {
	own := r.Of(a.Is4())
	return own == nil || slices.ContainsFunc(own, func(p netip.Prefix) bool { return p.Contains(a) })
}

// ranges returns the ranges for a node with these primary addresses. Before the
// addresses are known, node ports of n.Primary answer nowhere.
func (n NodePortAddresses) ranges(primary []netip.Addr) NodePortRanges {
	list := slices.Clone(n.Ranges)
	if !n.Primary {
		return list
	}
	primary = slices.DeleteFunc(slices.Clone(primary), func(a netip.Addr) bool { return n.Bind.IsValid() && a.Is4() == n.Bind.Is4() })
	if n.Bind.IsValid() {
		primary = append(primary, n.Bind)
	}
	if len(primary) == 0 {
		return append(list, loopbackRanges()...)
	}
	for _, a := range primary {
		list = append(list, netip.PrefixFrom(a, a.BitLen()))
	}
	return list
}

// primaryAddresses returns the first address of each family of a node. Its internal
// addresses come before its external ones.
func primaryAddresses(node *v1.Node) (list []netip.Addr) {
	for _, kind := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for _, address := range node.Status.Addresses {
			a, err := netip.ParseAddr(address.Address)
			if address.Type != kind || err != nil {
				continue
			}
			a = a.Unmap()
			if !slices.ContainsFunc(list, func(other netip.Addr) bool { return other.Is4() == a.Is4() }) {
				list = append(list, a)
			}
		}
	}
	return list
}
