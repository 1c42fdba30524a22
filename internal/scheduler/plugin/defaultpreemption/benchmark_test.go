package defaultpreemption

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// BenchmarkPreempt looks for victims in clusters whose nodes are full.
func BenchmarkPreempt(b *testing.B) {
	for _, size := range []int{1000, 5000, 10_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) { benchmarkPreempt(b, size, 0) })
		b.Run(fmt.Sprint(size, "/nominated"), func(b *testing.B) { benchmarkPreempt(b, size, size*9/10) })
	}
}

// benchmarkPreempt chooses victims on full nodes. Other pods are nominated for the
// first ones.
func benchmarkPreempt(b *testing.B, size, nominated int) {
	requesting := func(name, cpu, node string, priority int32) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "a"}},
			Spec: v1.PodSpec{NodeName: node, Priority: &priority, Containers: []v1.Container{{Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)},
			}}}},
		}
	}
	c := &cluster{incoming: requesting("incoming", "32", "", 10)}
	for i := range size {
		name := fmt.Sprint("n", i)
		c.nodes = append(c.nodes, &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("32"), v1.ResourcePods: resource.MustParse("110")}},
		})
		for j := range 2 {
			c.pods = append(c.pods, requesting(fmt.Sprint(name, "-", j), "16", name, 0))
		}
		if i < nominated {
			p := requesting(name+"-nominated", "32", "", 10)
			p.Status.NominatedNodeName = name
			c.nominated = append(c.nominated, p)
		}
	}
	w := newWorld(b, c)
	snapshot, pod := w.snapshot(nil), framework.NewPodInfo(c.incoming)
	statuses := make([]*framework.Status, size)
	b.ReportAllocs()
	for b.Loop() {
		state := w.profile.NewCycleState()
		if _, s := w.profile.RunPreFilterPlugins(b.Context(), state, pod, snapshot); !s.IsSuccess() {
			b.Fatal(s.Message())
		}
		for i, n := range snapshot.Nodes() {
			statuses[i] = w.profile.RunFilterPluginsWithNominatedPods(b.Context(), state, pod, n)
		}
		unfit := &framework.FitError{NumAllNodes: size, Nodes: framework.NodesToStatuses(nil, snapshot.Nodes(), statuses)}
		unfit.AddPlugins()
		best, why, err := (&trials{plugin: w.plugin, ctx: b.Context(), state: state, pod: pod, snapshot: snapshot}).best(unfit.Nodes)
		if err != nil || best == nil || unfit.Error() == "" {
			b.Fatal(why, err)
		}
	}
}
