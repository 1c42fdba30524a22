package deferredpodscheduling

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
)

// deferred returns a pod on a node whose resize the kubelet has deferred.
func deferred(node string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}, Spec: v1.PodSpec{NodeName: node}}
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred}}
	return p
}

func node(name string, owners ...string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Spec.PodPreemptionPolicy = &v1.NodePodPreemptionPolicy{DisableResizePreemption: owners}
	return n
}

func TestGateIsNeeded(t *testing.T) {
	if _, err := Factory().New(t.Context(), nil, &framework.Handle{}); err == nil {
		t.Error("made without the gate")
	}
	p, _ := plugintest.New(t, Factory(), []string{"InPlacePodVerticalScalingSchedulerPreemption=true"})
	if p.Name() != Name {
		t.Error(p.Name())
	}
}

func TestFilter(t *testing.T) {
	running := deferred("a")
	running.Status.Conditions = nil
	without := node("a")
	without.Spec.PodPreemptionPolicy = nil
	for _, test := range []struct {
		name string
		pod  *v1.Pod
		node *v1.Node
		code framework.Code
		want string
	}{
		{"no resize", running, node("a", "example.com/owner"), framework.Skip, ""},
		{"a new pod", &v1.Pod{}, node("a", "example.com/owner"), framework.Skip, ""},
		{"no policy", deferred("a"), without, framework.Success, ""},
		{"nobody forbids it", deferred("a"), node("a"), framework.Success, ""},
		{"somebody forbids it", deferred("a"), node("a", "example.com/owner"), framework.UnschedulableAndUnresolvable, "node had resize preemption disabled"},
		{"another node", deferred("b"), node("a"), framework.UnschedulableAndUnresolvable, "pod assigned to different node"},
	} {
		s := plugintest.Filter(t, newPlugin(), &framework.Handle{}, test.pod, plugintest.Snapshot([]*v1.Node{test.node}), "a")
		if s.Code() != test.code || s.Message() != test.want {
			t.Errorf("%s: %v %q, want %v %q", test.name, s.Code(), s.Message(), test.code, test.want)
		}
	}
}

func TestPermit(t *testing.T) {
	for _, test := range []struct {
		name string
		pod  *v1.Pod
		code framework.Code
		want string
	}{
		{"a new pod", &v1.Pod{}, framework.Success, ""},
		{"a resize", deferred("a"), framework.UnschedulableAndUnresolvable, "pod resize fits, waiting for Kubelet actuation"},
	} {
		s, wait := newPlugin().Permit(t.Context(), nil, framework.NewPodInfo(test.pod), "a")
		if s.Code() != test.code || s.Message() != test.want || wait != 0 {
			t.Errorf("%s: %v %q, want %v %q", test.name, s.Code(), s.Message(), test.code, test.want)
		}
	}
}

func TestHints(t *testing.T) {
	on := func(node string) *v1.Pod { return &v1.Pod{Spec: v1.PodSpec{NodeName: node}} }
	for _, test := range []struct {
		name     string
		resource framework.EventResource
		action   framework.ActionType
		old, new any
		want     framework.QueueingHint
	}{
		{"its node comes", framework.Node, framework.Add, nil, node("a"), framework.Queue},
		{"its node comes and forbids it", framework.Node, framework.Add, nil, node("a", "example.com/owner"), framework.QueueSkip},
		{"another node comes", framework.Node, framework.Add, nil, node("b"), framework.QueueSkip},
		{"its node allows it", framework.Node, framework.UpdateNodePreemptionPolicy, node("a", "example.com/owner"), node("a"), framework.Queue},
		{"its node forbids it", framework.Node, framework.UpdateNodePreemptionPolicy, node("a"), node("a", "example.com/owner"), framework.QueueSkip},
		{"its node forbids it for another reason", framework.Node, framework.UpdateNodePreemptionPolicy, node("a", "example.com/owner"), node("a", "example.com/other"), framework.QueueSkip},
		{"another node allows it", framework.Node, framework.UpdateNodePreemptionPolicy, node("b", "example.com/owner"), node("b"), framework.QueueSkip},
		{"it wants more", framework.TargetPod, framework.UpdatePodScaleUp, deferred("a"), deferred("a"), framework.Queue},
		{"a pod beside it wants more", framework.AssignedPod, framework.UpdatePodScaleUp, on("a"), on("a"), framework.Queue},
		{"a pod elsewhere wants more", framework.AssignedPod, framework.UpdatePodScaleUp, on("b"), on("b"), framework.QueueSkip},
	} {
		if hint, ok := plugintest.Hint(t, newPlugin(), deferred("a"), test.resource, test.action, test.old, test.new); !ok || hint != test.want {
			t.Errorf("%s: %v, registered %t, want %v", test.name, hint, ok, test.want)
		}
	}
}
