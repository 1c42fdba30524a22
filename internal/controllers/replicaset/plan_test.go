package replicaset

import (
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pods whose deletion was requested do not count, although the cache still shows them. A set that
// waits for the cache has not observed its generation. A pod whose deletion failed exists, but does
// not count as available, because the deletion may have happened all the same.
func TestStatusWhileCacheIsStale(t *testing.T) {
	set := &apps.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Generation: 7}, Status: apps.ReplicaSetStatus{ObservedGeneration: 5}}
	var active []*v1.Pod
	for _, uid := range []types.UID{"a", "b", "c"} {
		active = append(active, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: uid},
			Status:     v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}},
		})
	}
	seen := observation{active: active, terminating: new(int)}
	seen.forget(active[:2], active[1:2])
	for _, c := range []struct {
		acted      bool
		generation int64
	}{{false, 5}, {true, 7}} {
		seen.acted = c.acted
		s, _ := status(set, seen, time.Now())
		if s.Replicas != 2 || s.ReadyReplicas != 1 || s.AvailableReplicas != 1 || *s.TerminatingReplicas != 1 || s.ObservedGeneration != c.generation {
			t.Errorf("acted %v: %v", c.acted, s)
		}
	}
	if len(active) != 3 || active[0].UID != "a" {
		t.Errorf("the pods have changed: %v", active)
	}
}
