package iptables

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are under the names that kube-proxy has in the mode iptables.
type metrics struct {
	// total are all rules, last those of the last sync, by table and family.
	total, last *prometheus.GaugeVec
	// failures are all runs of iptables-restore that failed, partial those of them that
	// had only what differs, by family.
	failures, partial *prometheus.CounterVec
}

// newMetrics returns metrics that are registered; without a registry, nobody reads them.
func newMetrics(r prometheus.Registerer, list []family) *metrics {
	const byTable, byFamily = "table", "ip_family"
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubeproxy_sync_proxy_rules_iptables_" + name, Help: "[ALPHA] " + help}, []string{byTable, byFamily})
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubeproxy_sync_proxy_rules_iptables_" + name, Help: "[ALPHA] " + help}, []string{byFamily})
	}
	m := &metrics{
		total:    gauge("total", "Total number of iptables rules owned by kube-proxy"),
		last:     gauge("last", "Number of iptables rules written by kube-proxy in last sync"),
		failures: counter("restore_failures_total", "Cumulative proxy iptables restore failures"),
		partial:  counter("partial_restore_failures_total", "Cumulative proxy iptables partial restore failures"),
	}
	for _, f := range list { // 0 until the first one
		m.failures.WithLabelValues(string(f.name))
		m.partial.WithLabelValues(string(f.name))
	}
	if r != nil {
		r.MustRegister(m.total, m.last, m.failures, m.partial)
	}
	return m
}

// failed records that iptables-restore failed. isPartial says that it had only what
// differs.
func (m *metrics) failed(f family, isPartial bool) {
	m.failures.WithLabelValues(string(f.name)).Inc()
	if isPartial {
		m.partial.WithLabelValues(string(f.name)).Inc()
	}
}

// applied records tables of a family, and the changes that led to them.
func (m *metrics) applied(f family, t *tables, all changes) {
	for _, table := range []string{filter, nat} {
		m.total.WithLabelValues(table, string(f.name)).Set(float64(t.size(table)))
		m.last.WithLabelValues(table, string(f.name)).Set(float64(all[table].chains.size()))
	}
}
