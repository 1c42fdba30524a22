package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/proxy"
)

func TestStaleDatagramFlows(t *testing.T) {
	name := proxy.PortName{NamespacedName: types.NamespacedName{Namespace: "kube-system", Name: "kube-dns"}, Protocol: v1.ProtocolUDP, Family: v1.IPv4Protocol}
	service := &proxy.ServicePort{
		ClusterIP: netip.MustParseAddr("10.96.0.10"), Port: 53, NodePort: 30053,
		Cluster: []netip.AddrPort{netip.MustParseAddrPort("10.9.1.3:53")},
	}
	a := datagramEndpoints(proxy.Rules{
		Services:     proxy.ServicePorts{}.With(name, service),
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
}

// A port of the node answers at any of its addresses.
func TestFlowsToAPortOfTheNode(t *testing.T) {
	name := proxy.PortName{Protocol: v1.ProtocolUDP, Family: v1.IPv4Protocol}
	a := datagramEndpoints(proxy.Rules{Services: proxy.ServicePorts{}.With(name, &proxy.ServicePort{
		ClusterIP: netip.MustParseAddr("10.96.0.10"), Port: 53, Cluster: []netip.AddrPort{netip.AddrPortFrom(netip.Addr{}, 40000)},
	})})
	for from, stale := range map[string]bool{"192.0.2.1:40000": false, "127.0.0.1:40000": false, "192.0.2.1:40001": true, "10.96.0.10:53": true} {
		if got := a.stale(netip.MustParseAddrPort("10.96.0.10:53"), netip.MustParseAddrPort(from)); got != stale {
			t.Errorf("a flow answered by %s: stale %v, want %v", from, got, stale)
		}
	}
}

func TestForgetsStaleFlowsUntilDone(t *testing.T) {
	table := New(Config{NetNS: -1}) // in no namespace: nothing is asked of the kernel
	refused := errors.New("refused")
	asked := 0
	table.forget = func(proxy.Rules) error {
		asked++
		if asked == 1 {
			return refused
		}
		return nil
	}
	for i, want := range []struct {
		datagrams bool
		err       error
		asked     int
	}{{false, nil, 0}, {true, refused, 1}, {false, nil, 2}, {false, nil, 2}, {true, nil, 3}} {
		if err := table.Follow(proxy.Rules{}, want.datagrams); !errors.Is(err, want.err) || asked != want.asked {
			t.Errorf("call %d: error %v, flows forgotten %d times; want %v and %d", i, err, asked, want.err, want.asked)
		}
	}
}

// TestDeletedFlowsAreCounted checks that each look for stale flows is measured, and what
// it deletes.
func TestDeletedFlowsAreCounted(t *testing.T) {
	r := prometheus.NewRegistry()
	table := New(Config{NetNS: int(netnstest.New(t)), Metrics: r})
	if err := table.Follow(proxy.Rules{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}, true); err != nil {
		t.Fatal(err)
	}
	table.tell(nft.IPv6, 3, time.Second)
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

// TestDatagramsAreFollowed checks that a change is found without a look at the ports of
// other protocols, of which there may be any number.
func TestDatagramsAreFollowed(t *testing.T) {
	table, rules, visited := New(Config{NetNS: -1}), proxy.Rules{}, 0
	name := proxy.PortName{Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol}
	for i := range 1000 {
		name.Name = fmt.Sprint("s", i)
		rules.Services = rules.Services.With(name, &proxy.ServicePort{})
	}
	name.Protocol = v1.ProtocolUDP
	if got := table.withDatagrams(rules).Services.Len(); got != 0 {
		t.Errorf("%d UDP ports among those of TCP", got)
	}
	rules.Services = rules.Services.Counted(&visited)
	for step, next := range []proxy.ServicePorts{rules.Services.With(name, &proxy.ServicePort{Port: 53}), rules.Services.With(name, &proxy.ServicePort{Port: 54}), rules.Services} {
		rules.Services = next
		if got, want := table.withDatagrams(rules).Services.Get(name), next.Get(name); got != want {
			t.Errorf("step %d: the port is %v, want %v", step, got, want)
		}
	}
	if visited > 60 {
		t.Errorf("%d of 1,000 ports are looked at", visited)
	}
}
