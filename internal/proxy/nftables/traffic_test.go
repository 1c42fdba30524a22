package nftables

import (
	"cmp"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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

func BenchmarkApplyOneChangeAmongManyServices(b *testing.B) { proxytest.BenchmarkChange(b, newBackend) }

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
