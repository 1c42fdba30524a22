package tainttoleration

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// The operators Lt and Gt count if their gate is on.
func TestComparisonOperators(t *testing.T) {
	node := framework.NewNodeInfo("a")
	node.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1.NodeSpec{Taints: []v1.Taint{
		{Key: "sla", Value: "95", Effect: v1.TaintEffectNoSchedule}, {Key: "age", Value: "3", Effect: v1.TaintEffectPreferNoSchedule},
	}}})
	for _, test := range []struct {
		name, gates string
		operator    v1.TolerationOperator
		value       string
		fits        bool
		score       int64 // taints that are not tolerated
	}{
		{"the gate is off", "TaintTolerationComparisonOperators=false", v1.TolerationOpGt, "90", false, 1},
		{"greater", "TaintTolerationComparisonOperators=true", v1.TolerationOpGt, "90", true, 1},
		{"not greater", "TaintTolerationComparisonOperators=true", v1.TolerationOpGt, "95", false, 1},
		{"less", "TaintTolerationComparisonOperators=true", v1.TolerationOpLt, "99", true, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			gates, err := feature.Parse([]string{test.gates})
			if err != nil {
				t.Fatal(err)
			}
			made, err := Factory().New(t.Context(), nil, &framework.Handle{Features: gates})
			if err != nil {
				t.Fatal(err)
			}
			p := made.(*plugin)
			pod := framework.NewPodInfo(&v1.Pod{Spec: v1.PodSpec{Tolerations: []v1.Toleration{
				{Key: "sla", Operator: test.operator, Value: test.value}, {Key: "age", Operator: test.operator, Value: "5"},
			}}})
			if status := p.Filter(t.Context(), nil, pod, node); status.IsSuccess() != test.fits {
				t.Errorf("%v, want fits %t", status.Message(), test.fits)
			}
			if obstacles := p.Explain(nil, pod, node); (len(obstacles) == 0) != test.fits {
				t.Errorf("explained by %v, want fits %t", obstacles, test.fits)
			}
			if score, _ := p.Score(t.Context(), nil, pod, node); score != test.score {
				t.Errorf("%d taints are not tolerated, want %d", score, test.score)
			}
		})
	}
}
