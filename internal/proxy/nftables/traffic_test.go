package nftables

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/proxy"
)

// lab is a node with pods, each in a network namespace of its own:
//
//	client 10.9.1.2 ─┐
//	pod a  10.9.1.3 ─┤ bridge-less veths, routed by the node 10.9.1.1
//	pod b  10.9.1.4 ─┘
type lab struct {
	t       *testing.T
	node    netns.NsHandle
	members map[string]netns.NsHandle
	backend *Backend
}

var podCIDR = netip.MustParsePrefix("10.9.1.0/24")

func newLab(t *testing.T, members map[string]string) *lab {
	t.Helper()
	l := &lab{t: t, node: netnstest.New(t), members: map[string]netns.NsHandle{}}
	netnstest.Do(t, l.node, func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644) })
	i := 0
	for name, address := range members {
		ns := netnstest.New(t)
		l.members[name] = ns
		near := fmt.Sprintf("v%d", i)
		i++
		netnstest.Do(t, l.node, func() error {
			veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: near}, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns)}
			if err := netlink.LinkAdd(veth); err != nil {
				return err
			}
			link, err := netlink.LinkByName(near)
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(link, mustAddr("10.9.1.1/32")); err != nil {
				return err
			}
			if err := netlink.LinkSetUp(link); err != nil {
				return err
			}
			return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: mustAddr(address + "/32").IPNet})
		})
		netnstest.Do(t, ns, func() error {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(link, mustAddr(address+"/32")); err != nil {
				return err
			}
			if err := netlink.LinkSetUp(link); err != nil {
				return err
			}
			gateway := mustAddr("10.9.1.1/32")
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: gateway.IPNet}); err != nil {
				return err
			}
			return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway.IP})
		})
	}
	// As on every machine, so that what the node itself sends reaches the
	// output hook.
	netnstest.Do(t, l.node, func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0"}, PeerName: "up1"}); err != nil {
			return err
		}
		link, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, mustAddr("192.168.77.1/24")); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: mustAddr("0.0.0.0/0").IPNet})
	})
	l.backend = New(Config{Table: "coracle-test", ClusterCIDRs: []netip.Prefix{podCIDR}, NetNS: int(l.node)})
	return l
}

func mustAddr(s string) *netlink.Addr {
	a, err := netlink.ParseAddr(s)
	if err != nil {
		panic(err)
	}
	return a
}

// serve answers each TCP connection to a member's port with the member's name
// and the client's address.
func (l *lab) serve(member string, port int) {
	l.t.Helper()
	var listener net.Listener
	netnstest.Do(l.t, l.members[member], func() (err error) {
		listener, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
		return err
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(c, "%s %s", member, c.RemoteAddr().(*net.TCPAddr).IP)
			_ = c.Close()
		}
	}()
	l.t.Cleanup(func() { _ = listener.Close(); <-done })
}

// ask connects from a namespace and returns the member that answered and the
// client's address that it saw. It says nothing of speed.
func (l *lab) ask(from netns.NsHandle, address string) (name, client string, err error) {
	l.t.Helper()
	return l.askFor(3*time.Minute, from, address)
}

// askFor is ask with a bound of the time for a connection.
func (l *lab) askFor(patience time.Duration, from netns.NsHandle, address string) (name, client string, err error) {
	l.t.Helper()
	netnstest.Do(l.t, from, func() error {
		var c net.Conn
		if c, err = net.DialTimeout("tcp", address, patience); err != nil {
			return nil
		}
		defer func() { _ = c.Close() }()
		content, readErr := io.ReadAll(c)
		if err = readErr; err == nil {
			_, err = fmt.Sscan(string(content), &name, &client)
		}
		return nil
	})
	return name, client, err
}

func (l *lab) apply(ports ...*proxy.ServicePort) {
	l.t.Helper()
	if err := l.backend.Apply(rulesOf(ports...)); err != nil {
		l.t.Fatal(err)
	}
}

func rulesOf(ports ...*proxy.ServicePort) proxy.Rules {
	rules := proxy.Rules{Services: map[proxy.PortName]*proxy.ServicePort{}, HostPorts: map[proxy.LocalPort]proxy.HostPort{}}
	for i, p := range ports {
		rules.Services[proxy.PortName{
			NamespacedName: types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("s%d", i)},
			Port:           "http", Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol,
		}] = p
	}
	return rules
}

func endpoints(list ...string) []netip.AddrPort {
	var result []netip.AddrPort
	for _, s := range list {
		result = append(result, netip.MustParseAddrPort(s))
	}
	return result
}

