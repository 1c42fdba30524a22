package noderesources

import (
	"context"
	"math"

	v1 "k8s.io/api/core/v1"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// BalancedName is the name of NodeResourcesBalancedAllocation in configurations.
const BalancedName = "NodeResourcesBalancedAllocation"

// BalancedFactory describes NodeResourcesBalancedAllocation.
func BalancedFactory() framework.Factory {
	return framework.WithArguments(BalancedName, setBalancedDefaults, validateBalanced, newBalanced)
}

type balanced struct {
	resources []kubescheduler.ResourceSpec
	devices   *devices
	skip      *framework.Status
}

func newBalanced(ctx context.Context, a *kubescheduler.NodeResourcesBalancedAllocationArgs, h *framework.Handle) (framework.Plugin, error) {
	devices, err := newDevices(ctx, h, a.Resources)
	return &balanced{resources: a.Resources, devices: devices, skip: framework.NewStatus(framework.Skip, BalancedName)}, err
}

// Name implements framework.Plugin.
func (*balanced) Name() string { return BalancedName }

// PreScore implements framework.PreScorePlugin: it skips pods that request
// none of the resources.
func (b *balanced) PreScore(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot, _ []*framework.NodeInfo) *framework.Status {
	for i := range b.resources {
		if pod.Requests.Of(v1.ResourceName(b.resources[i].Name)) != 0 {
			return nil
		}
	}
	return b.skip
}

// Score implements framework.ScorePlugin: how much nearer to each other the
// pod brings the used fractions of the resources. A node whose balance stays
// as it is gets 75; those that are thrown out of balance get as little as 50.
// Devices stand for an extended resource that the node does not have itself.
func (b *balanced) Score(ctx context.Context, cycle *framework.CycleState, pod *framework.PodInfo, n *framework.NodeInfo) (int64, *framework.Status) {
	var before, after fractions
	for i := range b.resources {
		name := v1.ResourceName(b.resources[i].Name)
		want := pod.Requests.Of(name)
		if want == 0 && isScalar(name) {
			continue
		}
		used, capacity := n.Requested.Of(name), n.Allocatable.Of(name)
		if capacity == 0 {
			used, capacity = b.devices.usage(ctx, cycle, name, n)
		}
		if capacity == 0 {
			continue
		}
		before.add(used, capacity)
		after.add(amount.Sum(used, want), capacity)
	}
	return int64(float64(framework.MaxNodeScore) * (0.75 + (before.deviation()-after.deviation())/2)), nil
}

// fractions collects how much of each resource is used.
type fractions struct {
	values [8]float64
	more   []float64 // those that values has no room for
	count  int
}

func (f *fractions) add(used, capacity int64) {
	fraction := min(1, float64(used)/float64(capacity))
	if f.count < len(f.values) {
		f.values[f.count] = fraction
	} else {
		f.more = append(f.more, fraction)
	}
	f.count++
}

func (f *fractions) each(visit func(float64)) {
	for _, v := range f.values[:min(f.count, len(f.values))] {
		visit(v)
	}
	for _, v := range f.more {
		visit(v)
	}
}

// deviation is the standard deviation: 0 to 0.5.
func (f *fractions) deviation() float64 {
	switch f.count {
	case 0, 1:
		return 0
	case 2:
		return math.Abs(f.values[0]-f.values[1]) / 2
	}
	var sum, squares float64
	f.each(func(v float64) { sum += v })
	mean := sum / float64(f.count)
	f.each(func(v float64) { squares += (v - mean) * (v - mean) })
	return math.Sqrt(squares / float64(f.count))
}

// SignPod implements framework.SignPlugin. Pods with extended resources do not sign if
// devices may count: those are allocated without a change of the node.
func (b *balanced) SignPod(pod *framework.PodInfo) (fragment string, ok bool) {
	return pod.RequestsSignature(), b.devices == nil || len(pod.Requests.Scalar) == 0
}

// EventsToRegister implements framework.EnqueueExtensions: it rejects no pod.
func (*balanced) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return nil, nil
}
