// Package serviceaffinity keeps the pods of a service on nodes that agree in
// the values of given labels, or spreads them over those values. It serves
// the predicate ServiceAffinity and the priorities ServiceAntiAffinity and
// CalculateAntiAffinity of Policy v1.
package serviceaffinity

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "ServiceAffinity"

// Arguments are keys of node labels.
type Arguments struct {
	// AffinityLabels must have the same values on all nodes of a service's pods.
	AffinityLabels []string `json:"affinityLabels,omitempty"`
	// AntiAffinityLabelsPreference are those over whose values the pods of a
	// service are spread.
	AntiAffinityLabelsPreference []string `json:"antiAffinityLabelsPreference,omitempty"`
}

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.WithArguments(Name, nil, nil, newPlugin)
}

type plugin struct {
	Arguments
	filterKey framework.StateKey[*preFilterState]
	scoreKey  framework.StateKey[*preScoreState]
	mismatch  *framework.Status
	services  corev1listers.ServiceLister // nil: there are none
}

type preFilterState struct {
	snapshot *framework.Snapshot
	service  bool // the pod has one
	wanted   labels.Set
}

type preScoreState struct {
	total   int64
	byValue map[string]map[string]int64
}

func newPlugin(_ context.Context, a *Arguments, h *framework.Handle) (framework.Plugin, error) {
	p := &plugin{
		Arguments: *a,
		filterKey: framework.NewStateKey[*preFilterState](h), scoreKey: framework.NewStateKey[*preScoreState](h),
		mismatch: framework.NewStatus(framework.Unschedulable, Name, "node(s) didn't match service affinity"),
	}
	if h.Informers != nil {
		p.services = h.Informers.Core().V1().Services().Lister()
	}
	return p, nil
}

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

// selector returns the selector of the pod's first service by name. ok is false if
// there is none.
func (p *plugin) selector(pod *v1.Pod) (selector labels.Selector, ok bool) {
	if p.services == nil {
		return nil, false
	}
	list, err := p.services.Services(pod.Namespace).List(labels.Everything())
	if err != nil {
		return nil, false
	}
	first := ""
	for _, service := range list {
		s := labels.SelectorFromSet(service.Spec.Selector)
		if len(service.Spec.Selector) > 0 && s.Matches(labels.Set(pod.Labels)) && (first == "" || service.Name < first) {
			selector, first = s, service.Name
		}
	}
	return selector, first != ""
}

// PreFilter implements framework.PreFilterPlugin.
func (p *plugin) PreFilter(_ context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	if len(p.AffinityLabels) == 0 {
		return nil, framework.NewStatus(framework.Skip, Name)
	}
	s := &preFilterState{snapshot: snapshot}
	_, s.service = p.selector(pod.Pod)
	p.settle(s, pod.Pod)
	p.filterKey.Put(state, s)
	return nil, nil
}

// settle finds the values that a node must have: from the pod's nodeSelector, and
// the rest from the first node with a pod of the same labels.
func (p *plugin) settle(s *preFilterState, pod *v1.Pod) {
	s.wanted = labels.Set{}
	take := func(from map[string]string) {
		for _, key := range p.AffinityLabels {
			if _, known := s.wanted[key]; known {
				continue
			}
			if value, ok := from[key]; ok {
				s.wanted[key] = value
			}
		}
	}
	take(pod.Spec.NodeSelector)
	if !s.service || len(s.wanted) == len(p.AffinityLabels) {
		return
	}
	alike := labels.SelectorFromSet(pod.Labels)
	siblings := s.snapshot.CountPods("alike "+pod.Namespace+" "+framework.SelectorKey(alike), pod.Namespace, func(o *framework.PodInfo) bool {
		return alike.Matches(labels.Set(o.Pod.Labels))
	})
	nodes := s.snapshot.Nodes()
	if i := slices.IndexFunc(nodes, func(n *framework.NodeInfo) bool { return siblings.On(n) > 0 }); i >= 0 {
		take(nodes[i].Node.Labels)
	}
}