// answerers counts the members that answer n connections.
func (l *lab) answerers(from netns.NsHandle, address string, n int) map[string]int {
	l.t.Helper()
	seen := map[string]int{}
	for range n {
		name, _, err := l.ask(from, address)
		if err != nil {
			name = "error"
		}
		seen[name]++
	}
	return seen
}

// trafficLab returns a node with a client and the pods a and b, which answer on
// port 8080, and a Service with both as endpoints.
func trafficLab(t *testing.T) (l *lab, client netns.NsHandle, service proxy.ServicePort) {
	t.Helper()
	l = newLab(t, map[string]string{"client": "10.9.1.2", "a": "10.9.1.3", "b": "10.9.1.4"})
	l.serve("a", 8080)
	l.serve("b", 8080)
	return l, l.members["client"], proxy.ServicePort{
		ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80, NodePort: 30080,
		Cluster: endpoints("10.9.1.3:8080", "10.9.1.4:8080"),
	}
}

func TestTraffic(t *testing.T) {
	l, client, service := trafficLab(t)
	both := service
	l.apply(&both)
	if seen := l.answerers(client, "10.96.0.20:80", 40); seen["a"] < 5 || seen["b"] < 5 || seen["error"] > 0 {
		t.Errorf("cluster IP from a pod: %v", seen)
	}
	if seen := l.answerers(l.node, "10.96.0.20:80", 40); seen["a"] < 5 || seen["b"] < 5 || seen["error"] > 0 {
		t.Errorf("cluster IP from the node: %v", seen)
	}
	if seen := l.answerers(client, "10.9.1.1:30080", 40); seen["a"] < 5 || seen["b"] < 5 || seen["error"] > 0 {
		t.Errorf("node port: %v", seen)
	}
	if _, from, err := l.ask(client, "10.96.0.20:80"); err != nil || from != "10.9.1.2" {
		t.Errorf("a pod's address was not kept: %s %v", from, err)
	}
	if _, from, err := l.ask(client, "10.9.1.1:30080"); err != nil || from != "10.9.1.1" {
		t.Errorf("node port with policy Cluster must be masqueraded: %s %v", from, err)
	}

	one := service
	one.Cluster = endpoints("10.9.1.3:8080")
	l.apply(&one)
	if seen := l.answerers(client, "10.96.0.20:80", 10); seen["a"] != 10 {
		t.Errorf("after an endpoint went: %v", seen)
	}
	if name, _, err := l.ask(l.members["a"], "10.96.0.20:80"); err != nil || name != "a" {
		t.Errorf("a pod must reach itself through its Service: %s %v", name, err)
	}

	none := service
	none.Cluster = nil
	l.apply(&none)
	for _, address := range []string{"10.96.0.20:80", "10.9.1.1:30080"} {
		var ended net.Error
		if _, _, err := l.ask(client, address); err == nil || errors.As(err, &ended) && ended.Timeout() {
			t.Errorf("%s without endpoints must be rejected, not dropped: %v", address, err)
		}
	}
}

// TestTrafficToNoService checks that connections to ports that a Service does not
// have are rejected, and those to cluster IPs that no Service has dropped. All of
// them would reach an outsider that answers on the Services' range.
func TestTrafficToNoService(t *testing.T) {
	l, client, service := trafficLab(t)
	netnstest.Do(t, l.members["b"], func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrAdd(link, mustAddr("10.96.0.20/32")), netlink.AddrAdd(link, mustAddr("10.96.0.99/32")))
	})
	netnstest.Do(t, l.node, func() error {
		toOutsider, err := netlink.RouteGet(net.ParseIP("10.9.1.4"))
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: toOutsider[0].LinkIndex, Scope: netlink.SCOPE_LINK, Dst: mustAddr("10.96.0.0/16").IPNet})
	})
	service.Cluster = endpoints("10.9.1.3:8080")
	rules := rulesOf(&service)
	rules.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/24"), netip.MustParsePrefix("2001:db8::/112")}
	if err := l.backend.Apply(rules); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]netns.NsHandle{"a pod": client, "the node": l.node} {
		var ended net.Error
		if who, _, err := l.ask(from, "10.96.0.20:8080"); err == nil || errors.As(err, &ended) && ended.Timeout() {
			t.Errorf("from %s, another port of a Service must be rejected: answer %q, %v", name, who, err)
		}
		if who, _, err := l.askFor(5*time.Second, from, "10.96.0.99:8080"); err == nil || !errors.As(err, &ended) || !ended.Timeout() {
			t.Errorf("from %s, a cluster IP of no Service must be dropped: answer %q, %v", name, who, err)
		}
		if who, _, err := l.ask(from, "10.96.0.20:80"); err != nil || who != "a" {
			t.Errorf("from %s, the Service itself: answer %q, %v", name, who, err)
		}
	}
}

