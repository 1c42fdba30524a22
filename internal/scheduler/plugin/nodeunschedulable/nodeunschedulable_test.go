package nodeunschedulable

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
)

func nodeOf(cordoned bool) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1.NodeSpec{Unschedulable: cordoned}}
}

func TestNodeUnschedulable(t *testing.T) {
	for _, test := range []struct {
		name        string
		cordoned    bool
		tolerations []v1.Toleration
		want        framework.Code
	}{
		{"a node as usual", false, nil, framework.Success},
		{"a cordoned node", true, nil, framework.UnschedulableAndUnresolvable},
		{"the taint is tolerated", true, []v1.Toleration{{Key: v1.TaintNodeUnschedulable, Operator: v1.TolerationOpExists}}, framework.Skip},
		{"every taint is tolerated", true, []v1.Toleration{{Operator: v1.TolerationOpExists}}, framework.Skip},
		{"another effect is tolerated", true, []v1.Toleration{{Key: v1.TaintNodeUnschedulable, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}}, framework.UnschedulableAndUnresolvable},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, h := plugintest.New(t, Factory(), nil)
			s := plugintest.Filter(t, p, h, &v1.Pod{Spec: v1.PodSpec{Tolerations: test.tolerations}}, plugintest.Snapshot([]*v1.Node{nodeOf(test.cordoned)}), "a")
			if s.Code() != test.want {
				t.Errorf("%s, want %s", s.Code(), test.want)
			}
		})
	}
}

func TestHints(t *testing.T) {
	p, _ := plugintest.New(t, Factory(), nil)
	for _, test := range []struct {
		name     string
		action   framework.ActionType
		old, new any
		want     framework.QueueingHint
	}{
		{"a node comes", framework.Add, nil, nodeOf(false), framework.Queue},
		{"a cordoned node comes", framework.Add, nil, nodeOf(true), framework.QueueSkip},
		{"a node is uncordoned", framework.UpdateNodeTaint, nodeOf(true), nodeOf(false), framework.Queue},
		{"a node is cordoned", framework.UpdateNodeTaint, nodeOf(false), nodeOf(true), framework.QueueSkip},
		{"another taint", framework.UpdateNodeTaint, nodeOf(false), nodeOf(false), framework.QueueSkip},
	} {
		if got, _ := plugintest.Hint(t, p, &v1.Pod{}, framework.Node, test.action, test.old, test.new); got != test.want {
			t.Errorf("%s: hint %d, want %d", test.name, got, test.want)
		}
	}
}
