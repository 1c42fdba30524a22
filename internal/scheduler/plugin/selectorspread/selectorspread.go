// Package selectorspread spreads the pods of a service or controller over
// nodes and zones. It serves the priority SelectorSpreadPriority of Policy v1;
// profiles use PodTopologySpread.
package selectorspread

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/podselector"
)

// Name is the plugin's name in configurations.
const Name = "SelectorSpread"

// zoneWeight is the part of the score that is of the zone, if there are zones.
const zoneWeight = 2.0 / 3.0

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.Factory{Name: Name, New: func(_ context.Context, _ any, h *framework.Handle) (framework.Plugin, error) {
		p := &plugin{key: framework.NewStateKey[*preScoreState](h), selectorOf: func(*v1.Pod) labels.Selector { return nil }}
		if h.Informers != nil {
			p.selectorOf = podselector.New(h.Informers)
		}
		return p, nil
	}}
}

type plugin struct {
	key        framework.StateKey[*preScoreState]
	selectorOf func(*v1.Pod) labels.Selector // nil: the pod belongs to nothing
}

// preScoreState counts the pods that belong together with this one.
type preScoreState struct {
	pods               *framework.PodCount
	byZone             map[string]int64
	mostHere, mostZone int64 // on one of the nodes, and in one of the zones
}

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

// PreScore implements framework.PreScorePlugin. Pods with constraints of their
// own are spread by those.
func (p *plugin) PreScore(_ context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot, nodes []*framework.NodeInfo) *framework.Status {
	var selector labels.Selector
	if len(pod.Pod.Spec.TopologySpreadConstraints) == 0 {
		selector = p.selectorOf(pod.Pod)
	}
	if selector == nil {
		return framework.NewStatus(framework.Skip, Name)
	}
	namespace := pod.Pod.Namespace
	s := &preScoreState{byZone: map[string]int64{}}
	s.pods = snapshot.CountPods("spread "+namespace+" "+framework.SelectorKey(selector), namespace, func(o *framework.PodInfo) bool {
		return o.Pod.DeletionTimestamp == nil && selector.Matches(labels.Set(o.Pod.Labels))
	})
	for _, n := range nodes {
		count := s.pods.On(n)
		s.mostHere = max(s.mostHere, count)
		if zone := zoneOf(n.Node); zone != "" {
			s.byZone[zone] += count
			s.mostZone = max(s.mostZone, s.byZone[zone])
		}
	}
	p.key.Put(state, s)
	return nil
}

// Score implements framework.ScorePlugin: the fewer such pods are on the node
// and in its zone, the better.
func (p *plugin) Score(_ context.Context, state *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) (int64, *framework.Status) {
	s, _ := p.key.Get(state)
	score := share(s.mostHere-s.pods.On(n), s.mostHere)
	if zone := zoneOf(n.Node); zone != "" {
		score = score*(1-zoneWeight) + zoneWeight*share(s.mostZone-s.byZone[zone], s.mostZone)
	}
	return int64(score), nil
}

func share(part, whole int64) float64 {
	if whole == 0 {
		return float64(framework.MaxNodeScore)
	}
	return float64(framework.MaxNodeScore) * (float64(part) / float64(whole))
}

// zoneOf identifies the region and zone of a node; "" is none.
func zoneOf(node *v1.Node) string {
	region, zone := node.Labels[v1.LabelTopologyRegion], node.Labels[v1.LabelTopologyZone]
	if region == "" && zone == "" {
		return ""
	}
	return region + "\x00" + zone
}

// EventsToRegister implements framework.EnqueueExtensions: it rejects no pod.
func (*plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return nil, nil
}
