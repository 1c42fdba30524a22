package nftables

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Replies pass without a rule. A pod that takes over an address must not get
// those to the pod before it, so this file deletes the flows of such addresses
// from the kernel's connection table.

// flowsOf matches the flows of addresses.
type flowsOf map[netip.Addr]bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (addresses flowsOf) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	for _, ip := range []net.IP{flow.Forward.SrcIP, flow.Forward.DstIP, flow.Reverse.SrcIP, flow.Reverse.DstIP} {
		if a, ok := netip.AddrFromSlice(ip); ok && addresses[a.Unmap()] {
			return true
		}
	}
	return false
}

// forgetReused deletes the flows of the addresses in b.reused.
func (b *Backend) forgetReused() error {
	if len(b.reused) == 0 {
		return nil
	}
	if err := b.ForgetFlows(flowsOf(b.reused)); err != nil {
		return fmt.Errorf("forgetting the flows of pods that have ended: %w", err)
	}
	clear(b.reused)
	return nil
}
