package topologymanager

import (
	"slices"
)

// Hint is one way to give a container what it asks for. An Affinity of nil means
// that every set of nodes will do.
type Hint struct {
	Affinity *Mask
	// Preferred means that no smaller set of nodes would do on an empty machine.
	Preferred bool
}

// Hints are the hints for each resource. A nil list means that the resource has
// no preference, an empty list that no set of nodes would do.
type Hints map[string][]Hint

// policy decides which of the hints of all providers is followed, and whether
// the pod is admitted with it.
type policy struct {
	name      string
	nodes     []int
	distances func(from, to int) int // nil unless the closest nodes are preferred
}

// merge returns the best combination of hints, and whether the policy admits it.
func (p *policy) merge(providers []Hints) (Hint, bool) {
	lists := filter(providers)
	if p.name == SingleNUMANode {
		lists = singleNode(lists)
	}
	best := p.best(lists)
	all := NewMask(p.nodes...)
	if p.name == SingleNUMANode && best.Affinity != nil && *best.Affinity == all {
		best.Affinity = nil
	}
	switch p.name {
	case Restricted, SingleNUMANode:
		return best, best.Preferred
	}
	return best, true
}

// filter returns a list of hints for each resource of each provider. A provider
// or a resource without a preference has one hint without an affinity.
func filter(providers []Hints) [][]Hint {
	anywhere := []Hint{{Preferred: true}}
	var lists [][]Hint
	for _, hints := range providers {
		if len(hints) == 0 {
			lists = append(lists, anywhere)
			continue
		}
		for _, resource := range sortedNames(hints) {
			switch list := hints[resource]; {
			case list == nil:
				lists = append(lists, anywhere)
			case len(list) == 0:
				lists = append(lists, []Hint{{}})
			default:
				lists = append(lists, list)
			}
		}
	}
	return lists
}

func sortedNames(hints Hints) []string {
	names := make([]string, 0, len(hints))
	for name := range hints {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// singleNode keeps the preferred hints of one node, or of no affinity.
func singleNode(lists [][]Hint) [][]Hint {
	var out [][]Hint
	for _, list := range lists {
		var kept []Hint
		for _, h := range list {
			if h.Preferred && (h.Affinity == nil || h.Affinity.Count() == 1) {
				kept = append(kept, h)
			}
		}
		out = append(out, kept)
	}
	return out
}

// best returns the best combination of one hint of each list: preferred before
// not preferred, then of the fewest nodes. Without any it returns the hint of
// all nodes, not preferred.
func (p *policy) best(lists [][]Hint) Hint {
	all := NewMask(p.nodes...)
	widest := 0 // the most nodes that one resource needs at least
	for _, list := range lists {
		least := 0
		for _, h := range list {
			if h.Affinity != nil && (least == 0 || h.Affinity.Count() < least) {
				least = h.Affinity.Count()
			}
		}
		widest = max(widest, least)
	}
	var best *Hint
	for c := range choices(lists, all) {
		if candidate := (Hint{Affinity: &c.merged, Preferred: c.preferred}); best == nil || p.better(candidate, *best, widest) {
			best = &candidate
		}
	}
	if best == nil {
		return Hint{Affinity: &all}
	}
	return *best
}

// choice is the result of choosing one hint of each list.
type choice struct {
	merged    Mask // the nodes that all hints have
	preferred bool
	// common is the affinity of those hints that have one, 0 if none has. Two
	// different sets of nodes cannot both be the smallest one, so that a choice
	// of them is not preferred, and has no common affinity.
	common Mask
}

// choices returns the distinct results of combining one hint of each list, without
// those that have no node. It combines list by list: there are at most twice as
// many distinct results as sets of nodes, while the number of combinations is the
// product of the lengths.
func choices(lists [][]Hint, all Mask) map[choice]bool {
	now := map[choice]bool{}
	if all != 0 {
		now[choice{merged: all, preferred: true}] = true
	}
	for _, list := range lists {
		next := map[choice]bool{}
		for c := range now {
			for _, h := range list {
				if with := c.with(h); with.merged != 0 {
					next[with] = true
				}
			}
		}
		now = next
	}
	return now
}

// with returns the choice with a hint of the next list.
func (c choice) with(h Hint) choice {
	c.preferred = c.preferred && h.Preferred
	if h.Affinity != nil {
		c.merged &= *h.Affinity
		c.preferred = c.preferred && (c.common == 0 || c.common == *h.Affinity)
		c.common = *h.Affinity
	}
	if !c.preferred {
		c.common = 0
	}
	return c
}

// better reports whether a hint is better than the best so far. Among hints that
// are not preferred it looks for the one whose number of nodes is closest to
// widest, from below.
func (p *policy) better(h, best Hint, widest int) bool {
	if h.Preferred != best.Preferred {
		return h.Preferred
	}
	if h.Preferred {
		return p.narrower(*h.Affinity, *best.Affinity)
	}
	n, m := h.Affinity.Count(), best.Affinity.Count()
	switch {
	case m > widest:
		return p.narrower(*h.Affinity, *best.Affinity)
	case n > widest:
		return false
	case n == m:
		return p.narrower(*h.Affinity, *best.Affinity)
	}
	return n > m
}

// narrower reports whether a set of nodes is better than another one: it has
// fewer nodes, or, where that is preferred, closer ones, or lower ids.
func (p *policy) narrower(a, b Mask) bool {
	if a.Count() == b.Count() && p.distances != nil {
		if x, y := p.distance(a), p.distance(b); x != y {
			return x < y
		}
	}
	return a.Narrower(b)
}

// distance returns the average distance between the nodes of a set.
func (p *policy) distance(m Mask) float64 {
	nodes, sum := m.Nodes(), 0
	for _, from := range nodes {
		for _, to := range nodes {
			sum += p.distances(from, to)
		}
	}
	return float64(sum) / float64(max(len(nodes)*len(nodes), 1))
}
