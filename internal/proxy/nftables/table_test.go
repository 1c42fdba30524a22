package nftables

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/costtest"
	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/proxytest"
)

// own are the settings of the tables here.
func own() settings {
	return settings{family: nft.IPv4, mark: masqueradeMark, pods: proxy.PodTraffic{Range: proxytest.PodCIDR}}
}

// TestFollowIsLikeANewTable changes rules at random, and compares the table that
// follows them with a new one, and the difference that it reports with theirs.
func TestFollowIsLikeANewTable(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	before := proxy.Rules{}
	followed := newTable(own(), before)
	for step := range 300 {
		next := changed(random, before)
		former := newTable(own(), before)
		followed.follow(before, next, proxy.Compare(before, next))
		fresh := newTable(own(), next)
		if got, want := followed.String(), fresh.String(); got != want {
			t.Fatalf("step %d: the table is\n%s\nwant\n%s", step, got, want)
		}
		for name, pair := range map[string][2]ruleset{"was": {followed.was, former.ruleset}, "is": {followed.is, fresh.ruleset}} {
			if got, want := pair[0].String(), pair[1].only(pair[0]).String(); got != want {
				t.Fatalf("step %d: what %s is\n%s\nwant\n%s", step, name, got, want)
			}
		}
		// What is not in the difference is the same before and after.
		rest := func(r, touched ruleset) string {
			left := newRuleset(Delivery{})
			left.merge(r)
			for name := range touched.chains {
				delete(left.chains, name)
			}
			for name := range touched.affinity {
				delete(left.affinity, name)
			}
			for set, elements := range touched.elements {
				for k := range elements {
					delete(left.elements[set], k)
				}
			}
			return left.String()
		}
		touched := newRuleset(Delivery{})
		touched.merge(followed.was)
		touched.merge(followed.is)
		if got, want := rest(former.ruleset, touched), rest(fresh.ruleset, touched); got != want {
			t.Fatalf("step %d: more differs than is told:\n%s\nand\n%s", step, got, want)
		}
		before = next
	}
	for _, counts := range followed.shared {
		if len(counts) == 0 {
			t.Error("a count of nothing is kept")
		}
	}
}

// TestKernelFollows applies changes at random. The kernel refuses to remove what it does
// not have and to add what it has, and at the end it has what the table says. When
// another program has removed the table, the next transactions write all.
func TestKernelFollows(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	ns := int(netnstest.New(t))
	b := New(Config{Table: "coracle-test", NetNS: ns, ClusterCIDRs: []netip.Prefix{proxytest.PodCIDR}})
	rules := proxy.Rules{}
	for step := range 100 {
		rules = changed(random, rules)
		if step%20 == 19 {
			if err := New(Config{Table: "coracle-test", NetNS: ns}).Remove(); err != nil {
				t.Fatal(err)
			}
			_ = b.Apply(rules) // fails, unless it changes nothing
			if _, err := b.Intact(); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		}
		if err := b.Apply(rules); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
	}
	if got, want := b.tables[nft.IPv4.Name].String(), newTable(own(), rules).String(); got != want {
		t.Errorf("the table is\n%s\nwant\n%s", got, want)
	}
	if err := New(Config{Table: "other", NetNS: ns}).Apply(proxy.Rules{}); err != nil { // so that Intact compares
		t.Fatal(err)
	}
	if intact, err := b.Intact(); err != nil || !intact {
		t.Errorf("intact %v, %v", intact, err)
	}
}

// changed returns rules with a few changes. Services share endpoints, addresses of
// several ports, and external addresses that two of them claim.
func changed(random *rand.Rand, before proxy.Rules) proxy.Rules {
	next := before
	if next.HostPorts = maps.Clone(before.HostPorts); next.HostPorts == nil {
		next.HostPorts = map[proxy.LocalPort]proxy.HostPort{}
	}
	for range 1 + random.IntN(3) {
		service := random.IntN(4)
		name := proxy.PortName{
			NamespacedName: types.NamespacedName{Namespace: "default", Name: fmt.Sprint("s", service)},
			Port:           fmt.Sprint("p", random.IntN(2)), Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol,
		}
		switch random.IntN(8) {
		case 0:
			next.Services = next.Services.Without(name)
		case 1:
			next.HostPorts[proxy.LocalPort{Port: uint16(8000 + random.IntN(3)), Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol}] =
				proxy.HostPort{To: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 1, byte(random.IntN(4))}), 8080)}
		case 2:
			delete(next.HostPorts, proxy.LocalPort{Port: uint16(8000 + random.IntN(3)), Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol})
		case 3:
			next.NodePortRanges = nil
			if random.IntN(2) == 0 {
				next.NodePortRanges = proxy.NodePortRanges{netip.MustParsePrefix("192.0.2.10/32")}
			}
		default:
			next.Services = next.Services.With(name, randomPort(random, service))
		}
	}
	return next
}