// AddPod implements framework.PreFilterExtensions.
func (p *plugin) AddPod(_ context.Context, state *framework.CycleState, pod, _ *framework.PodInfo, _ *framework.NodeInfo) *framework.Status {
	s, _ := p.filterKey.Get(state)
	p.settle(s, pod.Pod)
	return nil
}

// RemovePod implements framework.PreFilterExtensions.
func (p *plugin) RemovePod(ctx context.Context, state *framework.CycleState, pod, removed *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	return p.AddPod(ctx, state, pod, removed, node)
}

// Filter implements framework.FilterPlugin.
func (p *plugin) Filter(_ context.Context, state *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) *framework.Status {
	s, _ := p.filterKey.Get(state)
	for key, value := range s.wanted {
		if has, ok := n.Node.Labels[key]; !ok || has != value {
			return p.mismatch
		}
	}
	return nil
}

// PreScore implements framework.PreScorePlugin: it counts the pods of the
// pod's service by the values of each label.
func (p *plugin) PreScore(_ context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot, nodes []*framework.NodeInfo) *framework.Status {
	if len(p.AntiAffinityLabelsPreference) == 0 {
		return framework.NewStatus(framework.Skip, Name)
	}
	s := &preScoreState{byValue: map[string]map[string]int64{}}
	if selector, ok := p.selector(pod.Pod); ok {
		namespace := pod.Pod.Namespace
		siblings := snapshot.CountPods("spread "+namespace+" "+framework.SelectorKey(selector), namespace, func(o *framework.PodInfo) bool {
			return o.Pod.DeletionTimestamp == nil && selector.Matches(labels.Set(o.Pod.Labels))
		})
		for _, n := range nodes {
			s.add(n.Node, p.AntiAffinityLabelsPreference, siblings.On(n))
		}
	}
	p.scoreKey.Put(state, s)
	return nil
}

func (s *preScoreState) add(node *v1.Node, keys []string, count int64) {
	s.total += count
	for _, key := range keys {
		value, ok := node.Labels[key]
		if !ok {
			continue
		}
		if s.byValue[key] == nil {
			s.byValue[key] = map[string]int64{}
		}
		s.byValue[key][value] += count
	}
}

// Score implements framework.ScorePlugin: the mean over the labels of the
// share of the service's pods that are elsewhere. A node without a label gets
// nothing for it.
func (p *plugin) Score(_ context.Context, state *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) (int64, *framework.Status) {
	s, _ := p.scoreKey.Get(state)
	var sum float64
	for _, key := range p.AntiAffinityLabelsPreference {
		value, ok := n.Node.Labels[key]
		if !ok {
			continue
		}
		elsewhere := 1.0
		if s.total > 0 {
			elsewhere = float64(s.total-s.byValue[key][value]) / float64(s.total)
		}
		sum += float64(framework.MaxNodeScore) * elsewhere / float64(len(p.AntiAffinityLabelsPreference))
	}
	return int64(sum), nil
}

// EventsToRegister implements framework.EnqueueExtensions.
func (p *plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	if len(p.AffinityLabels) == 0 {
		return nil, nil
	}
	return []framework.ClusterEventWithHint{
		framework.On(framework.AssignedPod, framework.Add|framework.Delete|framework.UpdatePodLabel, func(pod *framework.PodInfo, old, other *v1.Pod) framework.QueueingHint {
			alike := labels.SelectorFromSet(pod.Pod.Labels)
			matches := func(o *v1.Pod) bool {
				return o != nil && o.Namespace == pod.Pod.Namespace && alike.Matches(labels.Set(o.Labels))
			}
			return framework.QueueIf(matches(old) || matches(other))
		}),
		{Event: framework.ClusterEvent{Resource: framework.TargetPod, Action: framework.UpdatePodLabel}},
		{Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add | framework.Delete | framework.UpdateNodeLabel}},
		{Event: framework.ClusterEvent{Resource: framework.Service, Action: framework.All}},
	}, nil
}
