// Package noderesources compares what a pod requests with what nodes have:
// the filter and score NodeResourcesFit (least allocated) and the score
// NodeResourcesBalancedAllocation.
package noderesources

import (
	"slices"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// FitName is the name of Fit in configurations.
const FitName = "NodeResourcesFit"

// Fit is the filter and score NodeResourcesFit.
type Fit struct{}

// Name implements framework.Filter and framework.Score.
func (Fit) Name() string { return FitName }

// Filter implements framework.Filter: all that does not fit is named.
func (Fit) Filter(pod *framework.Pod, _ *framework.Cluster) framework.NodeFilter {
	want := &pod.Requests
	return func(n *framework.Node) *framework.Failure {
		var reasons []string
		unresolvable := false
		short := func(name string, want, allocatable, used int64) {
			if want > 0 && want > allocatable-used {
				reasons = append(reasons, "Insufficient "+name)
				unresolvable = unresolvable || want > allocatable
			}
		}
		if n.Requested.Pods+1 > n.Allocatable.Pods {
			reasons = append(reasons, "Too many pods")
		}
		short("cpu", want.CPU, n.Allocatable.CPU, n.Requested.CPU)
		short("memory", want.Memory, n.Allocatable.Memory, n.Requested.Memory)
		short("ephemeral-storage", want.EphemeralStorage, n.Allocatable.EphemeralStorage, n.Requested.EphemeralStorage)
		for name, amount := range want.Scalar {
			short(string(name), amount, n.Allocatable.Scalar[name], n.Requested.Scalar[name])
		}
		if len(reasons) == 0 {
			return nil
		}
		slices.Sort(reasons)
		return &framework.Failure{Plugin: FitName, Reasons: reasons, Unresolvable: unresolvable}
	}
}

// Score implements framework.Score: the mean over CPU and memory of the
// fraction that stays free.
func (Fit) Score(pod *framework.Pod, _ *framework.Cluster, _ []*framework.Node) (framework.NodeScore, func([]int64)) {
	free := func(capacity, used int64) int64 {
		if capacity == 0 || used > capacity {
			return 0
		}
		return amount.Times(capacity-used, framework.MaxScore) / capacity
	}
	return func(n *framework.Node) int64 {
		return (free(n.Allocatable.CPU, amount.Sum(n.NonZero.CPU, pod.NonZeroCPU)) +
			free(n.Allocatable.Memory, amount.Sum(n.NonZero.Memory, pod.NonZeroMemory))) / 2
	}, nil
}
