package defaultpreemption

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// The search ends with as many candidates as the arguments say. The next one goes on
// where it ended.
func TestTheSearchGoesOnWhereItEnded(t *testing.T) {
	requesting := func(name, node string, priority int32) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
		p.Spec.NodeName, p.Spec.Priority = node, &priority
		p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}}}
		return p
	}
	for _, test := range []struct {
		name      string
		important []int  // nodes whose pod may not be a victim
		want      string // the nodes that three searches choose, each with the node where the next one begins
	}{
		{"all nodes are candidates", nil, "n0/2 n2/4 n4/1"},
		{"some nodes are no candidates", []int{1, 4}, "n0/3 n3/1 n2/4"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &cluster{incoming: requesting("incoming", "", 10)}
			for i := range 5 {
				n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
				n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourcePods: resource.MustParse("9")}
				priority := int32(5)
				if slices.Contains(test.important, i) {
					priority = 20
				}
				c.nodes, c.pods = append(c.nodes, n), append(c.pods, requesting(fmt.Sprint("p", i), n.Name, priority))
			}
			w := newWorld(t, c)
			w.plugin.arguments = &kubescheduler.DefaultPreemptionArgs{MinCandidateNodesPercentage: new(int32(40)), MinCandidateNodesAbsolute: new(int32(1))}
			snapshot, pod := w.snapshot(nil), framework.NewPodInfo(c.incoming)
			var got []string
			for range 3 {
				state := w.profile.NewCycleState()
				if _, s := w.profile.RunPreFilterPlugins(t.Context(), state, pod, snapshot); !s.IsSuccess() {
					t.Fatal(s.Message())
				}
				nodes := framework.NewNodeToStatus(nil, len(c.nodes))
				for _, n := range snapshot.Nodes() {
					nodes.Set(n.Name, w.profile.RunFilterPluginsWithNominatedPods(t.Context(), state, pod, n))
				}
				best, why, err := (&trials{plugin: w.plugin, ctx: t.Context(), state: state, pod: pod, snapshot: snapshot}).best(nodes)
				if err != nil || best == nil {
					t.Fatal(why, err)
				}
				got = append(got, fmt.Sprint(best.node, "/", w.plugin.start))
			}
			if got := strings.Join(got, " "); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}
