package statefulset

import (
	"github.com/prometheus/client_golang/prometheus"
	apps "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"
	appslisters "k8s.io/client-go/listers/apps/v1"
)

// availability shows, of each StatefulSet that the controller updates, how many
// pods may be unavailable and how many are. It has upstream's names.
type availability struct {
	sets             appslisters.StatefulSetLister
	may, unavailable *prometheus.Desc
}

func newAvailability(sets appslisters.StatefulSetLister) *availability {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("statefulset_controller_"+name, "[BETA] "+help,
			[]string{"statefulset_namespace", "statefulset_name", "pod_management_policy"}, nil)
	}
	return &availability{
		sets:        sets,
		may:         desc("statefulset_max_unavailable", "Maximum number of unavailable pods allowed during StatefulSet rolling updates"),
		unavailable: desc("statefulset_unavailable_replicas", "Current number of unavailable pods in StatefulSet"),
	}
}

// Describe implements prometheus.Collector.
func (c *availability) Describe(out chan<- *prometheus.Desc) {
	out <- c.may
	out <- c.unavailable
}

// Collect implements prometheus.Collector.
func (c *availability) Collect(out chan<- prometheus.Metric) {
	sets, _ := c.sets.List(labels.Everything()) // a cache gives no errors
	for _, set := range sets {
		if set.Spec.UpdateStrategy.Type == apps.OnDeleteStatefulSetStrategyType {
			continue
		}
		show := func(d *prometheus.Desc, n int) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), set.Namespace, set.Name, string(set.Spec.PodManagementPolicy))
		}
		show(c.may, maxUnavailable(set))
		show(c.unavailable, max(0, replicaCount(set)-int(set.Status.AvailableReplicas)))
	}
}
