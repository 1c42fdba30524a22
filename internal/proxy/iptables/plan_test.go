package iptables

import (
	"flag"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/costtest"
	"github.com/coracle-io/coracle/internal/goldentest"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/proxytest"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// golden compares what iptables-restore reads with a file.
func golden(t *testing.T, name string, all changes) {
	t.Helper()
	goldentest.Compare(t, filepath.Join("testdata", name+".txt"), string(all.input()), *rewrite, "go test ./internal/proxy/iptables -rewrite")
}

// own are the settings of the tables here.
func own(change func(*Config)) Config {
	c := Config{Owner: "test", Mark: masqueradeMark, ClusterCIDRs: []netip.Prefix{proxytest.PodCIDR, proxytest.PodCIDR6}}
	if change != nil {
		change(&c)
	}
	return c
}

// full returns the changes for rules where there are none yet.
func full(c Config, is4 bool, rules proxy.Rules) changes {
	return newTables(c.settings(is4, rules), rules).replacing(parseSaved(""))
}

// rulesWith returns the rules of one Service.
func rulesWith(change func(*proxy.ServicePort)) proxy.Rules {
	p := proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80}
	change(&p)
	return proxytest.RulesOf(&p)
}

func TestPlan(t *testing.T) {
	two := proxytest.Endpoints("10.9.1.3:8080", "10.9.1.4:8080")
	hostPort := proxytest.RulesOf()
	pod := types.NamespacedName{Namespace: "default", Name: "edge"}
	hostPort.HostPorts[proxy.LocalPort{Port: 8888, Protocol: v1.ProtocolUDP, Family: v1.IPv4Protocol}] = proxy.HostPort{Pod: pod, To: netip.MustParseAddrPort("10.9.1.3:53")}
	hostPort.HostPorts[proxy.LocalPort{Address: netip.MustParseAddr("192.0.2.10"), Port: 8080, Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol}] = proxy.HostPort{Pod: pod, To: netip.MustParseAddrPort("10.9.1.3:80")}
	addresses := rulesWith(func(p *proxy.ServicePort) { p.NodePort = 30080 })
	addresses.NodePortRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.10/32"), netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("::/0")}
	for name, rules := range map[string]proxy.Rules{
		"empty":      proxytest.RulesOf(),
		"cluster-ip": rulesWith(func(p *proxy.ServicePort) { p.Cluster = two }),
		"node-port":  rulesWith(func(p *proxy.ServicePort) { p.Cluster, p.NodePort = two[:1], 30080 }),
		"no-endpoints": rulesWith(func(p *proxy.ServicePort) {
			p.NodePort, p.External = 30080, []netip.Addr{netip.MustParseAddr("203.0.113.8")}
		}),
		"node-port-addresses":      addresses,
		"affinity":                 rulesWith(func(p *proxy.ServicePort) { p.Cluster, p.Affinity = two, 3*time.Hour }),
		"internal-local-elsewhere": rulesWith(func(p *proxy.ServicePort) { p.Cluster, p.InternalLocal = two, true }),
		"external-local": rulesWith(func(p *proxy.ServicePort) {
			p.Cluster, p.Local, p.NodePort, p.ExternalLocal, p.HealthCheckNodePort = two, two[:1], 30080, true, 32000
		}),
		"load-balancer": rulesWith(func(p *proxy.ServicePort) {
			p.Cluster = two[:1]
			p.LoadBalancer = []netip.Addr{netip.MustParseAddr("203.0.113.7")}
			p.SourceRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		}),
		"host-port": hostPort,
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, full(own(nil), true, rules)) })
	}
	six := proxytest.RulesOf(&proxy.ServicePort{ClusterIP: netip.MustParseAddr("fd00:96::20"), Port: 80, Cluster: proxytest.Endpoints("[fd00:9:1::3]:8080")})
	golden(t, "ipv6", full(own(nil), false, six))
}

// TestPlanOfAChange checks what a change of one Service sends, and what its end.
func TestPlanOfAChange(t *testing.T) {
	other := &proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.21"), Port: 80, Cluster: proxytest.Endpoints("10.9.1.9:8080")}
	service := func(endpoints ...string) *proxy.ServicePort {
		return &proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80, Cluster: proxytest.Endpoints(endpoints...)}
	}
	rules := proxytest.RulesOf(other, service("10.9.1.3:8080", "10.9.1.4:8080"))
	held := newTables(own(nil).settings(true, rules), rules)
	for _, step := range []struct {
		name string
		next proxy.Rules
	}{
		{"change-of-endpoints", proxytest.RulesOf(other, service("10.9.1.4:8080", "10.9.1.5:8080"))},
		{"change-to-none", proxytest.RulesOf(other, service())},
		{"change-of-nothing", proxytest.RulesOf(other, service())},
		{"change-to-gone", proxytest.RulesOf(other)},
	} {
		golden(t, step.name, held.follow(step.next, proxy.Compare(rules, step.next)))
		if got, want := string(held.replacing(parseSaved("")).input()), string(full(own(nil), true, step.next).input()); got != want {
			t.Errorf("%s: the tables are\n%s\nwant\n%s", step.name, got, want)
		}
		rules = step.next
	}
}

