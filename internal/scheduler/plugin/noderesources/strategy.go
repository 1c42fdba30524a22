package noderesources

import (
	"context"
	"math"

	v1 "k8s.io/api/core/v1"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/utilization"
)

// strategy is how nodes are ranked: the weighted mean over the resources that
// the node has.
type strategy struct {
	resources []kubescheduler.ResourceSpec
	// rate scores one resource whose capacity is not 0.
	rate func(used, capacity int64) int64
	// positive leaves resources with the score 0 out of the mean and rounds it.
	positive bool
	devices  *devices
}

// newStrategy returns the strategy that the arguments describe.
func newStrategy(ctx context.Context, s *kubescheduler.ScoringStrategy, h *framework.Handle) (strategy, error) {
	devices, err := newDevices(ctx, h, s.Resources)
	if err != nil {
		return strategy{}, err
	}
	out := strategy{resources: s.Resources, rate: least, devices: devices}
	switch s.Type {
	case kubescheduler.MostAllocated:
		out.rate = most
	case kubescheduler.RequestedToCapacityRatio:
		out.rate, out.positive = utilization.Line(s.RequestedToCapacityRatio.Shape), true
	}
	return out, nil
}

func (s *strategy) score(ctx context.Context, cycle *framework.CycleState, pod *framework.PodInfo, n *framework.NodeInfo) int64 {
	var sum, weights int64
	for i := range s.resources {
		used, capacity := s.usage(ctx, cycle, v1.ResourceName(s.resources[i].Name), pod, n)
		if capacity == 0 {
			continue
		}
		score := s.rate(used, capacity)
		if s.positive && score <= 0 {
			continue
		}
		sum += score * s.resources[i].Weight
		weights += s.resources[i].Weight
	}
	switch {
	case weights == 0:
		return 0
	case s.positive:
		return int64(math.Round(float64(sum) / float64(weights)))
	}
	return sum / weights
}

// usage is how much of a resource is used with the pod on the node, and how
// much there is. Containers that request no CPU or memory count with a floor.
// Devices stand for an extended resource that the node does not have itself. The
// capacity is 0 for a resource that does not count.
func (s *strategy) usage(ctx context.Context, cycle *framework.CycleState, name v1.ResourceName, pod *framework.PodInfo, n *framework.NodeInfo) (used, capacity int64) {
	switch name {
	case v1.ResourceCPU:
		return amount.Sum(n.NonZeroRequested.CPU, pod.NonZeroCPU), n.Allocatable.CPU
	case v1.ResourceMemory:
		return amount.Sum(n.NonZeroRequested.Memory, pod.NonZeroMemory), n.Allocatable.Memory
	}
	want := pod.Requests.Of(name)
	if want == 0 && isScalar(name) {
		return 0, 0
	}
	used, capacity = n.Requested.Of(name), n.Allocatable.Of(name)
	if capacity == 0 {
		used, capacity = s.devices.usage(ctx, cycle, name, n)
	}
	return amount.Sum(used, want), capacity
}

// least is the share that stays free.
func least(used, capacity int64) int64 {
	if used > capacity {
		return 0
	}
	return amount.Times(capacity-used, framework.MaxNodeScore) / capacity
}

// most is the share that is used.
func most(used, capacity int64) int64 {
	return amount.Times(min(used, capacity), framework.MaxNodeScore) / capacity
}
