package defaultpreemption

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// lowest is the lowest priority of the pods on nodes.
type lowest int32

func (lowest) RequestedOn(string) (none framework.Resources) { return none }
func (l lowest) HasBelow(priority int32) bool                { return int32(l) < priority }

// Nodes are not looked at if no pod on any node has a lower priority: the one that the
// snapshot still has is gone.
func TestNobodyIsBelow(t *testing.T) {
	requesting := func(name, node string, priority int32) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
		p.Spec.NodeName, p.Spec.Priority = node, &priority
		p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}}}
		return p
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	node.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourcePods: resource.MustParse("9")}
	for _, test := range []struct {
		bound framework.BoundPods
		why   string
	}{
		{nil, ""},
		{lowest(5), ""},
		{lowest(10), "0/1 nodes are available: 1 No preemption victims found for incoming pod."},
	} {
		w := newWorld(t, &cluster{nodes: []*v1.Node{node}, pods: []*v1.Pod{requesting("low", "n", 5)}, incoming: requesting("incoming", "", 10)})
		w.plugin.handle.Bound = test.bound
		snapshot, state, pod := w.snapshot(nil), w.profile.NewCycleState(), framework.NewPodInfo(w.incoming)
		if _, s := w.profile.RunPreFilterPlugins(t.Context(), state, pod, snapshot); !s.IsSuccess() {
			t.Fatal(s.Message())
		}
		nodes := framework.NewNodeToStatus(nil, 1)
		nodes.Set("n", w.profile.RunFilterPluginsWithNominatedPods(t.Context(), state, pod, snapshot.Node("n")))
		best, why, err := (&trials{plugin: w.plugin, ctx: t.Context(), state: state, pod: pod, snapshot: snapshot}).best(nodes)
		if err != nil || why != test.why || (best == nil) != (test.why != "") {
			t.Errorf("lowest priority %v: %v, %q, %v; want %q", test.bound, best, why, err, test.why)
		}
	}
}