// randomPort returns a port of the Service of a number.
func randomPort(random *rand.Rand, service int) *proxy.ServicePort {
	p := &proxy.ServicePort{
		ClusterIP: netip.AddrFrom4([4]byte{10, 96, 0, byte(20 + service)}), Port: uint16(80 + random.IntN(2)),
		InternalLocal: random.IntN(4) == 0, ExternalLocal: random.IntN(4) == 0,
	}
	for i := range random.IntN(4) {
		e := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 1, byte(i)}), 8080)
		p.Cluster = append(p.Cluster, e)
		if random.IntN(2) == 0 {
			p.Local = append(p.Local, e)
		}
	}
	if random.IntN(3) == 0 {
		p.Affinity = time.Hour
	}
	if random.IntN(2) == 0 {
		p.NodePort = uint16(30080 + random.IntN(2))
		p.External = []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(random.IntN(2))})}
	}
	if random.IntN(3) == 0 {
		p.LoadBalancer = []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(random.IntN(2))})}
		p.SourceRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	}
	return p
}

// TestLocalTrafficOfTheNode checks that all rules follow the ranges of the node's pods.
func TestLocalTrafficOfTheNode(t *testing.T) {
	ns := netnstest.New(t)
	b := New(Config{Table: "coracle-test", NetNS: int(ns), Local: proxy.Local{NodeRanges: true}, ClusterCIDRs: []netip.Prefix{proxytest.PodCIDR}})
	rules := manyServices(3)
	for _, list := range [][]netip.Prefix{nil, {netip.MustParsePrefix("2001:db8::/64"), netip.MustParsePrefix("10.9.7.0/24")}, {netip.MustParsePrefix("10.9.8.0/24")}} {
		rules.PodCIDRs = list
		for range 2 {
			if err := b.Apply(rules); err != nil {
				t.Fatal(err)
			}
		}
		got, want := b.tables[nft.IPv4.Name].String(), newTable(settings{family: nft.IPv4, mark: masqueradeMark, pods: b.pods(nft.IPv4, rules)}, rules).String()
		if got != want {
			t.Errorf("with %v:\n%s\nwant\n%s", list, got, want)
		}
		if masqueraded := strings.Contains(got, "ip saddr != 10.9."); masqueraded != (list != nil) {
			t.Errorf("with %v, connections are masqueraded: %v", list, masqueraded)
		}
		if intact, err := b.Intact(); err != nil || !intact {
			t.Errorf("with %v: intact %v, %v", list, intact, err)
		}
	}
}

// manyServices returns rules with n Services of two endpoints each.
func manyServices(n int) proxy.Rules {
	var ports []*proxy.ServicePort
	for i := range n {
		ports = append(ports, &proxy.ServicePort{
			ClusterIP: netip.AddrFrom4([4]byte{10, 96, byte(i / 250), byte(1 + i%250)}), Port: 80,
			Cluster: proxytest.Endpoints("10.9.1.3:8080", "10.9.1.4:8080"),
		})
	}
	return proxytest.RulesOf(ports...)
}

// withChange returns the rules with another endpoint of one Service.
func withChange(rules proxy.Rules, to byte) proxy.Rules {
	next := rules
	for name, p := range rules.Services.All() {
		if name.Name == "s0" {
			one := *p
			one.Cluster = []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 2, to}), 8080)}
			next.Services = next.Services.With(name, &one)
		}
	}
	return next
}

// TestCostOfAChange checks that a change of one Service formats the rules of that one
// only, and costs with ten thousand Services what it costs with a hundred.
func TestCostOfAChange(t *testing.T) {
	cost := func(services int) uint64 {
		before := manyServices(services)
		table := newTable(own(), before)
		next, visited := withChange(before, 1), 0
		next.Services = next.Services.Counted(&visited)
		c := costtest.Of(t, func() { table.follow(before, next, proxy.Compare(before, next)) })
		if visited > 20 {
			t.Errorf("with %d Services, %d are looked at", services, visited)
		}
		if len(table.was.chains) != 1 || len(table.is.chains) != 1 {
			t.Errorf("with %d Services, chains of others are touched:\n%s\n%s", services, table.was, table.is)
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
	for _, services := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprint(services, "Services"), func(b *testing.B) {
			before := manyServices(services)
			table := newTable(own(), before)
			versions := []proxy.Rules{withChange(before, 1), withChange(before, 2)}
			table.follow(before, versions[1], proxy.Compare(before, versions[1]))
			for i := 0; b.Loop(); i++ {
				from, to := versions[(i+1)%2], versions[i%2]
				table.follow(from, to, proxy.Compare(from, to))
			}
		})
	}
}
