package ipvs

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/costtest"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/nftables"
	"github.com/coracle-io/coracle/internal/proxy/proxytest"
)

// machine is a node with IPVS, as a Backend sees it.
type machine struct {
	t       *testing.T
	servers map[frontend]server
	real    map[frontend]map[netip.AddrPort]destination
	own     []netip.Addr
	virtual map[netip.Addr]bool
	alias   string
	link    bool
	set     map[string]string
	times   Timeouts
	// calls are the changes of virtual servers and the Applies of the table, in order.
	calls []string
	d     nftables.Delivery
	lost  bool  // the table of nftables is not intact
	fail  error // of the next change of a destination
}

func newMachine(t *testing.T) *machine {
	return &machine{
		t: t, servers: map[frontend]server{}, real: map[frontend]map[netip.AddrPort]destination{}, virtual: map[netip.Addr]bool{},
		own: addresses("127.0.0.1", "192.0.2.10"), set: map[string]string{},
	}
}

// backend returns a backend on the machine.
func (m *machine) backend(c Config) *Backend {
	b := New(c)
	b.table, b.host, b.connect = fakeTable{m}, fakeHost{m}, func() (kernel, error) { return fakeKernel{m}, nil }
	return b
}

// said returns the changes since the last call.
func (m *machine) said() []string {
	calls := m.calls
	m.calls = nil
	return calls
}

type fakeKernel struct{ *machine }

func (k fakeKernel) list() (map[frontend]server, error) { return maps.Clone(k.servers), nil }
func (k fakeKernel) close()                             {}
func (k fakeKernel) setTimeouts(t Timeouts) error       { k.times = t; return nil }
func (k fakeKernel) destinations(f frontend) (map[netip.AddrPort]destination, error) {
	return maps.Clone(k.real[f]), nil
}

func (k fakeKernel) put(f frontend, s server, exists bool) error {
	if _, there := k.servers[f]; there != exists {
		k.t.Errorf("%s is there: %v, and taken for: %v", f, there, exists)
	}
	if !exists {
		k.real[f] = map[netip.AddrPort]destination{}
	}
	k.servers[f] = s
	k.calls = append(k.calls, "put "+f.String())
	return nil
}

func (k fakeKernel) remove(f frontend) error {
	if _, there := k.servers[f]; !there {
		return unix.ESRCH
	}
	delete(k.servers, f)
	delete(k.real, f)
	k.calls = append(k.calls, "remove "+f.String())
	return nil
}

func (k fakeKernel) putDestination(f frontend, to netip.AddrPort, weight uint32, exists bool) error {
	if err := k.fail; err != nil {
		k.fail = nil
		return err
	}
	d, there := k.real[f][to]
	if there != exists {
		k.t.Errorf("%s of %s is there: %v, and taken for: %v", to, f, there, exists)
	}
	d.weight = weight
	k.real[f][to] = d
	return nil
}

func (k fakeKernel) removeDestination(f frontend, to netip.AddrPort) error {
	if _, there := k.real[f][to]; !there {
		return unix.ENOENT
	}
	delete(k.real[f], to)
	return nil
}

type fakeHost struct{ *machine }

func (h fakeHost) addresses() (own, virtual []netip.Addr, err error) {
	return slices.Clone(h.own), slices.SortedFunc(maps.Keys(h.virtual), netip.Addr.Compare), nil
}
func (h fakeHost) owner() (string, bool, error) { return h.alias, h.link, nil }
func (h fakeHost) claim(alias string) error     { h.alias, h.link = alias, true; return nil }
func (h fakeHost) discard() error               { h.alias, h.link = "", false; clear(h.virtual); return nil }
func (h fakeHost) set(name, value string) error { h.machine.set[name] = value; return nil }

func (h fakeHost) add(list []netip.Addr) error {
	for _, a := range list {
		h.virtual[a] = true
	}
	return nil
}

func (h fakeHost) remove(list []netip.Addr) error {
	for _, a := range list {
		delete(h.virtual, a)
	}
	return nil
}

type fakeTable struct{ *machine }

