package noderesources

import (
	"context"

	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/utilization"
)

// Names of the plugins that rank nodes by one strategy, as NodeResourcesFit
// does by its own. A Policy that scores resources in several ways needs them.
const (
	LeastAllocatedName = "NodeResourcesLeastAllocated"
	MostAllocatedName  = "NodeResourcesMostAllocated"
	RatioName          = "RequestedToCapacityRatio"
)

// ScorerFactory describes a plugin that ranks nodes by a strategy, kind unless
// its arguments name another one.
func ScorerFactory(name string, kind kubescheduler.ScoringStrategyType) framework.Factory {
	setDefaults := func(s *kubescheduler.ScoringStrategy) {
		if s.Type == "" {
			s.Type = kind
		}
		if s.Type == kubescheduler.RequestedToCapacityRatio && s.RequestedToCapacityRatio == nil {
			s.RequestedToCapacityRatio = &kubescheduler.RequestedToCapacityRatioParam{Shape: utilization.LeastFirst()}
		}
		setResourceDefaults(&s.Resources)
	}
	return framework.WithArguments(name, setDefaults, validateStrategy, func(ctx context.Context, s *kubescheduler.ScoringStrategy, h *framework.Handle) (framework.Plugin, error) {
		strategy, err := newStrategy(ctx, s, h)
		return &scorer{name: name, strategy: strategy}, err
	})
}

type scorer struct {
	name     string
	strategy strategy
}

// Name implements framework.Plugin.
func (s *scorer) Name() string { return s.name }

// Score implements framework.ScorePlugin.
func (s *scorer) Score(ctx context.Context, cycle *framework.CycleState, pod *framework.PodInfo, n *framework.NodeInfo) (int64, *framework.Status) {
	return s.strategy.score(ctx, cycle, pod, n), nil
}

// EventsToRegister implements framework.EnqueueExtensions: it rejects no pod.
func (*scorer) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return nil, nil
}
