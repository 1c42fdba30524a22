package statefulset

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apps "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
)

// Missing pods and those that are not available yet are unavailable. The
// controller does not update sets with the strategy OnDelete.
func TestAvailability(t *testing.T) {
	sets := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	add := func(name string, policy apps.PodManagementPolicyType, change func(set *apps.StatefulSet)) {
		set := setOf(4, policy, 0)
		set.Name = name
		change(set)
		if err := sets.Add(set); err != nil {
			t.Fatal(err)
		}
	}
	add("db", apps.ParallelPodManagement, func(set *apps.StatefulSet) {
		set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.FromString("50%"))
		set.Status.AvailableReplicas = 1
	})
	add("queue", apps.OrderedReadyPodManagement, func(set *apps.StatefulSet) { set.Status.AvailableReplicas = 5 })
	add("manual", apps.OrderedReadyPodManagement, func(set *apps.StatefulSet) {
		set.Spec.UpdateStrategy = apps.StatefulSetUpdateStrategy{Type: apps.OnDeleteStatefulSetStrategyType}
	})
	const want = `
# HELP statefulset_controller_statefulset_max_unavailable [BETA] Maximum number of unavailable pods allowed during StatefulSet rolling updates
# TYPE statefulset_controller_statefulset_max_unavailable gauge
statefulset_controller_statefulset_max_unavailable{pod_management_policy="OrderedReady",statefulset_name="queue",statefulset_namespace="default"} 1
statefulset_controller_statefulset_max_unavailable{pod_management_policy="Parallel",statefulset_name="db",statefulset_namespace="default"} 2
# HELP statefulset_controller_statefulset_unavailable_replicas [BETA] Current number of unavailable pods in StatefulSet
# TYPE statefulset_controller_statefulset_unavailable_replicas gauge
statefulset_controller_statefulset_unavailable_replicas{pod_management_policy="OrderedReady",statefulset_name="queue",statefulset_namespace="default"} 0
statefulset_controller_statefulset_unavailable_replicas{pod_management_policy="Parallel",statefulset_name="db",statefulset_namespace="default"} 3
`
	if err := testutil.CollectAndCompare(newAvailability(appslisters.NewStatefulSetLister(sets)), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
