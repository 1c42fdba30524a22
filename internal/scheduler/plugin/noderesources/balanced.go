package noderesources

import (
	"math"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// BalancedName is the name of Balanced in configurations.
const BalancedName = "NodeResourcesBalancedAllocation"

// Balanced is the score NodeResourcesBalancedAllocation.
type Balanced struct{}

// Name implements framework.Score.
func (Balanced) Name() string { return BalancedName }

// Score implements framework.Score: the nearer the used fractions of CPU and
// memory are to each other, the better. Pods that request nothing have no say.
func (Balanced) Score(pod *framework.Pod, _ *framework.Cluster, _ []*framework.Node) (framework.NodeScore, func([]int64)) {
	if pod.Requests.CPU == 0 && pod.Requests.Memory == 0 {
		return nil, nil
	}
	fraction := func(used, capacity int64) float64 {
		if capacity == 0 {
			return 1
		}
		return math.Min(1, float64(used)/float64(capacity))
	}
	return func(n *framework.Node) int64 {
		cpu := fraction(amount.Sum(n.Requested.CPU, pod.Requests.CPU), n.Allocatable.CPU)
		memory := fraction(amount.Sum(n.Requested.Memory, pod.Requests.Memory), n.Allocatable.Memory)
		deviation := math.Abs(cpu-memory) / 2
		return int64((1 - deviation) * framework.MaxScore)
	}, nil
}
