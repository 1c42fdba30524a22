package proxytest

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/proxy"
)

// lost is how long a client waits whose packets are dropped: it sends a second one after
// a second.
const lost = 2 * time.Second

// Suite is what packets do with a backend.
type Suite struct {
	// New returns a backend that has changed nothing yet. What it applies replaces what
	// an earlier one has left. It raises how long the kernel knows TCP connections that
	// one side has closed to an hour.
	New func(Config) proxy.Backend
	// GuardsServiceRanges says that connections to addresses and ports of the ranges of
	// Services that no Service has are refused or dropped. Otherwise they leave the node.
	GuardsServiceRanges bool
	// LoopbackNodePorts says that Rules.LoopbackNodePorts has an effect.
	LoopbackNodePorts bool
	// WithoutSCTP says that the backend does not serve SCTP, or that the kernel lacks
	// what it needs for that.
	WithoutSCTP bool
	// HidesClients says that endpoints see the node's address instead of their clients'.
	HidesClients bool
}

// Run runs the suite as subtests.
func (s Suite) Run(t *testing.T) {
	for _, c := range []struct {
		name string
		test func(*testing.T)
	}{
		{"Traffic", s.traffic},
		{"TrafficIPv6", s.trafficIPv6},
		{"NoService", s.noService},
		{"Affinity", s.affinity},
		{"SourceRanges", s.sourceRanges},
		{"ExternalPolicyLocal", s.externalPolicyLocal},
		{"InternalPolicyLocal", s.internalPolicyLocal},
		{"NodePortAddresses", s.nodePortAddresses},
		{"LoopbackNodePorts", s.loopbackNodePorts},
		{"ManyEndpointsAndHostPorts", s.manyEndpointsAndHostPorts},
		{"HostPortOfAnotherAddress", s.hostPortOfAnotherAddress},
		{"Datagrams", s.datagrams},
		{"SCTP", s.sctp},
		{"LostRules", s.lostRules},
		{"HalfClosedConnections", s.halfClosedConnections},
	} {
		t.Run(c.name, c.test)
	}
}

// lab returns a node with a client and the pods a and b, which answer on port 8080,
// and a Service with both as endpoints.
func (s Suite) lab(t *testing.T) (l *Lab, client netns.NsHandle, service proxy.ServicePort) {
	t.Helper()
	l = NewLab(t, s.New, map[string]string{"client": "10.9.1.2", "a": "10.9.1.3", "b": "10.9.1.4"})
	l.Serve("a", 8080)
	l.Serve("b", 8080)
	return l, l.Members["client"], proxy.ServicePort{
		ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80, NodePort: 30080,
		Cluster: Endpoints("10.9.1.3:8080", "10.9.1.4:8080"),
	}
}

// isRefused reports whether an error says that a connection was refused, and not that
// its packets were lost.
func isRefused(err error) bool {
	var ended net.Error
	return err != nil && (!errors.As(err, &ended) || !ended.Timeout())
}

// seen returns the address that an endpoint sees of a client, whose address the backend
// has no reason to change.
func (s Suite) seen(client string) string {
	switch {
	case !s.HidesClients:
		return client
	case strings.Contains(client, ":"):
		return "fd00:9:1::1"
	}
	return "10.9.1.1"
}

func (s Suite) traffic(t *testing.T) {
	l, client, service := s.lab(t)
	both := service
	l.Apply(&both)
	for name, at := range map[string]struct {
		from    netns.NsHandle
		address string
	}{"cluster IP from a pod": {client, "10.96.0.20:80"}, "cluster IP from the node": {l.Node, "10.96.0.20:80"}, "node port": {client, "10.9.1.1:30080"}} {
		if seen := l.Answerers(at.from, at.address, 40); seen["a"] < 5 || seen["b"] < 5 || seen["error"] > 0 {
			t.Errorf("%s: %v", name, seen)
		}
	}
	if _, from, err := l.Ask(client, "10.96.0.20:80"); err != nil || from != s.seen("10.9.1.2") {
		t.Errorf("a pod's address was not kept: %s %v", from, err)
	}
	if _, from, err := l.Ask(client, "10.9.1.1:30080"); err != nil || from != "10.9.1.1" {
		t.Errorf("node port with policy Cluster must be masqueraded: %s %v", from, err)
	}

	one := service
	one.Cluster = Endpoints("10.9.1.3:8080")
	l.Apply(&one)
	if seen := l.Answerers(client, "10.96.0.20:80", 10); seen["a"] != 10 {
		t.Errorf("after an endpoint went: %v", seen)
	}
	if name, _, err := l.Ask(l.Members["a"], "10.96.0.20:80"); err != nil || name != "a" {
		t.Errorf("a pod must reach itself through its Service: %s %v", name, err)
	}

	none := service
	none.Cluster = nil
	l.Apply(&none)
	for _, address := range []string{"10.96.0.20:80", "10.9.1.1:30080"} {
		if _, _, err := l.Ask(client, address); !isRefused(err) {
			t.Errorf("%s without endpoints must be rejected, not dropped: %v", address, err)
		}
	}
	l.Apply(&both)
	if seen := l.Answerers(client, "10.96.0.20:80", 3); seen["error"] > 0 {
		t.Errorf("after endpoints came: %v", seen)
	}
	l.Apply()
	if name, _, err := l.AskFor(lost, client, "10.96.0.20:80"); err == nil {
		t.Errorf("a Service that is gone is answered by %q", name)
	}
}

