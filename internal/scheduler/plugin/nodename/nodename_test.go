package nodename

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
)

// Only its own node is looked at for a pod whose resize is deferred.
func TestDeferredResize(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{NodeName: "a"}}
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred}}
	result, status := Plugin{}.PreFilter(t.Context(), nil, framework.NewPodInfo(pod), nil)
	if !status.IsSuccess() || result == nil || len(result.NodeNames) != 1 || !result.NodeNames["a"] {
		t.Errorf("%v, %v", result, status)
	}
}

func TestNodeName(t *testing.T) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	for _, test := range []struct {
		name string
		code framework.Code
		hint framework.QueueingHint // when the node comes
	}{
		{"", framework.Skip, framework.QueueSkip},
		{"a", framework.Success, framework.Queue},
		{"b", framework.UnschedulableAndUnresolvable, framework.QueueSkip},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{NodeName: test.name}}
		s := plugintest.Filter(t, Plugin{}, &framework.Handle{}, pod, plugintest.Snapshot([]*v1.Node{node}), "a")
		if s.Code() != test.code {
			t.Errorf("a pod that names %q: %s, want %s", test.name, s.Code(), test.code)
		}
		if hint, _ := plugintest.Hint(t, Plugin{}, pod, framework.Node, framework.Add, nil, node); hint != test.hint {
			t.Errorf("a pod that names %q: hint %d, want %d", test.name, hint, test.hint)
		}
	}
}
