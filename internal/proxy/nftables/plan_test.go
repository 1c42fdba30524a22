package nftables

import (
	"flag"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/goldentest"
	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/proxy"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

func TestPlan(t *testing.T) {
	base := proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80}
	with := func(change func(*proxy.ServicePort)) proxy.Rules {
		p := base
		change(&p)
		return rulesOf(&p)
	}
	two := endpoints("10.9.1.3:8080", "10.9.1.4:8080")
	hostPort := rulesOf()
	hostPort.HostPorts[proxy.LocalPort{Port: 8888, Protocol: v1.ProtocolUDP, Family: v1.IPv4Protocol}] = proxy.HostPort{To: netip.MustParseAddrPort("10.9.1.3:53")}
	ranges := with(func(p *proxy.ServicePort) { p.Cluster = two })
	ranges.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("2001:db8::/112")}
	addresses := with(func(p *proxy.ServicePort) { p.Cluster, p.NodePort = two, 30080 })
	addresses.NodePortRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.10/32"), netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("::/0")}
	for name, rules := range map[string]proxy.Rules{
		"node-port-addresses":      addresses,
		"service-cidrs":            ranges,
		"empty":                    rulesOf(),
		"no-endpoints":             with(func(p *proxy.ServicePort) { p.NodePort = 30080 }),
		"cluster-ip":               with(func(p *proxy.ServicePort) { p.Cluster = two }),
		"node-port":                with(func(p *proxy.ServicePort) { p.Cluster, p.NodePort = two, 30080 }),
		"affinity":                 with(func(p *proxy.ServicePort) { p.Cluster, p.Affinity = two, 3*time.Hour }),
		"internal-local-elsewhere": with(func(p *proxy.ServicePort) { p.Cluster, p.InternalLocal = two, true }),
		"external-local": with(func(p *proxy.ServicePort) {
			p.Cluster, p.Local, p.NodePort, p.ExternalLocal = two, two[:1], 30080, true
		}),
		"load-balancer": with(func(p *proxy.ServicePort) {
			p.Cluster = two[:1]
			p.LoadBalancer = []netip.Addr{netip.MustParseAddr("203.0.113.7")}
			p.SourceRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		}),
		"host-port": hostPort,
	} {
		t.Run(name, func(t *testing.T) {
			got := planned(settings{local: local{prefix: podCIDR}}, rules)
			goldentest.Compare(t, filepath.Join("testdata", name+".txt"), got, *rewrite, "go test ./internal/proxy/nftables -rewrite")
		})
	}
}

// planned returns the table of IPv4 as text.
func planned(s settings, rules proxy.Rules) string {
	s.family, s.mark = nft.IPv4, masqueradeMark
	return newTable(s, rules).String()
}

// TestPlanOfLocalTraffic checks by what connections of pods are recognized, and which
// are masqueraded.
func TestPlanOfLocalTraffic(t *testing.T) {
	service := &proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80, NodePort: 30080, ExternalLocal: true}
	service.Cluster = endpoints("10.9.1.3:8080")
	for name, c := range map[string]struct {
		settings     settings
		first, local string // the first rules of chains; "" is none
	}{
		"by addresses": {settings{local: local{prefix: podCIDR}}, "ip saddr != 10.9.1.0/24 ", "ip saddr 10.9.1.0/24 goto svc-"},
		"by a bridge":  {settings{local: local{name: "cni0"}}, `iifname != "cni0" `, `iifname "cni0" goto svc-`},
		"by a prefix":  {settings{local: local{name: "cali", isPrefix: true}}, `iifname != "cali*" `, `iifname "cali*" goto svc-`},
		"not at all":   {settings{}, "", ""},
		"all":          {settings{local: local{prefix: podCIDR}, masqueradeAll: true}, "ip daddr . meta l4proto . th dport @cluster-ips meta mark set", "ip saddr 10.9.1.0/24 goto svc-"},
	} {
		got := planned(c.settings, rulesOf(service))
		for chain, first := range map[string]string{"chain services\n\t": c.first, "chain ext-" + identity(onlyName(rulesOf(service))) + "\n\t": c.local} {
			if first == "" {
				first = map[bool]string{true: "ip daddr . meta l4proto . th dport vmap @service-ips", false: "fib saddr type local "}[strings.HasPrefix(chain, "chain services")]
			}
			if !strings.Contains(got, chain+first) {
				t.Errorf("%s: no %q in\n%s", name, chain+first, got)
			}
		}
	}
}

// onlyName returns the name of the only Service of rules.
func onlyName(rules proxy.Rules) proxy.PortName {
	return slices.Collect(maps.Keys(rules.Services))[0]
}

// TestMasqueradeMark checks that the bit of the packet mark can be another one.
func TestMasqueradeMark(t *testing.T) {
	service := &proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80, NodePort: 30080, Cluster: endpoints("10.9.1.3:8080")}
	s := settings{family: nft.IPv4, mark: 1 << 20, local: local{prefix: podCIDR}}
	got := newTable(s, rulesOf(service)).String()
	for _, want := range []string{"meta mark & 0x100000 != 0 meta mark set meta mark & 0xffefffff masquerade", "meta mark set meta mark | 0x100000\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "0x4000") {
		t.Errorf("the default bit in\n%s", got)
	}
}

func TestStaleDatagramFlows(t *testing.T) {
	name := proxy.PortName{NamespacedName: types.NamespacedName{Namespace: "kube-system", Name: "kube-dns"}, Protocol: v1.ProtocolUDP, Family: v1.IPv4Protocol}
	service := &proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.10"), Port: 53, NodePort: 30053, Cluster: endpoints("10.9.1.3:53")}
	a := datagramEndpoints(proxy.Rules{
		Services:     map[proxy.PortName]*proxy.ServicePort{name: service},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
	})
	for _, c := range []struct {
		destination, from string
		stale             bool
	}{
		{"10.96.0.10:53", "10.9.1.3:53", false},
		{"10.96.0.10:53", "10.9.1.4:53", true},   // an endpoint that is no more
		{"10.96.0.10:53", "10.96.0.10:53", true}, // began before there was an endpoint
		{"192.0.2.2:30053", "10.9.1.3:53", false},
		{"192.0.2.2:30053", "10.9.1.4:53", true},
		{"192.0.2.9:30053", "192.0.2.9:30053", false}, // not translated: someone else's
		{"192.0.2.9:53", "192.0.2.9:53", false},
		{"10.96.0.11:53", "10.9.1.3:53", true}, // of a Service that is no more
		{"10.96.0.10:54", "10.9.1.3:53", true}, // of a port that is no more
		{"10.96.0.11:53", "10.96.0.11:53", false},
	} {
		if got := a.stale(netip.MustParseAddrPort(c.destination), netip.MustParseAddrPort(c.from)); got != c.stale {
			t.Errorf("flow to %s answered by %s: stale %v, want %v", c.destination, c.from, got, c.stale)
		}
	}
	with := func(p *proxy.ServicePort) proxy.Rules {
		return proxy.Rules{Services: map[proxy.PortName]*proxy.ServicePort{name: p}}
	}
	if d := compare(with(service), with(service)); d.hasDatagrams() || d.frame {
		t.Errorf("equal rules differ: %v", d)
	}
	if !compare(with(service), with(new(*service))).hasDatagrams() || !compare(proxy.Rules{}, with(service)).hasDatagrams() || !compare(with(service), proxy.Rules{}).hasDatagrams() {
		t.Error("a change of a UDP port is none")
	}
}