func (s Suite) trafficIPv6(t *testing.T) {
	netnstest.NeedsIPv6(t)
	l := newLab(t, s.New, map[string]string{"client": "10.9.1.2", "a": "10.9.1.3"}, true)
	l.Serve("a", 8080)
	client := l.Members["client"]
	four := &proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80, Cluster: Endpoints("10.9.1.3:8080")}
	six := &proxy.ServicePort{ClusterIP: netip.MustParseAddr("fd00:96::20"), Port: 80, NodePort: 30080, Cluster: Endpoints("[fd00:9:1::3]:8080")}
	l.Apply(four, six)
	for address, want := range map[string]string{"10.96.0.20:80": s.seen("10.9.1.2"), "[fd00:96::20]:80": s.seen("fd00:9:1::2"), "[fd00:9:1::1]:30080": "fd00:9:1::1"} {
		if name, from, err := l.Ask(client, address); err != nil || name != "a" || from != want {
			t.Errorf("%s is answered by %q, which saw %s (%v), want a and %s", address, name, from, err, want)
		}
	}
	none := *six
	none.Cluster = nil
	l.Apply(four, &none)
	if _, _, err := l.Ask(client, "[fd00:96::20]:80"); !isRefused(err) {
		t.Errorf("without endpoints, a connection must be rejected, not dropped: %v", err)
	}
}

// noService checks what becomes of connections to ports that a Service does not have,
// and of those to cluster IPs that no Service has. Without a rule, all of them reach an
// outsider that answers on the Services' range.
func (s Suite) noService(t *testing.T) {
	l, client, service := s.lab(t)
	l.AddAddress(l.Members["b"], "eth0", "10.96.0.20/32")
	l.AddAddress(l.Members["b"], "eth0", "10.96.0.99/32")
	netnstest.Do(t, l.Node, func() error {
		toOutsider, err := netlink.RouteGet(net.ParseIP("10.9.1.4"))
		if err != nil {
			return err
		}
		_, services, err := net.ParseCIDR("10.96.0.0/16")
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: toOutsider[0].LinkIndex, Scope: netlink.SCOPE_LINK, Dst: services})
	})
	service.Cluster = Endpoints("10.9.1.3:8080")
	rules := RulesOf(&service)
	rules.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/24"), netip.MustParsePrefix("2001:db8::/112")}
	l.ApplyRules(rules)
	for name, from := range map[string]netns.NsHandle{"a pod": client, "the node": l.Node} {
		if who, _, err := l.Ask(from, "10.96.0.20:80"); err != nil || who != "a" {
			t.Errorf("from %s, the Service itself: answer %q, %v", name, who, err)
		}
		if !s.GuardsServiceRanges {
			if seen := l.Answerers(from, "10.96.0.99:8080", 1); seen["b"] != 1 {
				t.Errorf("from %s, a cluster IP of no Service must reach the outsider: %v", name, seen)
			}
			continue
		}
		if who, _, err := l.Ask(from, "10.96.0.20:8080"); !isRefused(err) {
			t.Errorf("from %s, another port of a Service must be rejected: answer %q, %v", name, who, err)
		}
		var ended net.Error
		if who, _, err := l.AskFor(lost, from, "10.96.0.99:8080"); err == nil || !errors.As(err, &ended) || !ended.Timeout() {
			t.Errorf("from %s, a cluster IP of no Service must be dropped: answer %q, %v", name, who, err)
		}
	}
}