func TestTrafficWithAffinity(t *testing.T) {
	l, client, service := trafficLab(t)
	sticky := service
	sticky.Affinity = time.Hour
	l.apply(&sticky)
	if seen := l.answerers(client, "10.96.0.20:80", 20); len(seen) != 1 || seen["error"] > 0 {
		t.Errorf("with affinity one client sees one endpoint: %v", seen)
	}
	first, _, _ := l.ask(client, "10.96.0.20:80")
	l.apply(&sticky, &proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.21"), Port: 81, Cluster: endpoints("10.9.1.4:8080")})
	if seen := l.answerers(client, "10.96.0.20:80", 10); seen[first] != 10 {
		t.Errorf("a change of another Service broke affinity to %s: %v", first, seen)
	}
}

func TestTrafficFromOutside(t *testing.T) {
	l, client, service := trafficLab(t)
	ranges := service
	ranges.LoadBalancer = []netip.Addr{netip.MustParseAddr("203.0.113.7")}
	ranges.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.9.1.2/32")}
	ranges.External = []netip.Addr{netip.MustParseAddr("203.0.113.8")}
	l.apply(&ranges)
	if seen := l.answerers(client, "203.0.113.7:80", 5); seen["error"] > 0 {
		t.Errorf("load balancer from an allowed range: %v", seen)
	}
	if seen := l.answerers(l.members["a"], "203.0.113.8:80", 5); seen["error"] > 0 {
		t.Errorf("external IP: %v", seen)
	}
	if _, _, err := l.askFor(10*time.Second, l.members["a"], "203.0.113.7:80"); err == nil { // its packets are dropped
		t.Error("load balancer answered a client out of its ranges")
	}

	local := service
	local.ExternalLocal = true
	local.Local = endpoints("10.9.1.4:8080")
	l.backend = New(Config{Table: "coracle-test", NetNS: int(l.node)})
	l.apply(&local)
	if seen := l.answerers(client, "10.9.1.1:30080", 10); seen["b"] != 10 {
		t.Errorf("external policy Local: %v", seen)
	}
	if _, from, err := l.ask(client, "10.9.1.1:30080"); err != nil || from != "10.9.1.2" {
		t.Errorf("external policy Local must keep the client's address: %s %v", from, err)
	}
}

// TestTrafficToNodePortAddresses checks that node ports answer at the chosen addresses
// of the node, with and without endpoints, and leave the others to programs.
func TestTrafficToNodePortAddresses(t *testing.T) {
	l, client, service := trafficLab(t)
	listenOn(t, l, 30080)
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
		rules := rulesOf(c.service)
		rules.NodePortRanges = proxy.NodePortRanges{netip.MustParsePrefix(c.ranges)}
		if err := l.backend.Apply(rules); err != nil {
			t.Fatal(err)
		}
		for _, at := range []struct {
			from          netns.NsHandle
			address, want string
		}{{client, "10.9.1.1:30080", c.chosen}, {client, "192.168.77.1:30080", c.other}, {l.node, "192.168.77.1:30080", c.node}} {
			name, _, err := l.ask(at.from, at.address)
			switch name {
			case "a", "b":
				name = "a pod"
			case "node":
				name = "the node"
			}
			if name != at.want {
				t.Errorf("node ports at %s: %s is answered by %q (%v), want %q", c.ranges, at.address, name, err, at.want)
			}
		}
	}
}

// listenOn answers connections to a port of the node with the name node.
func listenOn(t *testing.T, l *lab, port int) {
	t.Helper()
	l.members["node"] = l.node
	l.serve("node", port)
}

func TestManyEndpointsAndHostPorts(t *testing.T) {
	l := newLab(t, map[string]string{"client": "10.9.1.2", "a": "10.9.1.3"})
	l.serve("a", 8080)
	var many []netip.AddrPort
	for i := range 1200 {
		many = append(many, netip.AddrPortFrom(netip.MustParseAddr("10.9.1.3"), uint16(8080)), netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(2 + i/250), byte(i % 250)}), 8080))
	}
	rules := rulesOf(&proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80, Cluster: many[:1000]})
	rules.HostPorts[proxy.LocalPort{Port: 8888, Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol}] = proxy.HostPort{To: netip.MustParseAddrPort("10.9.1.3:8080")}
	if err := l.backend.Apply(rules); err != nil {
		t.Fatal(err)
	}
	if name, _, err := l.ask(l.members["client"], "10.9.1.1:8888"); err != nil || name != "a" {
		t.Errorf("host port: %s %v", name, err)
	}
}

