package podtopologyspread

import (
	"context"
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// preFilterState holds the distribution of the matching pods over the domains
// of each constraint of a pod.
type preFilterState struct {
	constraints []constraint
	spreads     []spread
	self        []int64 // what the pod itself adds to its domain
	affinity    nodeaffinity.RequiredNodeAffinity
}

// notCounted is the count of a domain without nodes that count.
const notCounted = -1

// spread holds the distribution of the matching pods over the domains of one
// constraint.
type spread struct {
	topology *framework.Topology
	count    *framework.PodCount
	counts   []int64       // by domain
	domains  map[int64]int // how many domains have each count; nil until a count changes
	lowest   int64
	few      bool // fewer domains than minDomains: the lowest counts as 0
}

// add changes the count of a domain by 1 or -1.
func (s *spread) add(domain int, by int64) {
	count := s.counts[domain]
	if count == notCounted {
		return
	}
	if s.domains == nil {
		s.domains = map[int64]int{}
		for _, count := range s.counts {
			if count != notCounted {
				s.domains[count]++
			}
		}
	}
	if s.domains[count]--; s.domains[count] == 0 {
		delete(s.domains, count)
	}
	count += by
	s.counts[domain] = count
	s.domains[count]++
	if count < s.lowest {
		s.lowest = count
	} else if s.domains[s.lowest] == 0 {
		s.lowest++ // only the domain that was increased by 1 can have left it empty
	}
}

// least is the count that the skew is measured from.
func (s *spread) least() int64 {
	if s.few {
		return 0
	}
	return s.lowest
}

// PreFilter implements framework.PreFilterPlugin.
func (p *plugin) PreFilter(_ context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	constraints := p.constraintsOf(pod, v1.DoNotSchedule)
	if len(constraints) == 0 {
		return nil, framework.NewStatus(framework.Skip, Name)
	}
	s := &preFilterState{constraints: constraints, self: make([]int64, len(constraints)), affinity: nodeaffinity.GetRequiredNodeAffinity(pod.Pod)}
	for i := range constraints {
		if constraints[i].selects(pod.Pod, pod.Pod.Namespace) {
			s.self[i] = 1
		}
	}
	s.spreads = measure(pod, snapshot, constraints, &s.affinity)
	p.filterKey.Put(state, s)
	return nil, nil
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

func (p *plugin) update(state *framework.CycleState, pod, other *framework.PodInfo, node *framework.NodeInfo, by int64) {
	s, _ := p.filterKey.Get(state)
	for i := range s.spreads {
		s.spreads[i].count.Changed(node, other, by)
	}
	if !inAllTopologies(node, s.spreads) {
		return
	}
	for i := range s.constraints {
		c := &s.constraints[i]
		if c.selects(other.Pod, pod.Pod.Namespace) && c.counted(pod, &s.affinity, node) {
			s.spreads[i].add(s.spreads[i].topology.Domain(node), by)
		}
	}
}

// Filter implements framework.FilterPlugin. It rejects a node if, with the pod,
// the node's domain would have over maxSkew more matching pods than the domain
// with the fewest.
func (p *plugin) Filter(_ context.Context, state *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) *framework.Status {
	s, _ := p.filterKey.Get(state)
	for i := range s.spreads {
		one := &s.spreads[i]
		domain := one.topology.Domain(n)
		if domain < 0 {
			return p.missing
		}
		if max(one.counts[domain], 0)+s.self[i]-one.least() > int64(s.constraints[i].MaxSkew) {
			return p.skewed
		}
	}
	return nil
}

func measure(pod *framework.PodInfo, snapshot *framework.Snapshot, constraints []constraint, affinity *nodeaffinity.RequiredNodeAffinity) []spread {
	spreads := make([]spread, len(constraints))
	for i := range constraints {
		topology := snapshot.Topology(constraints[i].TopologyKey)
		spreads[i] = spread{topology: topology, count: constraints[i].count(snapshot, pod.Pod.Namespace), counts: make([]int64, topology.Size())}
	}
	for i := range spreads {
		c, s := &constraints[i], &spreads[i]
		if c.countsEverywhere(pod.Pod, constraints) {
			byDomain := s.count.By(s.topology)
			for domain := range s.counts {
				if s.counts[domain] = byDomain.At(domain); s.topology.Nodes(domain) == 0 {
					s.counts[domain] = notCounted
				}
			}
		} else {
			for domain := range s.counts {
				s.counts[domain] = notCounted
			}
			for _, n := range snapshot.Nodes() {
				if inAllTopologies(n, spreads) && c.counted(pod, affinity, n) {
					domain := s.topology.Domain(n)
					s.counts[domain] = max(s.counts[domain], 0) + s.count.On(n)
				}
			}
		}
		domains := 0
		s.lowest = math.MaxInt64
		for _, count := range s.counts {
			if count != notCounted {
				domains++
				s.lowest = min(s.lowest, count)
			}
		}
		s.few = domains == 0 || c.MinDomains != nil && domains < int(*c.MinDomains)
	}
	return spreads
}

// inAllTopologies reports whether a node has the labels of all constraints.
func inAllTopologies(n *framework.NodeInfo, spreads []spread) bool {
	for i := range spreads {
		if spreads[i].topology.Domain(n) < 0 {
			return false
		}
	}
	return true
}
