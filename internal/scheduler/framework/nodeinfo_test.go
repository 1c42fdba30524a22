package framework

import (
	"maps"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func asking(uid, amount string) *PodInfo {
	q := resource.MustParse(amount)
	list := v1.ResourceList{v1.ResourceCPU: q, v1.ResourceMemory: q, v1.ResourceEphemeralStorage: q, "example.com/device": q}
	return NewPodInfo(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: list}}}}})
}

// A node with pods that request the largest quantities is full, not empty; and
// it is as before when they have gone.
func TestRequestsWithoutEnd(t *testing.T) {
	n := NewNodeInfo("n")
	n.AddPod(asking("small", "2"))
	before := *n
	before.Requested.Scalar = maps.Clone(n.Requested.Scalar)
	full := Resources{CPU: math.MaxInt64, Memory: math.MaxInt64, EphemeralStorage: math.MaxInt64, Scalar: map[v1.ResourceName]int64{"example.com/device": math.MaxInt64}}
	for _, uid := range []string{"a", "b", "c"} {
		n.AddPod(asking(uid, "9223372036854775807"))
		full.Pods = int64(len(n.Pods))
		if diff := cmp.Diff(full, n.Requested); diff != "" || n.NonZeroRequested.CPU != math.MaxInt64 || n.NonZeroRequested.Memory != math.MaxInt64 {
			t.Errorf("with %s (-want +got):\n%s%+v", uid, diff, n.NonZeroRequested)
		}
	}
	for _, uid := range []types.UID{"b", "a", "c"} {
		n.RemovePod(uid)
	}
	if diff := cmp.Diff(before.Requested, n.Requested); diff != "" || n.NonZeroRequested.CPU != before.NonZeroRequested.CPU {
		t.Errorf("without them (-before +after):\n%s", diff)
	}
}
