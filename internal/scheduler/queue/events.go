package queue

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// PodEvents returns the events that an update of a pod is, none if nothing
// changed that a plugin could look at. resource is TargetPod for a waiting pod
// and AssignedPod for one on a node.
func PodEvents(resource framework.EventResource, old, pod *v1.Pod) []framework.ClusterEvent {
	var action framework.ActionType
	if !maps.Equal(old.Labels, pod.Labels) {
		action |= framework.UpdatePodLabel
	}
	if len(old.Spec.SchedulingGates) > 0 && len(pod.Spec.SchedulingGates) == 0 {
		action |= framework.UpdatePodSchedulingGatesEliminated
	}
	if len(old.Spec.Tolerations) != len(pod.Spec.Tolerations) { // the API only lets them grow
		action |= framework.UpdatePodToleration
	}
	if !equality.Semantic.DeepEqual(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses) {
		action |= framework.UpdatePodGeneratedResourceClaim
	}
	action |= scaled(old, pod)
	if (old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) || // beside whatever else a list shows at once
		action == 0 && (old.Generation != pod.Generation || !maps.Equal(old.Annotations, pod.Annotations)) {
		action |= framework.UpdateOther
	}
	if action == 0 {
		return nil
	}
	return []framework.ClusterEvent{{Resource: resource, Action: action}}
}

// scaled returns the actions of a pod that requests less of something than before, or
// more.
func scaled(old, pod *v1.Pod) (action framework.ActionType) {
	if framework.SameRequests(old, pod) {
		return 0
	}
	before, now := framework.NewPodInfo(old).Requests, framework.NewPodInfo(pod).Requests
	if isLess(&now, &before) {
		action |= framework.UpdatePodScaleDown
	}
	if isLess(&before, &now) {
		action |= framework.UpdatePodScaleUp
	}
	return action
}

// isLess reports whether a has less than b of any resource.
func isLess(a, b *framework.Resources) bool {
	less := a.CPU < b.CPU || a.Memory < b.Memory || a.EphemeralStorage < b.EphemeralStorage
	for name, amount := range b.Scalar {
		less = less || a.Scalar[name] < amount
	}
	return less
}

// NodeEvents returns the events that an update of a node is.
func NodeEvents(old, node *v1.Node) []framework.ClusterEvent {
	var action framework.ActionType
	if !equality.Semantic.DeepEqual(old.Status.Allocatable, node.Status.Allocatable) {
		action |= framework.UpdateNodeAllocatable
	}
	if !maps.Equal(old.Labels, node.Labels) {
		action |= framework.UpdateNodeLabel
	}
	if old.Spec.Unschedulable != node.Spec.Unschedulable || !equality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints) {
		action |= framework.UpdateNodeTaint
	}
	if conditionsChanged(old, node) {
		action |= framework.UpdateNodeCondition
	}
	if !maps.Equal(old.Annotations, node.Annotations) {
		action |= framework.UpdateNodeAnnotation
	}
	if !equality.Semantic.DeepEqual(old.Status.DeclaredFeatures, node.Status.DeclaredFeatures) {
		action |= framework.UpdateNodeDeclaredFeature
	}
	if !equality.Semantic.DeepEqual(old.Spec.PodPreemptionPolicy, node.Spec.PodPreemptionPolicy) {
		action |= framework.UpdateNodePreemptionPolicy
	}
	if action == 0 {
		return nil
	}
	return []framework.ClusterEvent{{Resource: framework.Node, Action: action, Label: "NodeUpdate"}}
}

func conditionsChanged(old, node *v1.Node) bool {
	statuses := func(n *v1.Node) map[v1.NodeConditionType]v1.ConditionStatus {
		m := make(map[v1.NodeConditionType]v1.ConditionStatus, len(n.Status.Conditions))
		for i := range n.Status.Conditions {
			m[n.Status.Conditions[i].Type] = n.Status.Conditions[i].Status
		}
		return m
	}
	return !maps.Equal(statuses(old), statuses(node))
}
