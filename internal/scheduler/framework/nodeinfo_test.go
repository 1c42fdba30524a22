package framework

import (
	"maps"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/costtest"
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

// Pods with tens of thousands of host ports do not keep the scheduler busy.
func TestManyHostPorts(t *testing.T) {
	with := func(uid string, from, to int32) *PodInfo {
		var ports []v1.ContainerPort
		for port := from; port < to; port++ {
			for _, protocol := range []v1.Protocol{v1.ProtocolTCP, v1.ProtocolUDP} {
				ports = append(ports, v1.ContainerPort{HostPort: port, ContainerPort: port, Protocol: protocol})
			}
		}
		return NewPodInfo(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: v1.PodSpec{Containers: []v1.Container{{Ports: ports}}}})
	}
	n, other := NewNodeInfo("n"), with("other", 30_000, 60_000)
	n.AddPod(with("first", 1, 30_000))
	taken := func() (count int) {
		for _, port := range other.Ports {
			if n.PortTaken(port) {
				count++
			}
		}
		return count
	}
	var count int
	cost := costtest.Of(t, func() { count = taken() })
	if count != 0 {
		t.Errorf("%d of the other pod's ports are taken", count)
	}
	if cost.Processor > 5*time.Second {
		t.Errorf("a pod takes %v of processor time", cost.Processor)
	}
	n.AddPod(with("second", 59_999, 60_001))
	if count := taken(); count != 2 {
		t.Errorf("%d of the other pod's ports are taken, want 2", count)
	}
	n.RemovePod("second")
	if count := taken(); count != 0 {
		t.Errorf("%d of the other pod's ports are taken by a pod that is gone", count)
	}
}
