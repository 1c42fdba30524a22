package nodestatus

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestReady(t *testing.T) {
	n := &v1.Node{}
	if got := Ready(n); got != v1.ConditionUnknown {
		t.Errorf("without conditions it is %s", got)
	}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue}, {Type: v1.NodeReady, Status: v1.ConditionFalse}}
	if got := Ready(n); got != v1.ConditionFalse {
		t.Errorf("it is %s, want False", got)
	}
	Condition(n, v1.NodeReady).Status = v1.ConditionTrue
	if got := Ready(n); got != v1.ConditionTrue {
		t.Errorf("Condition returns a copy: it is %s", got)
	}
	if c := Condition(n, v1.NodePIDPressure); c != nil {
		t.Errorf("there is %v", c)
	}
}

func TestIsOutOfService(t *testing.T) {
	n := &v1.Node{Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectNoExecute}}}}
	if IsOutOfService(n) {
		t.Error("a node that is not ready is out of service")
	}
	n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: v1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: v1.TaintEffectNoSchedule})
	if !IsOutOfService(n) {
		t.Error("a node with the taint is not out of service")
	}
}

func TestLacksNetwork(t *testing.T) {
	const message = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"
	n := &v1.Node{}
	if LacksNetwork(n) {
		t.Error("a node that has not reported lacks a network")
	}
	for _, c := range []struct {
		status  v1.ConditionStatus
		message string
		want    bool
	}{
		{v1.ConditionFalse, message, true}, {v1.ConditionTrue, message, false}, {v1.ConditionFalse, "[" + message + ", PLEG is not healthy]", false}, {v1.ConditionUnknown, "Kubelet stopped posting node status.", false},
	} {
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: c.status, Message: c.message}}
		if got := LacksNetwork(n); got != c.want {
			t.Errorf("%s, %s: %v, want %v", c.status, c.message, got, c.want)
		}
	}
}
