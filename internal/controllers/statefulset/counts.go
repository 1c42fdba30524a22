package statefulset

import (
	"github.com/prometheus/client_golang/prometheus"
	apps "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"
	appslisters "k8s.io/client-go/listers/apps/v1"
)

// counts shows the sets with rolling updates when it is asked, with upstream's names:
// how many of their pods may be unavailable, and how many are.
type counts struct {
	sets               appslisters.StatefulSetLister
	allowed, happening *prometheus.Desc
}

func newCounts(sets appslisters.StatefulSetLister) *counts {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("statefulset_controller_statefulset_"+name, "[BETA] "+help, []string{"statefulset_namespace", "statefulset_name", "pod_management_policy"}, nil)
	}
	return &counts{
		sets:      sets,
		allowed:   desc("max_unavailable", "Maximum number of unavailable pods allowed during StatefulSet rolling updates"),
		happening: desc("unavailable_replicas", "Current number of unavailable pods in StatefulSet"),
	}
}

// Describe implements prometheus.Collector.
func (c *counts) Describe(out chan<- *prometheus.Desc) {
	out <- c.allowed
	out <- c.happening
}

// Collect implements prometheus.Collector.
func (c *counts) Collect(out chan<- prometheus.Metric) {
	sets, _ := c.sets.List(labels.Everything()) // a cache gives no errors
	for _, set := range sets {
		if set.Spec.UpdateStrategy.Type == apps.OnDeleteStatefulSetStrategyType {
			continue
		}
		gauge := func(d *prometheus.Desc, n int) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), set.Namespace, set.Name, string(set.Spec.PodManagementPolicy))
		}
		gauge(c.allowed, maxUnavailable(set))
		gauge(c.happening, max(0, replicaCount(set)-int(set.Status.AvailableReplicas)))
	}
}
