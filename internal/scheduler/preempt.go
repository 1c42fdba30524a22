package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// candidate is a node that would take the pod if its victims were gone.
type candidate struct {
	node     string
	victims  []*framework.Pod // most important first
	breaches int              // victims whose eviction a disruption budget forbids
}

// maxCandidates bounds how many nodes preemption looks at for one pod.
const maxCandidates = 100

// preempt looks for pods of lower priority whose removal would make room for
// a pod that fits nowhere, and returns the node where that costs least. The
// reasons count the nodes where it does not help, for the pod's event.
func (p *profile) preempt(pod *framework.Pod, cluster *framework.Cluster, unfit *fitError, protected func(*v1.Pod) bool) (*candidate, string) {
	if policy := pod.Pod.Spec.PreemptionPolicy; policy != nil && *policy == v1.PreemptNever {
		return nil, "not eligible due to preemptionPolicy=Never"
	}
	var found []*candidate
	reasons := map[string]int{}
	for _, n := range cluster.Nodes {
		failure := unfit.failures[n.Name]
		if failure == nil || failure.Unresolvable {
			reasons["Preemption is not helpful for scheduling"]++
			continue
		}
		if len(found) == maxCandidates {
			break
		}
		if c := p.victims(pod, cluster, n, protected); c != nil {
			found = append(found, c)
		} else {
			reasons["No preemption victims found for incoming pod"]++
		}
	}
	if len(found) == 0 {
		return nil, fmt.Sprintf("0/%d nodes are available: %s", len(cluster.Nodes), counted(reasons))
	}
	return slices.MinFunc(found, compareCandidates), ""
}

// victims returns the fewest least important pods of a node that must go, or
// nil if even all of lower priority would not be enough, or none needs to go:
// the node has changed since the pod did not fit.
func (p *profile) victims(pod *framework.Pod, cluster *framework.Cluster, n *framework.Node, protected func(*v1.Pod) bool) *candidate {
	var lower []*framework.Pod
	for _, other := range n.Pods {
		if other.Priority < pod.Priority {
			lower = append(lower, other)
		}
	}
	if len(lower) == 0 {
		return nil
	}
	trial := n.Clone()
	for _, victim := range lower {
		trial.RemovePod(victim.Pod.UID)
	}
	view := withNode(cluster, n, trial)
	if !p.fits(pod, view, trial) {
		return nil
	}
	// those that a budget protects are given back first, then by importance
	slices.SortFunc(lower, func(a, b *framework.Pod) int {
		return cmp.Or(-compareBool(protected(a.Pod), protected(b.Pod)), compareImportance(a, b))
	})
	c := &candidate{node: n.Name}
	for _, other := range lower {
		trial.AddPod(other)
		if p.fits(pod, withNode(cluster, n, trial), trial) {
			continue
		}
		trial.RemovePod(other.Pod.UID)
		c.victims = append(c.victims, other)
		if protected(other.Pod) {
			c.breaches++
		}
	}
	if len(c.victims) == 0 {
		return nil
	}
	slices.SortFunc(c.victims, compareImportance)
	return c
}

// fits runs every filter for one node.
func (p *profile) fits(pod *framework.Pod, cluster *framework.Cluster, n *framework.Node) bool {
	for _, f := range p.filters {
		if check := f.Filter(pod, cluster); check != nil && check(n) != nil {
			return false
		}
	}
	return true
}

// withNode is the cluster with one node replaced.
func withNode(c *framework.Cluster, old, replacement *framework.Node) *framework.Cluster {
	view := *c
	view.Nodes = slices.Clone(c.Nodes)
	view.Nodes[slices.Index(c.Nodes, old)] = replacement
	view.ByName = maps.Clone(c.ByName)
	view.ByName[replacement.Name] = replacement
	view.Instead = &framework.Instead{Old: old, Replacement: replacement}
	return &view
}

// compareCandidates orders by what a preemption costs, cheapest first: broken
// budgets, the highest priority among the victims, the sum of their
// priorities, their number, and how lately the most important one started.
func compareCandidates(a, b *candidate) int {
	return cmp.Or(
		cmp.Compare(a.breaches, b.breaches),
		cmp.Compare(a.victims[0].Priority, b.victims[0].Priority),
		cmp.Compare(a.sum(), b.sum()),
		cmp.Compare(len(a.victims), len(b.victims)),
		-cmp.Compare(started(a.victims[0]), started(b.victims[0])),
	)
}

func (c *candidate) sum() int64 {
	var sum int64
	for _, v := range c.victims {
		sum += int64(v.Priority) + math.MaxInt32 + 1 // so that more victims never sum to less
	}
	return sum
}

// compareImportance puts the pod that should stay longer first.
func compareImportance(a, b *framework.Pod) int {
	return cmp.Or(-cmp.Compare(a.Priority, b.Priority), cmp.Compare(started(a), started(b)))
}

func started(p *framework.Pod) int64 {
	if p.Pod.Status.StartTime == nil {
		return math.MaxInt64
	}
	return p.Pod.Status.StartTime.UnixNano()
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// counted lists reasons with how often each was met.
func counted(reasons map[string]int) string {
	list := make([]string, 0, len(reasons))
	for reason, n := range reasons {
		list = append(list, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