func (s Suite) affinity(t *testing.T) {
	l, client, service := s.lab(t)
	sticky := service
	sticky.Affinity = time.Hour
	l.Apply(&sticky)
	if seen := l.Answerers(client, "10.96.0.20:80", 20); len(seen) != 1 || seen["error"] > 0 {
		t.Errorf("with affinity one client sees one endpoint: %v", seen)
	}
	first, _, _ := l.Ask(client, "10.96.0.20:80")
	l.Apply(&sticky, &proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.21"), Port: 81, Cluster: Endpoints("10.9.1.4:8080")})
	if seen := l.Answerers(client, "10.96.0.20:80", 10); seen[first] != 10 {
		t.Errorf("a change of another Service broke affinity to %s: %v", first, seen)
	}
}

func (s Suite) sourceRanges(t *testing.T) {
	l, client, service := s.lab(t)
	service.LoadBalancer = []netip.Addr{netip.MustParseAddr("203.0.113.7")}
	service.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.9.1.2/32")}
	service.External = []netip.Addr{netip.MustParseAddr("203.0.113.8")}
	l.Apply(&service)
	if seen := l.Answerers(client, "203.0.113.7:80", 5); seen["error"] > 0 {
		t.Errorf("load balancer from an allowed range: %v", seen)
	}
	if seen := l.Answerers(l.Members["a"], "203.0.113.8:80", 5); seen["error"] > 0 {
		t.Errorf("external IP: %v", seen)
	}
	if _, _, err := l.AskFor(lost, l.Members["a"], "203.0.113.7:80"); err == nil { // its packets are dropped
		t.Error("load balancer answered a client out of its ranges")
	}
}

func (s Suite) externalPolicyLocal(t *testing.T) {
	l, client, service := s.lab(t)
	service.ExternalLocal = true
	service.Local = Endpoints("10.9.1.4:8080")
	l.Backend = s.New(Config{NetNS: int(l.Node)}) // for which the client is no pod
	l.Apply(&service)
	if seen := l.Answerers(client, "10.9.1.1:30080", 10); seen["b"] != 10 {
		t.Errorf("external policy Local: %v", seen)
	}
	if _, from, err := l.Ask(client, "10.9.1.1:30080"); err != nil || from != s.seen("10.9.1.2") {
		t.Errorf("external policy Local must keep the client's address: %s %v", from, err)
	}
	elsewhere := service
	elsewhere.Local = nil
	l.Apply(&elsewhere)
	if name, _, err := l.AskFor(lost, client, "10.9.1.1:30080"); err == nil || isRefused(err) {
		t.Errorf("with endpoints on other nodes alone, packets must be dropped: answer %q, %v", name, err)
	}
	if seen := l.Answerers(l.Node, "192.168.77.1:30080", 3); seen["error"] > 0 {
		t.Errorf("the node itself may use all endpoints: %v", seen)
	}
}

func (s Suite) internalPolicyLocal(t *testing.T) {
	l, client, service := s.lab(t)
	service.InternalLocal = true
	service.Local = Endpoints("10.9.1.4:8080")
	l.Apply(&service)
	if seen := l.Answerers(client, "10.96.0.20:80", 10); seen["b"] != 10 {
		t.Errorf("internal policy Local: %v", seen)
	}
	elsewhere := service
	elsewhere.Local = nil
	l.Apply(&elsewhere)
	if name, _, err := l.AskFor(lost, client, "10.96.0.20:80"); err == nil || isRefused(err) {
		t.Errorf("with endpoints on other nodes alone, packets must be dropped: answer %q, %v", name, err)
	}
	if seen := l.Answerers(client, "10.9.1.1:30080", 3); seen["error"] > 0 {
		t.Errorf("node ports have all endpoints: %v", seen)
	}
}

// nodePortAddresses checks that node ports answer at the chosen addresses of the node,
// with and without endpoints, and leave the others to programs.
func (s Suite) nodePortAddresses(t *testing.T) {
	l, client, service := s.lab(t)
	l.ServeOnNode(30080)
	none := service
	none.Cluster = nil
	for _, c := range []struct {
		ranges              string
		service             *proxy.ServicePort
		chosen, other, node string // who answers at 10.9.1.1 and 192.168.77.1, and to the node at 192.168.77.1
	}{
		{"10.9.1.1/32", &service, "a pod", "the node", "the node"},
		{"192.168.77.0/24", &service, "the node", "a pod", "a pod"},
		{"10.9.1.1/32", &none, "", "the node", "the node"},
	} {
		rules := RulesOf(c.service)
		rules.NodePortRanges = proxy.NodePortRanges{netip.MustParsePrefix(c.ranges)}
		l.ApplyRules(rules)
		for _, at := range []struct {
			from          netns.NsHandle
			address, want string
		}{{client, "10.9.1.1:30080", c.chosen}, {client, "192.168.77.1:30080", c.other}, {l.Node, "192.168.77.1:30080", c.node}} {
			if name, err := l.who(at.from, at.address); name != at.want {
				t.Errorf("node ports at %s: %s is answered by %q (%v), want %q", c.ranges, at.address, name, err, at.want)
			}
		}
	}
}

// who returns whether a pod or the node answers.
func (l *Lab) who(from netns.NsHandle, address string) (string, error) {
	name, _, err := l.Ask(from, address)
	switch name {
	case "a", "b":
		return "a pod", err
	case "node":
		return "the node", err
	}
	return name, err
}

// loopbackNodePorts checks that node ports leave loopback addresses to programs, unless
// the rules say otherwise and the backend can do that.
func (s Suite) loopbackNodePorts(t *testing.T) {
	l, _, service := s.lab(t)
	l.ServeOnNode(30080)
	all, loopback := proxy.NodePortRanges(nil), proxy.NodePortRanges{netip.MustParsePrefix("127.0.0.0/8")}
	for _, c := range []struct {
		ranges proxy.NodePortRanges
		asked  bool
		taken  bool
	}{
		{all, false, false},
		{loopback, false, false},
		{proxy.NodePortRanges{netip.MustParsePrefix("192.168.77.0/24")}, true, false},
		{all, true, s.LoopbackNodePorts},
		{loopback, true, s.LoopbackNodePorts},
	} {
		rules := RulesOf(&service)
		rules.NodePortRanges, rules.LoopbackNodePorts = c.ranges, c.asked
		l.ApplyRules(rules)
		want := map[bool]string{true: "a pod", false: "the node"}[c.taken]
		if name, err := l.who(l.Node, "127.0.0.1:30080"); name != want {
			t.Errorf("node ports at %v, with loopback addresses: %v: 127.0.0.1 is answered by %q (%v), want %q", c.ranges, c.asked, name, err, want)
		}
	}
}

func (s Suite) manyEndpointsAndHostPorts(t *testing.T) {
	l := NewLab(t, s.New, map[string]string{"client": "10.9.1.2", "a": "10.9.1.3"})
	l.Serve("a", 8080)
	var many []netip.AddrPort
	for i := range 1000 {
		many = append(many, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(2 + i/250), byte(i % 250)}), 8080))
	}
	rules := RulesOf(&proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80, Cluster: many})
	to := proxy.HostPort{To: netip.MustParseAddrPort("10.9.1.3:8080")}
	rules.HostPorts[proxy.LocalPort{Port: 8888, Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol}] = to
	rules.HostPorts[proxy.LocalPort{Address: netip.MustParseAddr("192.168.77.1"), Port: 8889, Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol}] = to
	l.ApplyRules(rules)
	for address, want := range map[string]string{"10.9.1.1:8888": "a", "192.168.77.1:8888": "a", "192.168.77.1:8889": "a", "10.9.1.1:8889": ""} {
		if name, _, err := l.Ask(l.Members["client"], address); name != want {
			t.Errorf("host port at %s is answered by %q (%v), want %q", address, name, err, want)
		}
	}
	if name, _, err := l.Ask(l.Members["a"], "10.9.1.1:8888"); name != "a" {
		t.Errorf("a pod must reach itself through its host port: %q, %v", name, err)
	}
	rules.HostPorts = maps.Clone(rules.HostPorts) // those that are applied do not change
	delete(rules.HostPorts, proxy.LocalPort{Port: 8888, Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol})
	l.ApplyRules(rules)
	if name, _, err := l.Ask(l.Members["client"], "10.9.1.1:8888"); err == nil {
		t.Errorf("a host port that is gone is answered by %q", name)
	}
}

