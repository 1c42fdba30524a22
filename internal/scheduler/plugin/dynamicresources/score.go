package dynamicresources

import (
	"context"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// PreScore implements framework.PreScorePlugin: only alternatives are ranked.
func (p *plugin) PreScore(_ context.Context, cycle *framework.CycleState, _ *framework.PodInfo, _ *framework.Snapshot, _ []*framework.NodeInfo) *framework.Status {
	s, ok := p.states.Get(cycle)
	if !ok || !slices.ContainsFunc(s.claims, func(claim *podClaim) bool {
		return claim.Status.Allocation == nil && slices.ContainsFunc(claim.Spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool { return len(r.FirstAvailable) > 0 })
	}) {
		return p.skip
	}
	return nil
}

// Score implements framework.ScorePlugin: the earlier the alternatives are that
// the devices of a node satisfy, the better the node (KEP-4816).
func (p *plugin) Score(_ context.Context, cycle *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) (int64, *framework.Status) {
	s, ok := p.states.Get(cycle)
	if !ok || s.nodes[n.Name] == nil {
		return 0, nil
	}
	var sum int64
	for _, claim := range s.nodes[n.Name].claims {
		chosen := map[string]bool{}
		for i := range claim.Status.Allocation.Devices.Results {
			chosen[claim.Status.Allocation.Devices.Results[i].Request] = true
		}
		for _, request := range claim.Spec.Devices.Requests {
			for i, sub := range request.FirstAvailable {
				if chosen[resourceclaim.CreateSubRequestRef(request.Name, sub.Name)] {
					sum += int64(resourceapi.FirstAvailableDeviceRequestMaxSize - i)
				}
			}
		}
	}
	return sum, nil
}

// NormalizeScore implements framework.ScoreNormalizer.
func (*plugin) NormalizeScore(_ context.Context, _ *framework.CycleState, _ *framework.PodInfo, scores []int64) *framework.Status {
	framework.DefaultNormalizeScore(scores, false)
	return nil
}
