package dynamicresources

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/extendedresource"
)

// EventsToRegister implements framework.EnqueueExtensions.
func (p *plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	on := func(resource framework.EventResource, action framework.ActionType) framework.ClusterEventWithHint {
		return framework.ClusterEventWithHint{Event: framework.ClusterEvent{Resource: resource, Action: action}}
	}
	events := []framework.ClusterEventWithHint{
		framework.On(framework.ResourceClaim, framework.Add|framework.Update|framework.Delete, p.afterClaim),
		framework.On(framework.DeviceClass, framework.Add|framework.Update, p.afterClass),
		framework.On(framework.TargetPod, framework.UpdatePodGeneratedResourceClaim, func(pod *framework.PodInfo, _, current *v1.Pod) framework.QueueingHint {
			return framework.QueueIf(current == nil || p.PreEnqueue(context.Background(), framework.NewPodInfo(current)).IsSuccess())
		}),
		// A pod that was assumed and is not bound gives back its devices.
		framework.On(framework.AssignedPod, framework.Delete, func(_ *framework.PodInfo, gone, _ *v1.Pod) framework.QueueingHint {
			return framework.QueueIf(gone == nil || len(gone.Spec.ResourceClaims) > 0 || len(p.extendedResources(framework.NewPodInfo(gone))) > 0)
		}),
		on(framework.ResourceSlice, framework.Add|framework.Update|framework.Delete),
		on(framework.Node, framework.Add|framework.UpdateNodeLabel|framework.UpdateNodeAllocatable),
	}
	if p.taintRules != nil {
		events = append(events, on(framework.DeviceTaintRule, framework.Update|framework.Delete))
	}
	return events, nil
}

// afterClaim returns Queue if the claim gives back its devices, or if the pod
// uses the claim and its status has changed.
func (p *plugin) afterClaim(pod *framework.PodInfo, old, claim *resourceapi.ResourceClaim) framework.QueueingHint {
	if old != nil && old.Status.Allocation != nil && (claim == nil || claim.Status.Allocation == nil) {
		return framework.Queue
	}
	if claim == nil || old != nil && equality.Semantic.DeepEqual(&old.Status, &claim.Status) {
		return framework.QueueSkip
	}
	used, err := p.claimsOf(pod.Pod)
	if err != nil {
		return framework.QueueSkip // another claim is missing
	}
	return framework.QueueIf(slices.ContainsFunc(used, func(u *resourceapi.ResourceClaim) bool { return u.UID == claim.UID }))
}

// afterClass returns Queue if the class is deleted, or if one of the claims or
// extended resources of the pod refers to it.
func (p *plugin) afterClass(pod *framework.PodInfo, _, class *resourceapi.DeviceClass) framework.QueueingHint {
	if class == nil || extendedresource.Requested(pod, class) {
		return framework.Queue
	}
	used, err := p.claimsOf(pod.Pod)
	if err != nil {
		return framework.QueueSkip
	}
	return framework.QueueIf(slices.ContainsFunc(used, func(claim *resourceapi.ResourceClaim) bool { return refersTo(claim, class.Name) }))
}

func refersTo(claim *resourceapi.ResourceClaim, class string) bool {
	return slices.ContainsFunc(claim.Spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool {
		return r.Exactly != nil && r.Exactly.DeviceClassName == class ||
			slices.ContainsFunc(r.FirstAvailable, func(sub resourceapi.DeviceSubRequest) bool { return sub.DeviceClassName == class })
	})
}