// hostPortOfAnotherAddress checks that a host port with a hostIP that is not an address
// of the node takes no connection, neither from pods nor from the node, and that it does
// once the node has the address.
func (s Suite) hostPortOfAnotherAddress(t *testing.T) {
	l := NewLab(t, s.New, map[string]string{"client": "10.9.1.2", "thief": "10.9.1.3", "victim": "10.9.1.4", "outside": "198.51.100.7"})
	for _, member := range []string{"thief", "victim", "outside"} {
		l.Serve(member, 8080)
	}
	rules := RulesOf(&proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 8080})
	for _, address := range []string{"10.9.1.4", "198.51.100.7", "10.96.0.20", "10.9.1.1", "203.0.113.9"} {
		key := proxy.LocalPort{Address: netip.MustParseAddr(address), Port: 8080, Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol}
		rules.HostPorts[key] = proxy.HostPort{To: netip.MustParseAddrPort("10.9.1.3:8080")}
	}
	l.ApplyRules(rules)
	check := func(address, want string) {
		t.Helper()
		for from, ns := range map[string]netns.NsHandle{"a pod": l.Members["client"], "the node": l.Node} {
			if name, _, err := l.Ask(ns, address+":8080"); name != want {
				t.Errorf("%s from %s is answered by %q (%v), want %q", address, from, name, err, want)
			}
		}
	}
	check("10.9.1.4", "victim")
	check("198.51.100.7", "outside")
	check("10.96.0.20", "") // a Service without endpoints
	check("10.9.1.1", "thief")
	l.AddAddress(l.Node, Up0, "203.0.113.9/32")
	check("203.0.113.9", "thief")
}

