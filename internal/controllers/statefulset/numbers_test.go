package statefulset

import (
	"fmt"
	"math"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func ordinals(replicas []replica) (out []int) {
	for _, s := range replicas {
		out = append(out, s.ordinal)
	}
	return out
}

// The cost of a step depends on the existing pods and those created next, not on
// spec.replicas, which may be larger than memory.
func TestLargestNumberOfReplicas(t *testing.T) {
	set := setOf(math.MaxInt32, apps.ParallelPodManagement, 0)
	set.Spec.Ordinals = &apps.StatefulSetOrdinals{Start: 2}
	out := plan(snapshot{set: set, pods: podsOf(set, "1new 3new 5new"), currentRevision: "new", updateRevision: "new", now: time.Now()})
	if got := ordinals(out.create); len(got) != burst || fmt.Sprint(got[:4]) != "[2 4 6 7]" {
		t.Errorf("creates %d pods, from %v; want %d, from [2 4 6 7]", len(got), got[:min(4, len(got))], burst)
	}
	if len(out.delete) != 1 || out.delete[0].Name != "db-1" {
		t.Errorf("deletes %v, want db-1", out.delete)
	}
	set.Spec.PodManagementPolicy = apps.OrderedReadyPodManagement
	out = plan(snapshot{set: set, pods: podsOf(set, "2new 3new"), currentRevision: "new", updateRevision: "new", now: time.Now()})
	if got := ordinals(out.create); fmt.Sprint(got) != "[4]" {
		t.Errorf("in order, creates %v; want [4]", got)
	}
}

// Existing pods with ordinals beyond the next burst are not deleted.
func TestPodsBeyondTheBurstAreKept(t *testing.T) {
	set := setOf(math.MaxInt32, apps.ParallelPodManagement, 0)
	pods := podsOf(set, "0new")
	last := newPod(set, &set.Spec.Template, "new", math.MaxInt32-1)
	last.Status = pods[0].Status
	out := plan(snapshot{set: set, pods: []*v1.Pod{last, pods[0]}, currentRevision: "new", updateRevision: "new", now: time.Now()})
	if got := ordinals(out.create); len(got) != burst || got[0] != 1 || len(out.delete) != 0 {
		t.Errorf("creates %d pods from %v and deletes %v; want %d from 1 and none", len(got), got[:1], out.delete, burst)
	}
}

// All missing pods count as unavailable, not only those that are created next.
func TestMissingPodsCountAsUnavailable(t *testing.T) {
	set := setOf(10_000, apps.ParallelPodManagement, 0)
	unavailable := intstr.FromInt32(5000)
	set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = &unavailable
	out := plan(snapshot{set: set, pods: podsOf(set, "0old 1old"), currentRevision: "old", updateRevision: "new", now: time.Now()})
	if len(out.delete) != 0 {
		t.Errorf("deletes %d available pods while 9,998 of 10,000 are missing", len(out.delete))
	}
}

func TestLastOrdinal(t *testing.T) {
	set := setOf(math.MaxInt32, apps.ParallelPodManagement, 0)
	set.Spec.Ordinals = &apps.StatefulSetOrdinals{Start: math.MaxInt32}
	const last = 2*math.MaxInt32 - 1
	if got, ok := ordinalOf(set, newPod(set, &set.Spec.Template, "new", last)); !ok || got != last {
		t.Errorf("the last pod's ordinal is %d, %t; want %d", got, ok, last)
	}
}
