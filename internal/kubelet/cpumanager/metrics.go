package cpumanager

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/cpuset"

	"github.com/coracle-io/coracle/internal/kubelet/topology"
	"github.com/coracle-io/coracle/internal/kubelet/topologymanager"
)

// metrics are upstream's metrics of allocations.
type metrics struct {
	pinnings, failures prometheus.Counter
	cores, caches      topologymanager.Alignment // of containers
}

func newMetrics() metrics {
	return metrics{
		pinnings: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_cpu_manager_pinning_requests_total", Help: "The number of cpu core allocations which required pinning."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_cpu_manager_pinning_errors_total", Help: "The number of cpu core allocations which required pinning failed."}),
		cores: topologymanager.NewAlignment("container", "physical_cpu"), caches: topologymanager.NewAlignment("container", "uncore_cache"),
	}
}

// register shows the metrics that the policy has, and how the CPUs are divided.
func (m *Manager) register(r prometheus.Registerer) {
	gauge := func(name, help string, labels prometheus.Labels, value func() int) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kubelet_cpu_manager_" + name, Help: "[ALPHA] " + help, ConstLabels: labels},
			func() float64 { return float64(value()) }))
	}
	r.MustRegister(m.metrics.pinnings, m.metrics.failures)
	gauge("shared_pool_size_millicores", "The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.", nil, func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return 1000 * m.shared.Difference(m.reserved).Size()
	})
	gauge("exclusive_cpu_allocation_count", "The total number of CPUs exclusively allocated to containers running on this node", nil, func() int {
		return m.exclusive().Size()
	})
	if m.policy != Static {
		return
	}
	r.MustRegister(m.metrics.cores.Done, m.metrics.cores.Failed, m.metrics.caches.Done)
	for _, id := range m.config.Machine.NodeIDs() {
		gauge("allocation_per_numa", "Number of CPUs allocated per NUMA node", prometheus.Labels{"numa_node": strconv.Itoa(id)}, func() int {
			return m.exclusive().Intersection(m.config.Machine.Where(func(c topology.CPU) bool { return c.Node == id })).Size()
		})
	}
}

// exclusive returns the CPUs that containers have for themselves.
func (m *Manager) exclusive() cpuset.CPUSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := cpuset.New()
	for _, containers := range m.assigned {
		for _, set := range containers {
			all = all.Union(set)
		}
	}
	return all
}