// datagrams checks that a client that keeps sending from one socket reaches the
// endpoints of today.
func (s Suite) datagrams(t *testing.T) {
	l, client, service := s.lab(t)
	to := func(endpoints ...string) proxy.Rules {
		p := service
		p.Cluster = Endpoints(endpoints...)
		rules := rulesOf(v1.ProtocolUDP, &p)
		rules.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/24")}
		return rules
	}
	l.ApplyRules(to("10.9.1.3:8080"))
	var c net.Conn
	netnstest.Do(t, client, func() (err error) {
		c, err = net.Dial("udp", "10.96.0.20:80")
		return err
	})
	defer func() { _ = c.Close() }()
	for _, step := range []struct{ endpoint, want string }{{"10.9.1.3:8080", "a"}, {"10.9.1.4:8080", "b"}, {"10.9.1.3:8080", "a"}} {
		l.ApplyRules(to(step.endpoint))
		if name, err := sendUntilAnswered(c); err != nil || name != step.want {
			t.Errorf("with the endpoint %s, %q answers (%v), want %q", step.endpoint, name, err, step.want)
		}
	}
}

// sendUntilAnswered sends datagrams, which may be lost, until one is answered, and
// returns by whom.
func sendUntilAnswered(c net.Conn) (string, error) {
	buffer := make([]byte, 64)
	end := time.Now().Add(3 * time.Minute)
	for {
		if _, err := c.Write([]byte("who?")); err != nil {
			return "", err
		}
		again := time.Now().Add(time.Second)
		if err := c.SetReadDeadline(again); err != nil {
			return "", err
		}
		n, err := c.Read(buffer)
		if err == nil {
			name, _, _ := strings.Cut(string(buffer[:n]), " ")
			return name, nil
		}
		if again.After(end) {
			return "", err
		}
	}
}

// lostRules checks that a backend finds out that another one has removed its rules.
func (s Suite) lostRules(t *testing.T) {
	l := NewLab(t, s.New, map[string]string{"client": "10.9.1.2", "a": "10.9.1.3"})
	l.Serve("a", 8080)
	service := &proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80, Cluster: Endpoints("10.9.1.3:8080")}
	l.Apply(service)
	if intact, err := l.Backend.Intact(); err != nil || !intact {
		t.Fatalf("intact = %v, %v right after Apply", intact, err)
	}
	if err := s.New(Config{NetNS: int(l.Node)}).Remove(); err != nil {
		t.Fatal(err)
	}
	if intact, err := l.Backend.Intact(); err != nil || intact {
		t.Fatalf("intact = %v, %v without rules", intact, err)
	}
	l.Apply(service)
	if seen := l.Answerers(l.Members["client"], "10.96.0.20:80", 3); seen["a"] != 3 {
		t.Errorf("after the repair: %v", seen)
	}
	for range 2 {
		if err := l.Backend.Remove(); err != nil {
			t.Fatal(err)
		}
	}
}

// halfClosedConnections checks that TCP connections that one side has closed are known
// for an hour at least.
func (s Suite) halfClosedConnections(t *testing.T) {
	const file = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait"
	netnstest.Do(t, netnstest.New(t), func() error {
		for _, step := range []struct{ write, want string }{{"", "3600"}, {"7200", "7200"}} {
			if step.write != "" {
				if err := os.WriteFile(file, []byte(step.write), 0o644); err != nil {
					return err
				}
			}
			if err := s.New(Config{}).Apply(proxy.Rules{}); err != nil {
				return err
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if got := strings.TrimSpace(string(raw)); got != step.want {
				t.Errorf("half-closed connections are known for %s s, want %s", got, step.want)
			}
		}
		return nil
	})
}