// TestPlanOfSettings checks what flags and settings change.
func TestPlanOfSettings(t *testing.T) {
	rules := rulesWith(func(p *proxy.ServicePort) {
		p.Cluster, p.NodePort, p.ExternalLocal = proxytest.Endpoints("10.9.1.3:8080"), 30080, true
	})
	loopback := rules
	loopback.LoopbackNodePorts = true
	const masquerade = `cluster IP" -d 10.96.0.20 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ`
	const notLoopback = "-A KUBE-SERVICES -d 127.0.0.0/8 -j RETURN\n"
	for _, c := range []struct {
		name        string
		rules       proxy.Rules
		change      func(*Config)
		has, hasNot []string
	}{
		{"a range", rules, nil, []string{"! -s 10.9.1.0/24 -d 10.96.0.20 ", "-s 10.9.1.0/24 -j KUBE-SVC-", notLoopback, "--ctstate INVALID -j DROP"}, []string{firewall}},
		{"a bridge", rules, func(c *Config) { c.Local.Bridge = "cni0" }, []string{`! -i "cni0" -d 10.96.0.20 `, `-i "cni0" -j KUBE-SVC-`}, []string{"10.9.1.0/24"}},
		{"a prefix", rules, func(c *Config) { c.Local.InterfacePrefix = "cali" }, []string{`! -i "cali+" `}, nil},
		{"nothing about pods", rules, func(c *Config) { c.ClusterCIDRs = nil }, nil, []string{masquerade, "pod traffic"}},
		{"masquerade all", rules, func(c *Config) { c.MasqueradeAll = true }, []string{masquerade}, nil},
		{"another mark", rules, func(c *Config) { c.Mark = 1 << 20 }, []string{"--or-mark 0x100000\n", "! --mark 0x100000/0x100000 -j RETURN\n"}, []string{"0x4000"}},
		{"liberal", rules, func(c *Config) { c.Conntrack.TCPBeLiberal = true }, nil, []string{"INVALID"}},
		{"loopback", loopback, nil, []string{"-j KUBE-FIREWALL\n", "! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment"}, []string{notLoopback}},
	} {
		got := string(full(own(c.change), true, c.rules).input())
		for _, want := range c.has {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in\n%s", c.name, want, got)
			}
		}
		for _, not := range c.hasNot {
			if strings.Contains(got, not) {
				t.Errorf("%s: %q in\n%s", c.name, not, got)
			}
		}
	}
}

// TestChainsAreKubeProxys checks names that kube-proxy has given, which are in many
// documents: those of the Services kubernetes and kube-dns.
func TestChainsAreKubeProxys(t *testing.T) {
	for _, c := range []struct {
		namespace, name, port string
		protocol              v1.Protocol
		want                  string
	}{
		{"default", "kubernetes", "https", v1.ProtocolTCP, "KUBE-SVC-NPX46M4PTMTKRN6Y"},
		{"kube-system", "kube-dns", "dns", v1.ProtocolUDP, "KUBE-SVC-TCOU7JCQXEZGVUNU"},
		{"kube-system", "kube-dns", "dns-tcp", v1.ProtocolTCP, "KUBE-SVC-ERIFXISQEP7F7OF4"},
	} {
		name := proxy.PortName{NamespacedName: types.NamespacedName{Namespace: c.namespace, Name: c.name}, Port: c.port, Protocol: c.protocol, Family: v1.IPv4Protocol}
		p := own(nil).settings(true, proxy.Rules{}).ofService(name, &proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.1"), Port: 443, Cluster: proxytest.Endpoints("10.9.1.3:6443")})
		if p.own[c.want] == nil {
			t.Errorf("%s has the chains %v, want %s", name, p.own, c.want)
		}
	}
}

// TestNothingEscapes checks that no value ends the quotation in which it stands, and
// that comments are no longer than the kernel takes.
func TestNothingEscapes(t *testing.T) {
	name := proxy.PortName{
		NamespacedName: types.NamespacedName{Namespace: strings.Repeat("n", 300), Name: "a\" -j ACCEPT\nCOMMIT\n*nat\n-F\\"}, Port: "é\x00", Protocol: v1.ProtocolSCTP, Family: v1.IPv4Protocol,
	}
	p := proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80, Cluster: proxytest.Endpoints("10.9.1.3:8080"), Affinity: time.Minute}
	rules := proxy.Rules{Services: proxy.ServicePorts{}.With(name, &p)}
	c := own(func(c *Config) { c.Owner, c.Local.Bridge = "a\nb\"", "x\" -j ACCEPT\n" })
	tables := []string{}
	for line := range strings.Lines(string(full(c, true, rules).input())) {
		if strings.Count(line, `"`)%2 != 0 || strings.Contains(line, `\`) {
			t.Errorf("a quotation does not end: %s", line)
		}
		if _, after, ok := strings.Cut(line, `--comment "`); ok {
			if text, _, _ := strings.Cut(after, `"`); len(text) > longestComment {
				t.Errorf("the comment has %d bytes: %s", len(text), line)
			}
		}
		if !slices.Contains([]byte("*:-C"), line[0]) || strings.HasPrefix(line, "-F") {
			t.Errorf("a line that nothing has made: %q", line)
		}
		if line[0] == '*' {
			tables = append(tables, strings.TrimSpace(line))
		}
	}
	if want := []string{"*mangle", "*filter", "*nat"}; !slices.Equal(tables, want) {
		t.Errorf("tables %v, want %v", tables, want)
	}
}