func TestSurvivesTheLossOfItsTable(t *testing.T) {
	l := newLab(t, map[string]string{"client": "10.9.1.2", "a": "10.9.1.3"})
	l.serve("a", 8080)
	service := &proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80, Cluster: endpoints("10.9.1.3:8080")}
	l.apply(service)
	if intact, err := l.backend.Intact(); err != nil || !intact {
		t.Fatalf("intact = %v, %v right after Apply", intact, err)
	}
	if err := New(Config{Table: "coracle-test", NetNS: int(l.node)}).Remove(); err != nil {
		t.Fatal(err)
	}
	if intact, err := l.backend.Intact(); err != nil || intact {
		t.Fatalf("intact = %v, %v without a table", intact, err)
	}
	l.apply(service)
	if seen := l.answerers(l.members["client"], "10.96.0.20:80", 3); seen["a"] != 3 {
		t.Errorf("after the repair: %v", seen)
	}
	for range 2 {
		if err := l.backend.Remove(); err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkApplyOneChangeAmongManyServices(b *testing.B) {
	ns := netnstest.New(b)
	backend := New(Config{Table: "coracle-test", NetNS: int(ns)})
	var ports []*proxy.ServicePort
	for i := range 1000 {
		ports = append(ports, &proxy.ServicePort{
			ClusterIP: netip.AddrFrom4([4]byte{10, 96, byte(i / 250), byte(1 + i%250)}), Port: 80,
			Cluster: endpoints("10.9.1.3:8080", "10.9.1.4:8080"),
		})
	}
	if err := backend.Apply(rulesOf(ports...)); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		changed := *ports[0]
		changed.Cluster = endpoints(fmt.Sprintf("10.9.1.%d:8080", 1+i%200))
		ports[0] = &changed
		if err := backend.Apply(rulesOf(ports...)); err != nil {
			b.Fatal(err)
		}
	}
}

func TestForgetsStaleFlowsUntilDone(t *testing.T) {
	ns := netnstest.New(t)
	backend := New(Config{Table: "coracle-test", NetNS: int(ns)})
	refused := errors.New("refused")
	asked := 0
	backend.forget = func(proxy.Rules) error {
		asked++
		if asked == 1 {
			return refused
		}
		return nil
	}
	for i, want := range []struct {
		err   error
		asked int
	}{{refused, 1}, {nil, 2}, {nil, 2}} {
		if err := backend.Apply(proxy.Rules{}); !errors.Is(err, want.err) || asked != want.asked {
			t.Errorf("apply %d: error %v, flows forgotten %d times; want %v and %d", i, err, asked, want.err, want.asked)
		}
	}
}

// TestDeletedFlowsAreCounted checks that each look for stale flows is measured, and what
// it deletes.
func TestDeletedFlowsAreCounted(t *testing.T) {
	r := prometheus.NewRegistry()
	backend := New(Config{Table: "coracle-test", NetNS: int(netnstest.New(t)), Metrics: r})
	if err := backend.Apply(proxy.Rules{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}); err != nil {
		t.Fatal(err)
	}
	backend.Forgot(nft.IPv6, 3, time.Second)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"kubeproxy_conntrack_reconciler_sync_duration_seconds IPv4": 1, "kubeproxy_conntrack_reconciler_deleted_entries_total IPv4": 0,
		"kubeproxy_conntrack_reconciler_sync_duration_seconds IPv6": 1, "kubeproxy_conntrack_reconciler_deleted_entries_total IPv6": 3,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s is %v, want %v", name, value, want)
		}
	}
}

// TCP connections that one side has closed are known for an hour at least.
func TestHalfClosedConnectionsAreKept(t *testing.T) {
	ns := netnstest.New(t)
	closeWaitFile := filepath.Join(newKernelFiles().netfilter, "nf_conntrack_tcp_timeout_close_wait")
	apply := func() {
		t.Helper()
		backend := New(Config{Table: "coracle-test", NetNS: int(ns)})
		backend.track = func() {
			netnstest.Do(t, ns, func() error { Conntrack{TCPCloseWait: time.Hour}.Apply(klog.Background()); return nil })
		}
		if err := backend.Apply(proxy.Rules{}); err != nil {
			t.Fatal(err)
		}
	}
	is := func(want string) {
		t.Helper()
		netnstest.Do(t, ns, func() error {
			raw, err := os.ReadFile(closeWaitFile)
			if err == nil && strings.TrimSpace(string(raw)) != want {
				t.Errorf("half-closed connections are known for %s s, want %s", raw, want)
			}
			return err
		})
	}
	apply()
	is("3600")
	netnstest.Do(t, ns, func() error { return os.WriteFile(closeWaitFile, []byte("7200"), 0o644) })
	apply()
	is("7200")
}
