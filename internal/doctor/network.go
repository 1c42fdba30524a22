package doctor

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/netdump"
)

// readRoutes returns the routes of this machine into ranges that a flag sets,
// besides default routes.
func readRoutes(flag string, into []netip.Prefix) []Route {
	all, err := netdump.Complete(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil
	}
	var out []Route
	for _, r := range all {
		if r.Dst == nil || r.Type != unix.RTN_UNICAST {
			continue
		}
		a, ok := netip.AddrFromSlice(r.Dst.IP)
		bits, _ := r.Dst.Mask.Size()
		if !ok || bits == 0 {
			continue
		}
		destination := netip.PrefixFrom(a.Unmap(), bits)
		for _, p := range into {
			if p.Overlaps(destination) {
				out = append(out, Route{Flag: flag, Range: p, Destination: destination, Interface: interfaceName(r.LinkIndex)})
			}
		}
	}
	return out
}

func interfaceName(index int) string {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Sprintf("interface %d", index)
	}
	return link.Attrs().Name
}

// readFirewall returns the base chains that drop what they do not accept, except
// chains of clusters.
func readFirewall(clusters []string) []Chain {
	conn, err := nftables.New()
	if err != nil {
		return nil
	}
	chains, err := netdump.Complete(conn.ListChains)
	if err != nil {
		return nil
	}
	var drops []Chain
	for _, c := range chains {
		if c.Policy == nil || *c.Policy != nftables.ChainPolicyDrop || c.Hooknum == nil {
			continue
		}
		if _, own := clusternames.ClusterOfTable(c.Table.Name, clusters); own {
			continue
		}
		hooks := map[nftables.ChainHook]string{*nftables.ChainHookInput: "input", *nftables.ChainHookForward: "forward"}
		if family, hook := familyName(c.Table.Family), hooks[*c.Hooknum]; family != "" && hook != "" {
			drops = append(drops, Chain{family, c.Table.Name, c.Name, hook})
		}
	}
	return drops
}

// familyName returns the name in nft(8) of a family that has IP packets, or "".
func familyName(family nftables.TableFamily) string {
	switch family {
	case nftables.TableFamilyIPv4:
		return "ip"
	case nftables.TableFamilyIPv6:
		return "ip6"
	case nftables.TableFamilyINet:
		return "inet"
	}
	return ""
}