// TestEachEndpointHasItsChance checks the probabilities of a Service's endpoints.
func TestEachEndpointHasItsChance(t *testing.T) {
	var endpoints []netip.AddrPort
	for i := range 4 {
		endpoints = append(endpoints, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 1, byte(3 + i)}), 8080))
	}
	got := string(full(own(nil), true, rulesWith(func(p *proxy.ServicePort) { p.Cluster = endpoints })).input())
	for _, chance := range []string{"0.2500000000", "0.3333333333", "0.5000000000"} {
		if n := strings.Count(got, "--probability "+chance+" "); n != 1 {
			t.Errorf("the probability %s is there %d times in\n%s", chance, n, got)
		}
	}
	if n := strings.Count(got, "statistic"); n != 3 {
		t.Errorf("%d rules depend on chance, want 3", n)
	}
}

// manyServices returns rules with n Services of two endpoints each.
func manyServices(n int) proxy.Rules {
	var ports []*proxy.ServicePort
	for i := range n {
		ports = append(ports, &proxy.ServicePort{
			ClusterIP: netip.AddrFrom4([4]byte{10, 96, byte(i / 250), byte(1 + i%250)}), Port: 80, Cluster: proxytest.Endpoints("10.9.1.3:8080", "10.9.1.4:8080"),
		})
	}
	return proxytest.RulesOf(ports...)
}

// withChange returns the rules with other endpoints of one Service, and how many Services
// are looked at in them and in those that are made from them.
func withChange(rules proxy.Rules, endpoints ...string) (next proxy.Rules, visited *int) {
	next, visited = rules, new(int)
	for name, p := range rules.Services.All() {
		if name.Name == "s7" {
			changed := *p
			changed.Cluster = proxytest.Endpoints(endpoints...)
			next.Services = next.Services.With(name, &changed)
		}
	}
	next.Services = next.Services.Counted(visited)
	return next, visited
}

// TestChangesOfManyServices checks that a change of one Service sends its chains alone,
// and looks at no others: it costs with 10,000 Services what it costs with 100.
func TestChangesOfManyServices(t *testing.T) {
	cost := func(n int) uint64 {
		rules := manyServices(n)
		held := newTables(own(nil).settings(true, rules), rules)
		next, visited := withChange(rules, "10.9.1.4:8080", "10.9.1.5:8080")
		var all changes
		c := costtest.Of(t, func() { all = held.follow(next, proxy.Compare(rules, next)) })
		if len(all[filter].chains)+len(all[mangle].chains) > 0 || len(all[nat].chains) != 2 || len(all[nat].stale) != 1 {
			t.Errorf("a change of an endpoint sends\n%s\nwant the chain of the Service, a new one and a stale one", all.input())
		}
		for chain := range all[nat].chains {
			if slices.Contains([]string{services, nodePorts}, chain) {
				t.Errorf("it sends %s", chain)
			}
		}
		if *visited > 20 {
			t.Errorf("with %d Services, %d are looked at", n, *visited)
		}
		if fresh := newTables(own(nil).settings(true, next), next); held.size(nat) != fresh.size(nat) || held.size(filter) != fresh.size(filter) {
			t.Errorf("the tables have %d and %d rules, want %d and %d", held.size(nat), held.size(filter), fresh.size(nat), fresh.size(filter))
		}
		return c.Bytes
	}
	few, many := cost(100), cost(10_000)
	if many > 4*few {
		t.Errorf("a change allocates %d bytes with 100 Services and %d with 10,000", few, many)
	}
}

// BenchmarkChange measures what is computed for a change of one Service.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprint(n, "Services"), func(b *testing.B) {
			rules := manyServices(n)
			held := newTables(own(nil).settings(true, rules), rules)
			one, _ := withChange(rules, "10.9.1.4:8080", "10.9.1.5:8080")
			other, _ := withChange(one, "10.9.1.6:8080")
			versions := []proxy.Rules{one, other}
			held.follow(other, proxy.Compare(rules, other))
			for i := 0; b.Loop(); i++ {
				from, to := versions[(i+1)%2], versions[i%2]
				held.follow(to, proxy.Compare(from, to))
			}
		})
	}
}