func (f fakeTable) Deliver(d nftables.Delivery) { f.d = d }
func (f fakeTable) Remove() error               { return nil }
func (f fakeTable) Intact() (bool, error)       { return !f.lost, nil }
func (f fakeTable) Apply(proxy.Rules) error {
	f.lost = false
	f.calls = append(f.calls, "nftables")
	return nil
}

// text returns what the kernel has, with the weights of endpoints that are not 1.
func (m *machine) text() string {
	var lines []string
	for f, s := range m.servers {
		line := f.String() + " " + s.scheduler
		for _, to := range slices.SortedFunc(maps.Keys(m.real[f]), netip.AddrPort.Compare) {
			line += " " + to.String()
			if m.real[f][to].weight != 1 {
				line += "(leaving)"
			}
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func apply(t *testing.T, b *Backend, rules proxy.Rules) {
	t.Helper()
	if err := b.Apply(rules); err != nil {
		t.Fatal(err)
	}
}

func service(endpoints ...string) *proxy.ServicePort {
	return &proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80, Cluster: proxytest.Endpoints(endpoints...)}
}

var tcp = frontend{netip.MustParseAddrPort("10.96.0.20:80"), v1.ProtocolTCP}

// TestSyncs follows a Service from its beginning to its end.
func TestSyncs(t *testing.T) {
	m := newMachine(t)
	b := m.backend(Config{NFTables: nftables.Config{Table: "t"}, StrictARP: true, Timeouts: Timeouts{TCP: time.Minute}})
	check := func(when, want string, calls ...string) {
		t.Helper()
		if got := m.text(); got != want {
			t.Errorf("%s the kernel has\n%s\nwant\n%s", when, got, want)
		}
		if said := m.said(); !slices.Equal(said, calls) {
			t.Errorf("%s there were the changes %q, want %q", when, said, calls)
		}
	}
	one := service("10.9.1.3:8080", "10.9.1.4:8080")
	one.NodePort = 30080
	apply(t, b, proxytest.RulesOf(one))
	check("at first", "TCP 10.96.0.20:80 rr 10.9.1.3:8080 10.9.1.4:8080\nTCP 192.0.2.10:30080 rr 10.9.1.3:8080 10.9.1.4:8080",
		"put TCP 10.96.0.20:80", "put TCP 192.0.2.10:30080", "nftables")
	if !m.virtual[tcp.at.Addr()] || len(m.virtual) != 1 || m.alias != "coracle:t" || !slices.Equal(b.Owners(), []string{"t"}) {
		t.Errorf("the interface of %q (%q) has %v", m.alias, b.Owners(), m.virtual)
	}
	if m.set["ipv4/vs/conntrack"] != "1" || m.set["ipv4/conf/all/arp_ignore"] != "1" || m.times.TCP != time.Minute {
		t.Errorf("settings %v, timeouts %+v", m.set, m.times)
	}
	if !m.d.IPVS || !slices.Equal(m.d.NodeAddresses, m.own) {
		t.Errorf("the table leaves to IPVS: %+v", m.d)
	}

	apply(t, b, proxytest.RulesOf(one))
	check("without a change", "TCP 10.96.0.20:80 rr 10.9.1.3:8080 10.9.1.4:8080\nTCP 192.0.2.10:30080 rr 10.9.1.3:8080 10.9.1.4:8080", "nftables")

	m.own = append(m.own, netip.MustParseAddr("198.51.100.1"))
	if intact, err := b.Intact(); err != nil || intact {
		t.Errorf("with another address of the node: intact %v, %v", intact, err)
	}
	apply(t, b, proxytest.RulesOf(one))
	check("with another address of the node",
		"TCP 10.96.0.20:80 rr 10.9.1.3:8080 10.9.1.4:8080\nTCP 192.0.2.10:30080 rr 10.9.1.3:8080 10.9.1.4:8080\nTCP 198.51.100.1:30080 rr 10.9.1.3:8080 10.9.1.4:8080",
		"put TCP 198.51.100.1:30080", "nftables")

	none := service()
	apply(t, b, proxytest.RulesOf(none))
	check("without endpoints and node port", "TCP 10.96.0.20:80 rr", "nftables", "remove TCP 192.0.2.10:30080", "remove TCP 198.51.100.1:30080")

	sticky := service("10.9.1.3:8080")
	sticky.Affinity = time.Hour
	apply(t, b, proxytest.RulesOf(sticky))
	check("with affinity", "TCP 10.96.0.20:80 rr 10.9.1.3:8080", "put TCP 10.96.0.20:80", "nftables")
	if got := m.servers[tcp].persistence; got != 3600 {
		t.Errorf("a client stays for %d s", got)
	}

	apply(t, b, proxytest.RulesOf())
	check("without Services", "", "nftables", "remove TCP 10.96.0.20:80")
	if len(m.virtual) > 0 {
		t.Errorf("the interface still has %v", m.virtual)
	}
}

// TestEndpointsLeaveGracefully checks that an endpoint of TCP gets no new connections
// when it goes, and goes when its last connection has ended; one of UDP goes at once.
func TestEndpointsLeaveGracefully(t *testing.T) {
	m := newMachine(t)
	b := m.backend(Config{SyncPeriod: time.Hour})
	both, one := service("10.9.1.3:8080", "10.9.1.4:8080"), service("10.9.1.3:8080")
	four := netip.MustParseAddrPort("10.9.1.4:8080")
	expect := func(when, want string) {
		t.Helper()
		if got := m.text(); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	apply(t, b, proxytest.RulesOf(both))
	m.real[tcp][four] = destination{1, 2}
	apply(t, b, proxytest.RulesOf(one))
	expect("with connections", "TCP 10.96.0.20:80 rr 10.9.1.3:8080 10.9.1.4:8080(leaving)")
	intact := func() {
		t.Helper()
		if ok, err := b.Intact(); !ok || err != nil {
			t.Errorf("intact: %v, %v", ok, err)
		}
	}
	intact()
	expect("still with connections", "TCP 10.96.0.20:80 rr 10.9.1.3:8080 10.9.1.4:8080(leaving)")
	apply(t, b, proxytest.RulesOf(both))
	expect("when it is back", "TCP 10.96.0.20:80 rr 10.9.1.3:8080 10.9.1.4:8080")
	apply(t, b, proxytest.RulesOf(one))
	m.real[tcp][four] = destination{}
	intact()
	expect("after its connections", "TCP 10.96.0.20:80 rr 10.9.1.3:8080")
	if len(b.retiring) > 0 {
		t.Errorf("%v waits", b.retiring)
	}

	// Another proxy takes over an endpoint that is leaving.
	apply(t, b, proxytest.RulesOf(both))
	m.real[tcp][four] = destination{0, 1}
	again := m.backend(Config{SyncPeriod: time.Hour})
	apply(t, again, proxytest.RulesOf(one))
	expect("after a restart", "TCP 10.96.0.20:80 rr 10.9.1.3:8080 10.9.1.4:8080(leaving)")

	m = newMachine(t)
	b = m.backend(Config{})
	udp := func(p *proxy.ServicePort) proxy.Rules {
		rules := proxytest.RulesOf()
		rules.Services = rules.Services.With(proxy.PortName{Protocol: v1.ProtocolUDP, Family: v1.IPv4Protocol}, p)
		return rules
	}
	apply(t, b, udp(both))
	m.real[frontend{tcp.at, v1.ProtocolUDP}][four] = destination{1, 2}
	apply(t, b, udp(one))
	expect("of UDP", "UDP 10.96.0.20:80 rr 10.9.1.3:8080")
}

// TestTakesOverAndRepairs checks that the first Apply replaces what an earlier process or
// kube-proxy has left, but not what is excluded, and that changes of others are repaired.
func TestTakesOverAndRepairs(t *testing.T) {
	m := newMachine(t)
	stale, excluded := frontend{netip.MustParseAddrPort("10.96.0.99:80"), v1.ProtocolTCP}, frontend{netip.MustParseAddrPort("10.200.0.1:80"), v1.ProtocolTCP}
	for _, f := range []frontend{stale, excluded, tcp} {
		m.servers[f], m.real[f] = server{scheduler: "wlc"}, map[netip.AddrPort]destination{netip.MustParseAddrPort("10.9.1.9:1"): {weight: 1}}
	}
	m.link, m.virtual[stale.at.Addr()] = true, true
	b := m.backend(Config{ExcludeCIDRs: []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16")}})
	within := service("10.9.1.3:8080")
	within.External = addresses("10.200.0.2")
	apply(t, b, proxytest.RulesOf(within))
	want := "TCP 10.200.0.1:80 wlc 10.9.1.9:1\nTCP 10.96.0.20:80 rr 10.9.1.3:8080"
	if got, more := m.text(), "TCP 10.200.0.1:80 wlc 10.9.1.9:1\nTCP 10.200.0.2:80 rr 10.9.1.3:8080\nTCP 10.96.0.20:80 rr 10.9.1.3:8080"; got != more {
		t.Errorf("with a Service in an excluded range:\n%s\nwant\n%s", got, more)
	}
	if intact, err := b.Intact(); err != nil || !intact {
		t.Errorf("with a Service in an excluded range: intact %v, %v", intact, err)
	}
	m.servers[excluded] = server{scheduler: "wrr"}
	if intact, err := b.Intact(); err != nil || !intact {
		t.Errorf("after a change of somebody else's virtual server: intact %v, %v", intact, err)
	}
	m.servers[excluded] = server{scheduler: "wlc"}
	apply(t, b, proxytest.RulesOf(service("10.9.1.3:8080")))
	if got := m.text(); got != want {
		t.Errorf("after the takeover:\n%s\nwant\n%s", got, want)
	}
	if m.virtual[stale.at.Addr()] {
		t.Error("an address of no Service stays")
	}
	for name, change := range map[string]func(){
		"a server less":      func() { delete(m.servers, tcp); delete(m.real, tcp) },
		"a server more":      func() { m.servers[stale], m.real[stale] = server{scheduler: "rr"}, map[netip.AddrPort]destination{} },
		"another scheduler":  func() { m.servers[tcp] = server{scheduler: "lc"} },
		"an endpoint less":   func() { clear(m.real[tcp]) },
		"an endpoint more":   func() { m.real[tcp][netip.MustParseAddrPort("10.9.1.9:1")] = destination{weight: 1} },
		"another weight":     func() { m.real[tcp][netip.MustParseAddrPort("10.9.1.3:8080")] = destination{weight: 7} },
		"no address":         func() { clear(m.virtual) },
		"no interface":       func() { _ = fakeHost{m}.discard() },
		"an address more":    func() { m.virtual[netip.MustParseAddr("10.96.0.77")] = true },
		"no table":           func() { m.lost = true },
		"another node":       func() { m.own = addresses("127.0.0.1", "192.0.2.11") },
		"nothing of nothing": nil,
	} {
		if change != nil {
			change()
		}
		if intact, err := b.Intact(); err != nil || intact != (change == nil) {
			t.Errorf("%s: intact %v, %v", name, intact, err)
		}
		apply(t, b, proxytest.RulesOf(service("10.9.1.3:8080")))
		if got := m.text(); got != want || len(m.virtual) != 1 || !m.link {
			t.Errorf("%s: after the repair:\n%s\nwith %v", name, got, m.virtual)
		}
	}

	broken := errors.New("broken")
	m.fail = broken
	if err := b.Apply(proxytest.RulesOf(service("10.9.1.3:8080", "10.9.1.4:8080"))); !errors.Is(err, broken) {
		t.Errorf("a change that fails: %v", err)
	}
	if intact, err := b.Intact(); !intact || err != nil {
		t.Errorf("of what is unknown: intact %v, %v", intact, err)
	}
	apply(t, b, proxytest.RulesOf(service("10.9.1.4:8080")))
	if got := m.text(); !strings.HasSuffix(got, "TCP 10.96.0.20:80 rr 10.9.1.4:8080") {
		t.Errorf("after a failure:\n%s", got)
	}
}

// panicking is a table that is broken.
type panicking struct{ fakeTable }

func (panicking) Apply(proxy.Rules) error { panic("broken") }

// TestPanics checks that after a panic, in the middle of an Apply, the next one asks the
// kernel what it has.
func TestPanics(t *testing.T) {
	m := newMachine(t)
	b := m.backend(Config{})
	b.table = panicking{fakeTable{m}}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_ = b.Apply(proxytest.RulesOf(service("10.9.1.3:8080")))
	}()
	if len(m.virtual) != 1 || len(m.servers) != 1 {
		t.Fatalf("the panic came before the addresses %v and the virtual servers %v", m.virtual, m.servers)
	}
	b.table = fakeTable{m}
	apply(t, b, proxytest.RulesOf())
	if len(m.virtual)+len(m.servers) > 0 {
		t.Errorf("without Services there are the addresses %v and the virtual servers %v", m.virtual, m.servers)
	}
}

// TestOwners checks that a proxy leaves what is another one's, and what Remove removes.
func TestOwners(t *testing.T) {
	m := newMachine(t)
	a, b := m.backend(Config{NFTables: nftables.Config{Table: "a"}}), m.backend(Config{NFTables: nftables.Config{Table: "b"}})
	apply(t, a, proxytest.RulesOf(service("10.9.1.3:8080")))
	if err := b.Apply(proxytest.RulesOf()); err == nil || !strings.Contains(err.Error(), `"a"`) || !strings.Contains(err.Error(), "coracle proxy --cleanup --nftables-table=a") {
		t.Errorf("beside another proxy: %v", err)
	}
	if err := errors.Join(b.Remove(), b.RemoveOwn()); err != nil || len(m.servers) != 1 || !m.link {
		t.Errorf("the other proxy has removed what is not its own: %v, %v", m.servers, err)
	}
	if err := a.RemoveOwn(); err != nil || len(m.servers) > 0 || m.link || len(a.Owners()) > 0 {
		t.Errorf("the proxy leaves %v, %v", m.servers, err)
	}
	m.link, m.servers[tcp], m.real[tcp] = true, server{scheduler: "rr"}, nil // kube-proxy's
	if err := a.RemoveOwn(); err != nil || !m.link {
		t.Errorf("RemoveOwn has removed kube-proxy's, %v", err)
	}
	if err := a.Remove(); err != nil || m.link || len(m.servers) > 0 {
		t.Errorf("Remove leaves kube-proxy's, %v", err)
	}
}

// TestCostOfAChange checks that a change of one Service looks at no others, and costs with
// 10,000 Services what it costs with 100.
func TestCostOfAChange(t *testing.T) {
	cost := func(services int) uint64 {
		m := newMachine(t)
		b := m.backend(Config{SyncPeriod: time.Hour})
		ports := []*proxy.ServicePort{service("10.9.1.3:8080")}
		for i := range services {
			p := *ports[0]
			p.ClusterIP = netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)})
			ports = append(ports, &p)
		}
		rules, name := proxytest.RulesOf(ports...), proxytest.RulesOf(ports[0])
		apply(t, b, rules)
		m.said() // so that no long list grows
		visited := 0
		rules.Services = rules.Services.Counted(&visited)
		for only := range name.Services.All() {
			rules.Services = rules.Services.With(only, service("10.9.1.4:8080"))
		}
		c := costtest.Of(t, func() { apply(t, b, rules) })
		if visited > 20 {
			t.Errorf("with %d Services, %d are looked at", services, visited)
		}
		if got := m.real[tcp]; len(got) != 1 || got[netip.MustParseAddrPort("10.9.1.4:8080")].weight != 1 {
			t.Errorf("the Service has the endpoints %v", got)
		}
		return c.Bytes
	}
	few, many := cost(100), cost(10_000)
	if many > 4*few {
		t.Errorf("a change allocates %d bytes with 100 Services and %d with 10,000", few, many)
	}
}
