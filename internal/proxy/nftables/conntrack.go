package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/proxy"
)

// The kernel's connection table, not the rules, decides where an existing UDP
// flow goes, as long as the client keeps sending. So this file deletes flows to
// endpoints that are gone, and flows that began before there was an endpoint.

// hasDatagrams reports whether a UDP port differs.
func (d difference) hasDatagrams() bool {
	return slices.ContainsFunc(d.services, func(name proxy.PortName) bool { return name.Protocol == v1.ProtocolUDP }) ||
		slices.ContainsFunc(d.hostPorts, func(k proxy.LocalPort) bool { return k.Protocol == v1.ProtocolUDP })
}

// udpEndpoints maps UDP frontends to their endpoints. Node and host ports have
// no address here.
type udpEndpoints struct {
	frontends    map[netip.AddrPort]map[netip.AddrPort]bool
	serviceCIDRs []netip.Prefix
}

func datagramEndpoints(rules proxy.Rules) udpEndpoints {
	result := udpEndpoints{map[netip.AddrPort]map[netip.AddrPort]bool{}, rules.ServiceCIDRs}
	add := func(frontend netip.AddrPort, endpoints ...netip.AddrPort) {
		if result.frontends[frontend] == nil {
			result.frontends[frontend] = map[netip.AddrPort]bool{}
		}
		for _, e := range endpoints {
			result.frontends[frontend][e] = true
		}
	}
	for name, p := range rules.Services {
		if name.Protocol != v1.ProtocolUDP {
			continue
		}
		frontends := append(append([]netip.Addr{p.ClusterIP}, p.External...), p.LoadBalancer...)
		for _, a := range frontends {
			add(netip.AddrPortFrom(a, p.Port), append(append([]netip.AddrPort(nil), p.Cluster...), p.Local...)...)
		}
		if p.NodePort != 0 {
			add(netip.AddrPortFrom(netip.Addr{}, p.NodePort), append(append([]netip.AddrPort(nil), p.Cluster...), p.Local...)...)
		}
	}
	for k, pod := range rules.HostPorts {
		if k.Protocol == v1.ProtocolUDP {
			add(netip.AddrPortFrom(k.Address, k.Port), pod.To)
		}
	}
	return result
}

// stale reports whether a flow to destination, answered by from, contradicts
// the rules: destination is one of our frontends, and from is not among its
// endpoints, although there are some. So does a translated flow to a cluster IP
// that is no frontend any more. Frontends without an address match
// translated flows only, because other UDP servers of the machine use their
// ports, too.
func (a udpEndpoints) stale(destination, from netip.AddrPort) bool {
	endpoints, ours := a.frontends[destination]
	if !ours && destination != from {
		if slices.ContainsFunc(a.serviceCIDRs, func(p netip.Prefix) bool { return p.Contains(destination.Addr()) }) {
			return true
		}
		endpoints, ours = a.frontends[netip.AddrPortFrom(netip.Addr{}, destination.Port())]
	}
	return ours && !endpoints[from] && (len(endpoints) > 0 || destination != from)
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (a udpEndpoints) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	destination, ok1 := netip.AddrFromSlice(flow.Forward.DstIP)
	from, ok2 := netip.AddrFromSlice(flow.Reverse.SrcIP)
	return ok1 && ok2 && a.stale(
		netip.AddrPortFrom(destination.Unmap(), flow.Forward.DstPort),
		netip.AddrPortFrom(from.Unmap(), flow.Reverse.SrcPort))
}

// countFlows returns a function that counts deleted flows, under kube-proxy's names.
func countFlows(r prometheus.Registerer) func(nft.Family, uint, time.Duration) {
	labels := []string{"ip_family"}
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kubeproxy_conntrack_reconciler_sync_duration_seconds", Help: "[ALPHA] ReconcileConntrackFlowsLatency latency in seconds",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
	}, labels)
	deleted := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeproxy_conntrack_reconciler_deleted_entries_total", Help: "[ALPHA] Cumulative conntrack flows deleted by conntrack reconciler",
	}, labels)
	r.MustRegister(took, deleted)
	return func(f nft.Family, flows uint, d time.Duration) {
		family := string(v1.IPv4Protocol)
		if f.Size == 16 {
			family = string(v1.IPv6Protocol)
		}
		took.WithLabelValues(family).Observe(d.Seconds())
		deleted.WithLabelValues(family).Add(float64(flows))
	}
}

func (b *Backend) forgetStaleFlows(rules proxy.Rules) error {
	filter := datagramEndpoints(rules)
	if len(filter.frontends)+len(filter.serviceCIDRs) == 0 {
		return nil
	}
	if err := b.ForgetFlows(filter); err != nil {
		return fmt.Errorf("forgetting stale UDP flows: %w", err)
	}
	return nil
}
