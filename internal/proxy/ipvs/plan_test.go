package ipvs

import (
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/goldentest"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/proxytest"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

func addresses(list ...string) (all []netip.Addr) {
	for _, s := range list {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

// planned returns the virtual servers and addresses for rules as text.
func planned(s settings, rules proxy.Rules) string {
	all := map[frontend]virtual{}
	for name, p := range rules.Services.All() {
		maps.Copy(all, s.servers(name, p))
	}
	return text(all, s.addresses(rules))
}

// text returns virtual servers as ipvsadm -Ln lists them, and the addresses of Services.
func text(servers map[frontend]virtual, addresses []netip.Addr) string {
	var b strings.Builder
	for _, f := range slices.SortedFunc(maps.Keys(servers), frontend.compare) {
		v := servers[f]
		fmt.Fprintf(&b, "%s  %s %s", f.protocol, f.at, v.scheduler)
		if v.sourcePort {
			b.WriteString(" (mh-port)")
		}
		if v.persistence > 0 {
			fmt.Fprintf(&b, " persistent %d", v.persistence)
		}
		b.WriteString("\n")
		for _, e := range v.endpoints {
			fmt.Fprintf(&b, "  -> %s Masq 1\n", e)
		}
	}
	for _, a := range addresses {
		fmt.Fprintf(&b, "address %s\n", a)
	}
	return b.String()
}

func TestPlan(t *testing.T) {
	node := addresses("127.0.0.1", "192.0.2.10", "198.51.100.1", "::1", "2001:db8::10", "fe80::1")
	base := proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80, Cluster: proxytest.Endpoints("10.9.1.3:8080", "10.9.1.4:8080")}
	with := func(change func(*proxy.ServicePort)) proxy.Rules {
		p := base
		change(&p)
		return proxytest.RulesOf(&p)
	}
	chosen := with(func(p *proxy.ServicePort) { p.NodePort = 30080 })
	chosen.NodePortRanges = proxy.NodePortRanges{netip.MustParsePrefix("192.0.2.0/24")}
	for name, c := range map[string]struct {
		scheduler string
		rules     proxy.Rules
	}{
		"empty":               {"rr", proxytest.RulesOf()},
		"cluster-ip":          {"rr", with(func(*proxy.ServicePort) {})},
		"no-endpoints":        {"wlc", with(func(p *proxy.ServicePort) { p.Cluster = nil })},
		"node-port":           {"rr", with(func(p *proxy.ServicePort) { p.NodePort = 30080 })},
		"node-port-addresses": {"rr", chosen},
		"affinity":            {"mh", with(func(p *proxy.ServicePort) { p.Affinity = 3 * time.Hour })},
		"internal-local": {"rr", with(func(p *proxy.ServicePort) {
			p.InternalLocal, p.Local, p.External = true, p.Cluster[:1], addresses("203.0.113.8", "192.0.2.10")
		})},
		"external-local": {"rr", with(func(p *proxy.ServicePort) {
			p.ExternalLocal, p.Local, p.LoadBalancer = true, p.Cluster[1:], addresses("203.0.113.7")
		})},
		"external-local-elsewhere": {"rr", with(func(p *proxy.ServicePort) { p.ExternalLocal, p.LoadBalancer = true, addresses("203.0.113.7") })},
		"ipv6": {"rr", proxytest.RulesOf(&proxy.ServicePort{
			ClusterIP: netip.MustParseAddr("fd00:96::20"), Port: 80, NodePort: 30080, Cluster: proxytest.Endpoints("[fd00:9:1::3]:8080"),
		})},
	} {
		t.Run(name, func(t *testing.T) {
			got := planned(settings{scheduler: c.scheduler, node: node, nodePorts: c.rules.NodePortRanges}, c.rules)
			goldentest.Compare(t, filepath.Join("testdata", name+".txt"), got, *rewrite, "go test ./internal/proxy/ipvs -rewrite")
		})
	}
}
