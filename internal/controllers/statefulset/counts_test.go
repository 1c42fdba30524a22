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

// The metrics show sets as they are now, and none that updates on deletion.
func TestUnavailablePodsAreShown(t *testing.T) {
	sets := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	half := setOf(5, apps.ParallelPodManagement, 0)
	half.Name, half.Status.AvailableReplicas = "half", 4
	half.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.FromString("50%"))
	surplus := setOf(1, apps.OrderedReadyPodManagement, 0)
	surplus.Name, surplus.Status.AvailableReplicas = "surplus", 3
	manual := setOf(2, apps.OrderedReadyPodManagement, 0)
	manual.Name, manual.Spec.UpdateStrategy.Type = "manual", apps.OnDeleteStatefulSetStrategyType
	for _, set := range []*apps.StatefulSet{half, surplus, manual} {
		if err := sets.Add(set); err != nil {
			t.Fatal(err)
		}
	}
	const want = `
# HELP statefulset_controller_statefulset_max_unavailable [BETA] Maximum number of unavailable pods allowed during StatefulSet rolling updates
# TYPE statefulset_controller_statefulset_max_unavailable gauge
statefulset_controller_statefulset_max_unavailable{pod_management_policy="OrderedReady",statefulset_name="surplus",statefulset_namespace="default"} 1
statefulset_controller_statefulset_max_unavailable{pod_management_policy="Parallel",statefulset_name="half",statefulset_namespace="default"} 2
# HELP statefulset_controller_statefulset_unavailable_replicas [BETA] Current number of unavailable pods in StatefulSet
# TYPE statefulset_controller_statefulset_unavailable_replicas gauge
statefulset_controller_statefulset_unavailable_replicas{pod_management_policy="OrderedReady",statefulset_name="surplus",statefulset_namespace="default"} 0
statefulset_controller_statefulset_unavailable_replicas{pod_management_policy="Parallel",statefulset_name="half",statefulset_namespace="default"} 1
`
	if err := testutil.CollectAndCompare(newCounts(appslisters.NewStatefulSetLister(sets)), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
