package nodelifecycle

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/nodestatus"
	"github.com/coracle-io/coracle/internal/wallclock"
)

// kubeletConditions returns the conditions that a kubelet reports. They become Unknown when
// the kubelet stops reporting.
func kubeletConditions() []v1.NodeConditionType {
	return []v1.NodeConditionType{v1.NodeReady, v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure}
}

// nodeHealth holds the last heartbeat of a node and when this controller observed it.
// Times in objects are only compared with each other, because the clocks of nodes are not
// trusted.
type nodeHealth struct {
	heartbeat     metav1.Time      // of the condition Ready
	renewTime     metav1.MicroTime // of the lease
	probeObserved time.Time
}

// observe records a heartbeat in the status of a node or the renewal of its lease. Either
// may be nil.
func (h *nodeHealth) observe(node *v1.Node, renewTime *metav1.MicroTime, now time.Time) {
	changed := h.probeObserved.IsZero()
	if node != nil {
		// The controller's own updates do not change the heartbeat.
		if c := nodestatus.Condition(node, v1.NodeReady); c != nil && !c.LastHeartbeatTime.Equal(&h.heartbeat) {
			h.heartbeat, changed = c.LastHeartbeatTime, true
		}
	}
	if renewTime != nil && !renewTime.Equal(&h.renewTime) {
		h.renewTime, changed = *renewTime, true
	}
	if changed {
		h.probeObserved = now
	}
}

// deadline returns when a node without further heartbeats becomes unhealthy. A node that
// never reported a status has the startup grace period if that is longer, since its creation or
// the last renewal of its lease.
func deadline(node *v1.Node, h nodeHealth, grace, startup time.Duration) time.Time {
	if nodestatus.Condition(node, v1.NodeReady) == nil {
		begin := node.CreationTimestamp.Time
		switch {
		case !h.renewTime.IsZero():
			begin = h.probeObserved
		case !h.probeObserved.IsZero(): // when the node was first observed
			begin = wallclock.Past(begin, h.probeObserved)
		}
		return begin.Add(max(startup, grace))
	}
	return h.probeObserved.Add(grace)
}

// unknownConditions returns the conditions of a node, with the kubelet's conditions
// set to Unknown.
func unknownConditions(node *v1.Node, now time.Time) []v1.NodeCondition {
	conditions := slices.Clone(node.Status.Conditions)
	for _, t := range kubeletConditions() {
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
