// Package conntrack keeps the kernel's connection table in step with a proxy's Rules,
// whichever backend has applied them.
package conntrack

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/nativehistogram"
	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/persistent"
	"github.com/coracle-io/coracle/internal/proxy"
)

// Config configures a Table.
type Config struct {
	// Settings are applied with the first rules, in the namespace of this process only.
	// What they change is logged to Log.
	Settings Settings
	Log      klog.Logger
	// Metrics gets metrics of the flows that are deleted; nil is none.
	Metrics prometheus.Registerer
	// IPv6 says that there are rules for IPv6, too.
	IPv6 bool
	// NetNS is the file descriptor of the network namespace; 0 means the namespace of
	// this process.
	NetNS int
}

// Table is the kernel's connection table. One goroutine uses it.
type Table struct {
	stale  bool   // UDP flows may contradict the rules
	track  func() // applies Config.Settings; nil once it was called
	forget func(proxy.Rules) error
	tell   func(f nft.Family, flows uint, took time.Duration) // of deleted flows; nil tells nobody
	// looked are the ports of Services that were looked at last, datagrams those of them
	// that are UDP ports.
	looked, datagrams proxy.ServicePorts
}

// New returns a Table. It changes nothing.
func New(c Config) *Table {
	t := &Table{}
	if c.Metrics != nil {
		t.tell = countFlows(c.Metrics)
	}
	if c.NetNS == 0 {
		t.track = func() { c.Settings.Apply(c.Log) }
	}
	t.forget = func(rules proxy.Rules) error { return t.forgetStaleFlows(c, rules) }
	return t
}

// Follow makes the connection table follow rules that have been applied. datagrams says
// that rules for UDP may differ from the former ones. After an error, the next call
// tries again.
//
// The connection table, not the rules, decides where an existing UDP flow goes, as long
// as the client keeps sending. So Follow deletes flows to endpoints that are gone, and
// flows that began before there was an endpoint.
func (t *Table) Follow(rules proxy.Rules, datagrams bool) error {
	if t.track != nil { // with the first rules the kernel begins to track connections
		t.track()
		t.track = nil
	}
	t.stale = t.stale || datagrams
	if !t.stale {
		return nil
	}
	if err := t.forget(rules); err != nil {
		return err
	}
	t.stale = false
	return nil
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
	for name, p := range rules.Services.All() {
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
// endpoints, although there are some. An endpoint without an address is a port of
// the node. So does a translated flow to a cluster IP that is no frontend any
// more. Frontends without an address match translated flows only, because other
// UDP servers of the machine use their ports, too.
func (a udpEndpoints) stale(destination, from netip.AddrPort) bool {
	endpoints, ours := a.frontends[destination]
	if !ours && destination != from {
		if slices.ContainsFunc(a.serviceCIDRs, func(p netip.Prefix) bool { return p.Contains(destination.Addr()) }) {
			return true
		}
		endpoints, ours = a.frontends[netip.AddrPortFrom(netip.Addr{}, destination.Port())]
	}
	answers := endpoints[from] || endpoints[netip.AddrPortFrom(netip.Addr{}, from.Port())]
	return ours && !answers && (len(endpoints) > 0 || destination != from)
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
	took := nativehistogram.NewVec(prometheus.HistogramOpts{
		Name: "kubeproxy_conntrack_reconciler_sync_duration_seconds", Help: "[ALPHA] ReconcileConntrackFlowsLatency latency in seconds",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
	}, labels)
	deleted := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeproxy_conntrack_reconciler_deleted_entries_total", Help: "[ALPHA] Cumulative conntrack flows deleted by conntrack reconciler",
	}, labels)
	r.MustRegister(took, deleted)
	return func(f nft.Family, flows uint, d time.Duration) {
		family := string(f.IPFamily())
		took.WithLabelValues(family).Observe(d.Seconds())
		deleted.WithLabelValues(family).Add(float64(flows))
	}
}

// withDatagrams returns rules with the UDP ports of Services alone.
func (t *Table) withDatagrams(rules proxy.Rules) proxy.Rules {
	persistent.Diff(t.looked, rules.Services, func(name proxy.PortName) {
		switch p := rules.Services.Get(name); {
		case name.Protocol != v1.ProtocolUDP:
		case p != nil:
			t.datagrams = t.datagrams.With(name, p)
		default:
			t.datagrams = t.datagrams.Without(name)
		}
	})
	t.looked = rules.Services
	rules.Services = t.datagrams
	return rules
}

func (t *Table) forgetStaleFlows(c Config, rules proxy.Rules) error {
	filter := datagramEndpoints(t.withDatagrams(rules))
	if len(filter.frontends)+len(filter.serviceCIDRs) == 0 {
		return nil
	}
	if err := nft.ForgetFlows(c.NetNS, nft.Families(c.IPv6), filter, t.tell); err != nil {
		return fmt.Errorf("forgetting stale UDP flows: %w", err)
	}
	return nil
}
