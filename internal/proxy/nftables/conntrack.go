package nftables

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/proxy"
)

// A datagram flow lives in the kernel's connection table as long as the client
// goes on sending, and the table, not our rules, says where it goes. So flows
// that lead to an endpoint that is no more, or that began before there was
// any, are made to be forgotten.

// datagramsChanged tells whether some UDP port differs between the rules.
func datagramsChanged(before, next proxy.Rules) bool {
	differ := func(a, b proxy.Rules) bool {
		for name, port := range a.Services {
			if name.Protocol == v1.ProtocolUDP && b.Services[name] != port {
				return true
			}
		}
		for k, pod := range a.HostPorts {
			if k.Protocol == v1.ProtocolUDP && b.HostPorts[k] != pod {
				return true
			}
		}
		return false
	}
	return differ(before, next) || differ(next, before)
}

// answers are the endpoints of the UDP fronts: of addresses with a port, and
// of node and host ports, which have no address here.
type answers map[netip.AddrPort]map[netip.AddrPort]bool

func datagramAnswers(rules proxy.Rules) answers {
	result := answers{}
	add := func(front netip.AddrPort, endpoints ...netip.AddrPort) {
		if result[front] == nil {
			result[front] = map[netip.AddrPort]bool{}
		}
		for _, e := range endpoints {
			result[front][e] = true
		}
	}
	for name, p := range rules.Services {
		if name.Protocol != v1.ProtocolUDP {
			continue
		}
		fronts := append(append([]netip.Addr{p.ClusterIP}, p.External...), p.LoadBalancer...)
		for _, a := range fronts {
			add(netip.AddrPortFrom(a, p.Port), append(append([]netip.AddrPort(nil), p.Cluster...), p.Local...)...)
		}
		if p.NodePort != 0 {
			add(netip.AddrPortFrom(netip.Addr{}, p.NodePort), append(append([]netip.AddrPort(nil), p.Cluster...), p.Local...)...)
		}
	}
	for k, pod := range rules.HostPorts {
		if k.Protocol == v1.ProtocolUDP {
			add(netip.AddrPortFrom(k.Address, k.Port), pod)
		}
	}
	return result
}

// stale tells whether a flow to destination, answered by from, contradicts the
// rules: it was meant for one of our fronts, and another answers it than now
// would, while somebody would. Fronts without an address match only what was
// translated: other UDP servers of the machine have their ports too.
func (a answers) stale(destination, from netip.AddrPort) bool {
	endpoints, ours := a[destination]
	if !ours && destination != from {
		endpoints, ours = a[netip.AddrPortFrom(netip.Addr{}, destination.Port())]
	}
	return ours && !endpoints[from] && (len(endpoints) > 0 || destination != from)
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (a answers) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	destination, ok1 := netip.AddrFromSlice(flow.Forward.DstIP)
	from, ok2 := netip.AddrFromSlice(flow.Reverse.SrcIP)
	return ok1 && ok2 && a.stale(
		netip.AddrPortFrom(destination.Unmap(), flow.Forward.DstPort),
		netip.AddrPortFrom(from.Unmap(), flow.Reverse.SrcPort))
}

func (b *Backend) forgetStaleFlows(rules proxy.Rules) error {
	filter := datagramAnswers(rules)
	if len(filter) == 0 {
		return nil
	}
	handle, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if b.config.NetNS != 0 {
		handle, err = netlink.NewHandleAt(netns.NsHandle(b.config.NetNS), unix.NETLINK_NETFILTER)
	}
	if err != nil {
		return fmt.Errorf("opening the connection table: %w", err)
	}
	defer handle.Close()
	for _, f := range b.families() {
		inet := netlink.InetFamily(unix.AF_INET)
		if f.size == 16 {
			inet = unix.AF_INET6
		}
		if _, err := handle.ConntrackDeleteFilters(netlink.ConntrackTable, inet, filter); err != nil {
			return fmt.Errorf("forgetting stale UDP flows: %w", err)
		}
	}
	return nil
}
