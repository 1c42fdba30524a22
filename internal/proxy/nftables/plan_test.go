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

	"github.com/coracle-io/coracle/internal/goldentest"
	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/proxytest"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

func TestPlan(t *testing.T) {
	base := proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80}
	with := func(change func(*proxy.ServicePort)) proxy.Rules {
		p := base
		change(&p)
		return proxytest.RulesOf(&p)
	}
	two := proxytest.Endpoints("10.9.1.3:8080", "10.9.1.4:8080")
	hostPort := proxytest.RulesOf()
	hostPort.HostPorts[proxy.LocalPort{Port: 8888, Protocol: v1.ProtocolUDP, Family: v1.IPv4Protocol}] = proxy.HostPort{To: netip.MustParseAddrPort("10.9.1.3:53")}
	ranges := with(func(p *proxy.ServicePort) { p.Cluster = two })
	ranges.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("2001:db8::/112")}
	addresses := with(func(p *proxy.ServicePort) { p.Cluster, p.NodePort = two, 30080 })
	addresses.NodePortRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.10/32"), netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("::/0")}
	for name, rules := range map[string]proxy.Rules{
		"node-port-addresses":      addresses,
		"service-cidrs":            ranges,
		"empty":                    proxytest.RulesOf(),
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
			got := planned(settings{pods: proxy.PodTraffic{Range: proxytest.PodCIDR}}, rules)
			goldentest.Compare(t, filepath.Join("testdata", name+".txt"), got, *rewrite, "go test ./internal/proxy/nftables -rewrite")
		})
	}
}

// TestPlanOfDelivery checks what is left to IPVS, and to a program on the node.
func TestPlanOfDelivery(t *testing.T) {
	service := proxy.ServicePort{
		ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80, NodePort: 30080, Cluster: proxytest.Endpoints("10.9.1.3:8080", "10.9.1.4:8080"),
		Local: proxytest.Endpoints("10.9.1.3:8080"), InternalLocal: true, Affinity: time.Hour,
		External: []netip.Addr{netip.MustParseAddr("192.168.77.1"), netip.MustParseAddr("203.0.113.8")},
	}
	for name, d := range map[string]Delivery{
		"ipvs": {IPVS: true, NodeAddresses: []netip.Addr{netip.MustParseAddr("192.168.77.1")}},
		"userspace": {Port: func(_ proxy.PortName, local bool) uint16 {
			if local {
				return 40001
			}
			return 40000
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := planned(settings{pods: proxy.PodTraffic{Range: proxytest.PodCIDR}, delivery: d}, proxytest.RulesOf(&service))
			goldentest.Compare(t, filepath.Join("testdata", name+".txt"), got, *rewrite, "go test ./internal/proxy/nftables -rewrite")
		})
	}
	bare := planned(settings{delivery: Delivery{IPVS: true}}, proxytest.RulesOf(&service))
	if want := "chain services\n\tip saddr @cluster-addresses ip daddr . meta l4proto . th dport @cluster-ips meta mark set"; !strings.Contains(bare, want) {
		t.Errorf("no %q in\n%s", want, bare)
	}
	closed := planned(settings{delivery: Delivery{Port: func(proxy.PortName, bool) uint16 { return 0 }}}, proxytest.RulesOf(&service))
	if strings.Contains(closed, "redirect") || strings.Contains(closed, "element proxy-ports") {
		t.Errorf("a Service without a port of the node is redirected:\n%s", closed)
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
	service.Cluster = proxytest.Endpoints("10.9.1.3:8080")
	for name, c := range map[string]struct {
		settings     settings
		first, local string // the first rules of chains; "" is none
	}{
		"by addresses": {settings{pods: proxy.PodTraffic{Range: proxytest.PodCIDR}}, "ip saddr != 10.9.1.0/24 ", "ip saddr 10.9.1.0/24 goto svc-"},
		"by a bridge":  {settings{pods: proxy.PodTraffic{Interface: "cni0"}}, `iifname != "cni0" `, `iifname "cni0" goto svc-`},
		"by a prefix":  {settings{pods: proxy.PodTraffic{Interface: "cali", IsPrefix: true}}, `iifname != "cali*" `, `iifname "cali*" goto svc-`},
		"not at all":   {settings{}, "", ""},
		"all":          {settings{pods: proxy.PodTraffic{Range: proxytest.PodCIDR}, masqueradeAll: true}, "ip daddr . meta l4proto . th dport @cluster-ips meta mark set", "ip saddr 10.9.1.0/24 goto svc-"},
	} {
		got := planned(c.settings, proxytest.RulesOf(service))
		for chain, first := range map[string]string{"chain services\n\t": c.first, "chain ext-" + identity(onlyName(proxytest.RulesOf(service))) + "\n\t": c.local} {
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
	return slices.Collect(maps.Keys(maps.Collect(rules.Services.All())))[0]
}

// TestMasqueradeMark checks that the bit of the packet mark can be another one.
func TestMasqueradeMark(t *testing.T) {
	service := &proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80, NodePort: 30080, Cluster: proxytest.Endpoints("10.9.1.3:8080")}
	s := settings{family: nft.IPv4, mark: 1 << 20, pods: proxy.PodTraffic{Range: proxytest.PodCIDR}}
	got := newTable(s, proxytest.RulesOf(service)).String()
	for _, want := range []string{"meta mark & 0x100000 != 0 meta mark set meta mark & 0xffefffff masquerade", "meta mark set meta mark | 0x100000\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "0x4000") {
		t.Errorf("the default bit in\n%s", got)
	}
}
