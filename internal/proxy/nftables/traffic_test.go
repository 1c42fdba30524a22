package nftables

import (
	"cmp"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/conntrack"
	"github.com/coracle-io/coracle/internal/proxy/proxytest"
)

// newBackend returns a backend for a lab.
func newBackend(c proxytest.Config) proxy.Backend {
	return New(Config{
		Table: "coracle-test", ClusterCIDRs: c.ClusterCIDRs, IPv6: c.IPv6, NetNS: c.NetNS,
		Conntrack: conntrack.Settings{TCPCloseWait: time.Hour},
	})
}

func TestPackets(t *testing.T) {
	proxytest.Suite{New: newBackend, GuardsServiceRanges: true}.Run(t)
}

func BenchmarkApplyOneChangeAmongManyServices(b *testing.B) {
	ns := netnstest.New(b)
	backend := New(Config{Table: "coracle-test", NetNS: int(ns)})
	var ports []*proxy.ServicePort
	for i := range 1000 {
		ports = append(ports, &proxy.ServicePort{
			ClusterIP: netip.AddrFrom4([4]byte{10, 96, byte(i / 250), byte(1 + i%250)}), Port: 80,
			Cluster: proxytest.Endpoints("10.9.1.3:8080", "10.9.1.4:8080"),
		})
	}
	if err := backend.Apply(proxytest.RulesOf(ports...)); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		changed := *ports[0]
		changed.Cluster = proxytest.Endpoints(fmt.Sprintf("10.9.1.%d:8080", 1+i%200))
		ports[0] = &changed
		if err := backend.Apply(proxytest.RulesOf(ports...)); err != nil {
			b.Fatal(err)
		}
	}
}

// TestFailedTransactionsAreCounted checks the metric of transactions that fail, which
// have the rules of all families.
func TestFailedTransactionsAreCounted(t *testing.T) {
	r := prometheus.NewRegistry()
	backend := New(Config{Table: "coracle-test", IPv6: true, NetNS: -1, Metrics: r}) // there is no such namespace
	counts := func() map[string]float64 {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]float64{}
		for _, f := range families {
			if f.GetName() != "kubeproxy_sync_proxy_rules_nftables_sync_failures_total" {
				continue
			}
			for _, m := range f.GetMetric() {
				found[m.GetLabel()[0].GetValue()] = cmp.Or(m.GetCounter().GetValue(), -1)
			}
		}
		return found
	}
	if got := counts(); len(got) != 2 || got["IPv4"] != -1 || got["IPv6"] != -1 {
		t.Errorf("before the first transaction: %v, where -1 is none", got)
	}
	if err := backend.Apply(proxy.Rules{}); err == nil {
		t.Fatal("rules were applied in no namespace")
	}
	if got := counts(); got["IPv4"] != 1 || got["IPv6"] != 1 {
		t.Errorf("after a failure: %v", got)
	}
}
