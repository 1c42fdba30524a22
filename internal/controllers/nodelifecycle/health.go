package nodelifecycle

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// watched are the conditions that a kubelet reports and that nobody knows
// any longer when it is silent.
var watched = []v1.NodeConditionType{v1.NodeReady, v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure}

// condition returns a node's condition of one type, or nil.
func condition(node *v1.Node, t v1.NodeConditionType) *v1.NodeCondition {
	i := slices.IndexFunc(node.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == t })
	if i < 0 {
		return nil
	}
	return &node.Status.Conditions[i]
}

// ready is the status of a node's condition Ready; Unknown if it has none.
func ready(node *v1.Node) v1.ConditionStatus {
	if c := condition(node, v1.NodeReady); c != nil {
		return c.Status
	}
	return v1.ConditionUnknown
}

// sign is a node's last sign of life: what it said and when this controller
// saw it. Clocks of nodes are not trusted.
type sign struct {
	heartbeat metav1.Time
	renewed   metav1.MicroTime
	seen      time.Time
}

// hear takes in what was read now. It reports whether that was a new sign.
func (s *sign) hear(node *v1.Node, renewed *metav1.MicroTime, now time.Time) bool {
	heard := s.seen.IsZero()
	if node != nil {
		if c := condition(node, v1.NodeReady); c != nil && !c.LastHeartbeatTime.Equal(&s.heartbeat) {
			// What this controller itself writes moves no heartbeat.
			s.heartbeat, heard = c.LastHeartbeatTime, true
		}
	}
	if renewed != nil && !renewed.Equal(&s.renewed) {
		s.renewed, heard = *renewed, true
	}
	if heard {
		s.seen = now
	}
	return heard
}

// deadline is when a node that gives no further sign is taken for lost.
// A node that never reported has the longer time that starting takes.
func deadline(node *v1.Node, s sign, grace, startup time.Duration) time.Time {
	if condition(node, v1.NodeReady) == nil {
		return node.CreationTimestamp.Add(max(startup, grace))
	}
	return s.seen.Add(grace)
}

// silence returns a lost node's conditions: all that its kubelet reports are
// Unknown.
func silence(node *v1.Node, now time.Time) []v1.NodeCondition {
	conditions := slices.Clone(node.Status.Conditions)
	for _, t := range watched {
		i := slices.IndexFunc(conditions, func(c v1.NodeCondition) bool { return c.Type == t })
		switch {
		case i < 0:
			conditions = append(conditions, v1.NodeCondition{
				Type: t, Status: v1.ConditionUnknown,
				Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.",
				LastHeartbeatTime: node.CreationTimestamp, LastTransitionTime: metav1.NewTime(now),
			})
		case conditions[i].Status != v1.ConditionUnknown:
			conditions[i].Status = v1.ConditionUnknown
			conditions[i].Reason = "NodeStatusUnknown"
			conditions[i].Message = "Kubelet stopped posting node status."
			conditions[i].LastTransitionTime = metav1.NewTime(now)
		}
	}
	return conditions
}
