// Package interpodaffinity places pods near to or away from other pods.
package interpodaffinity

import (
	"context"
	"slices"

	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "InterPodAffinity"

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.WithArguments(Name, setDefaults, validate, newPlugin)
}

type plugin struct {
	arguments           *kubescheduler.InterPodAffinityArgs
	filterKey           framework.StateKey[*preFilterState]
	scoreKey            framework.StateKey[[]weights]
	far, near, unwanted *framework.Status
}

func newPlugin(_ context.Context, a *kubescheduler.InterPodAffinityArgs, h *framework.Handle) (framework.Plugin, error) {
	return &plugin{
		arguments: a,
		filterKey: framework.NewStateKey[*preFilterState](h), scoreKey: framework.NewStateKey[[]weights](h),
		far:      framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, "node(s) didn't match pod affinity rules"),
		near:     framework.NewStatus(framework.Unschedulable, Name, "node(s) didn't match pod anti-affinity rules"),
		unwanted: framework.NewStatus(framework.Unschedulable, Name, "node(s) didn't satisfy existing pods anti-affinity rules"),
	}, nil
}

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

// preFilterState has counts of pods by domain, which change with the snapshot.
type preFilterState struct {
	snapshot *framework.Snapshot
	existing []*framework.DomainCounts        // pods whose required anti-affinity selects this pod, by term
	known    map[*framework.DomainCounts]bool // the counts in existing; nil until a trial needs it
	anti     []*framework.DomainCounts        // pods that this pod's required anti-affinity selects, by term
	affinity []*framework.DomainCounts        // pods that all of this pod's required affinity selects, by term
	counts   []*framework.PodCount            // of the latter two
	self     bool                             // the pod's required affinity selects the pod itself
}

// PreFilter implements framework.PreFilterPlugin.
func (p *plugin) PreFilter(_ context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	s := &preFilterState{snapshot: snapshot}
	for existing := range snapshot.ExistingTerms(pod.Pod.Namespace) {
		if existing.Role == framework.RequiredAntiAffinity && existing.Term.Matches(pod.Pod, snapshot.Namespaces()) {
			s.existing = append(s.existing, existing.By(snapshot.Topology(existing.Term.TopologyKey)))
		}
	}
	if len(s.existing) == 0 && len(pod.RequiredAntiAffinity) == 0 && len(pod.RequiredAffinity) == 0 {
		return nil, framework.NewStatus(framework.Skip, Name)
	}
	for i := range pod.RequiredAntiAffinity {
		count := snapshot.CountPodsOfTerms(pod.RequiredAntiAffinity[i : i+1])
		s.counts = append(s.counts, count)
		s.anti = append(s.anti, count.By(snapshot.Topology(pod.RequiredAntiAffinity[i].TopologyKey)))
	}
	if len(pod.RequiredAffinity) > 0 {
		count := snapshot.CountPodsOfTerms(pod.RequiredAffinity)
		s.counts = append(s.counts, count)
		for i := range pod.RequiredAffinity {
			s.affinity = append(s.affinity, count.By(snapshot.Topology(pod.RequiredAffinity[i].TopologyKey)))
		}
		s.self = snapshot.MatchesAll(pod.RequiredAffinity, pod)
	}
	p.filterKey.Put(state, s)
	return nil, nil
}

// addExisting adds a term that a pod of a trial has.
func (s *preFilterState) addExisting(term *framework.ExistingTerm) {
	if s.known == nil { // a list of thousands of terms must not be searched for each
		s.known = make(map[*framework.DomainCounts]bool, len(s.existing))
		for _, counts := range s.existing {
			s.known[counts] = true
		}
	}
	if counts := term.By(s.snapshot.Topology(term.Term.TopologyKey)); !s.known[counts] {
		s.known[counts] = true
		s.existing = append(s.existing, counts)
	}
}

// AddPod implements framework.PreFilterExtensions.
func (p *plugin) AddPod(_ context.Context, state *framework.CycleState, pod, added *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	p.update(state, pod, added, node, 1)
	return nil
}

// RemovePod implements framework.PreFilterExtensions.
func (p *plugin) RemovePod(_ context.Context, state *framework.CycleState, pod, removed *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	p.update(state, pod, removed, node, -1)
	return nil
}

// update follows a trial. Most counts are of the snapshot, which has changed
// already; the other pod may have an anti-affinity that no pod had before.
func (p *plugin) update(state *framework.CycleState, pod, other *framework.PodInfo, node *framework.NodeInfo, by int64) {
	s, _ := p.filterKey.Get(state)
	for _, count := range s.counts {
		count.Changed(node, other, by)
	}
	for i := range other.RequiredAntiAffinity {
		term := other.RequiredAntiAffinity[i : i+1]
		existing := s.snapshot.ExistingTerm(framework.RequiredAntiAffinity, 0, &term[0])
		if existing != nil && s.snapshot.MatchesAll(term, pod) {
			s.addExisting(existing)
		}
	}
}

// Filter implements framework.FilterPlugin.
func (p *plugin) Filter(_ context.Context, state *framework.CycleState, pod *framework.PodInfo, n *framework.NodeInfo) *framework.Status {
	s, _ := p.filterKey.Get(state)
	for _, counts := range s.affinity {
		if domain := counts.Domain(n); domain < 0 || counts.At(domain) == 0 && !s.first() {
			return p.far
		}
	}
	for _, counts := range s.anti {
		if counts.On(n) > 0 {
			return p.near
		}
	}
	for _, counts := range s.existing {
		if counts.On(n) > 0 {
			return p.unwanted
		}
	}
	return nil
}

// first reports whether the pod is the first of a group that wants to be near
// its own kind: it may go anywhere.
func (s *preFilterState) first() bool {
	return s.self && !slices.ContainsFunc(s.affinity, func(counts *framework.DomainCounts) bool { return counts.Total() > 0 })
}
