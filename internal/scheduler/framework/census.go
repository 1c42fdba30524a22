package framework

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Role is what a term asks for.
type Role uint8

// The roles of a pod's terms.
const (
	RequiredAffinity Role = iota
	RequiredAntiAffinity
	PreferredAffinity
	PreferredAntiAffinity
)

// Census counts the pods on nodes, so that a decision need not visit them all.
// It is kept up to date as pods are placed and removed:
//
//	the terms that pods carry ──► which nodes run such pods   (what others ask of this pod)
//	selectors that were asked ──► which nodes run such pods   (what this pod asks of others)
type Census struct {
	nodes   iter.Seq[*Node] // all nodes, also those known only by their pods
	carried map[carriedKey]*Carried
	tallies map[string]*Tally
}

// NewCensus returns the census of nodes that are empty as yet.
func NewCensus(nodes iter.Seq[*Node]) *Census {
	return &Census{nodes: nodes, carried: map[carriedKey]*Carried{}, tallies: map[string]*Tally{}}
}

type carriedKey struct {
	role     Role
	weight   int64
	topology string
	term     string
}

// Carried is a term that pods carry, with how many do on each node.
type Carried struct {
	Role   Role
	Weight int64 // of preferred terms
	Term   AffinityTerm
	on     map[*Node]int64
}

// Tally is how many of the pods that a selector speaks of are on each node.
type Tally struct {
	matches func(*Pod) bool
	on      map[*Node]int64
}

// maxTallies bounds the selectors that are counted all the time.
const maxTallies = 256

// Count notes that a pod was put on a node (by is 1) or taken off it (-1).
func (c *Census) Count(n *Node, p *Pod, by int64) {
	p.eachTerm(func(role Role, weight int64, term *AffinityTerm) {
		key := carriedKey{role, weight, term.TopologyKey, term.key}
		entry, ok := c.carried[key]
		if !ok {
			entry = &Carried{Role: role, Weight: weight, Term: *term, on: map[*Node]int64{}}
			c.carried[key] = entry
		}
		if add(entry.on, n, by); len(entry.on) == 0 {
			delete(c.carried, key)
		}
	})
	for _, t := range c.tallies {
		if t.matches(p) {
			add(t.on, n, by)
		}
	}
}

func add(on map[*Node]int64, n *Node, by int64) {
	if on[n] += by; on[n] == 0 {
		delete(on, n)
	}
}

// Forget drops what was counted for selectors, after the labels of namespaces
// changed.
func (c *Census) Forget() { clear(c.tallies) }

func (p *Pod) eachTerm(visit func(Role, int64, *AffinityTerm)) {
	for i := range p.RequiredAffinity {
		visit(RequiredAffinity, 0, &p.RequiredAffinity[i])
	}
	for i := range p.RequiredAntiAffinity {
		visit(RequiredAntiAffinity, 0, &p.RequiredAntiAffinity[i])
	}
	for i := range p.PreferredAffinity {
		visit(PreferredAffinity, p.PreferredAffinity[i].Weight, &p.PreferredAffinity[i].AffinityTerm)
	}
	for i := range p.PreferredAntiAffinity {
		visit(PreferredAntiAffinity, p.PreferredAntiAffinity[i].Weight, &p.PreferredAntiAffinity[i].AffinityTerm)
	}
}

// Carried calls visit with each term that pods on the cluster's nodes carry.
func (c *Cluster) Carried() iter.Seq[*Carried] {
	if c.Instead == nil {
		return maps.Values(c.Census.carried)
	}
	trial := NewCensus(nil) // what the replacement's pods carry may not be on other nodes
	for _, p := range c.Instead.Replacement.Pods {
		trial.Count(c.Instead.Replacement, p, 1)
	}
	return func(yield func(*Carried) bool) {
		for _, entry := range c.Census.carried {
			on := maps.Clone(entry.on)
			delete(on, c.Instead.Old)
			if len(on) > 0 && !yield(&Carried{entry.Role, entry.Weight, entry.Term, on}) {
				return
			}
		}
		for _, entry := range trial.carried {
			if !yield(entry) {
				return
			}
		}
	}
}

// Nodes calls visit with each node that runs pods which carry the term.
func (c *Carried) Nodes() iter.Seq2[*Node, int64] { return present(c.on) }

// Tally counts the pods that matches speaks of. The key says which these are;
// the empty key says that it cannot be said, and nothing is kept.
func (c *Cluster) Tally(key string, matches func(*Pod) bool) *Tally {
	t, known := c.Census.tallies[key]
	if !known {
		t = &Tally{matches: matches, on: map[*Node]int64{}}
		for n := range c.Census.nodes {
			for _, p := range n.Pods {
				if matches(p) {
					t.on[n]++
				}
			}
		}
		if key != "" {
			if len(c.Census.tallies) >= maxTallies {
				clear(c.Census.tallies)
			}
			c.Census.tallies[key] = t
		}
	}
	if c.Instead == nil {
		return t
	}
	trial := &Tally{matches: matches, on: maps.Clone(t.on)}
	delete(trial.on, c.Instead.Old)
	for _, p := range c.Instead.Replacement.Pods {
		if matches(p) {
			trial.on[c.Instead.Replacement]++
		}
	}
	return trial
}

// Nodes calls visit with each node that runs such pods, and how many.
func (t *Tally) Nodes() iter.Seq2[*Node, int64] { return present(t.on) }

// On is how many such pods are on a node.
func (t *Tally) On(n *Node) int64 { return t.on[n] }

// present leaves out nodes that are known only by their pods.
func present(on map[*Node]int64) iter.Seq2[*Node, int64] {
	return func(yield func(*Node, int64) bool) {
		for n, count := range on {
			if n.Node != nil && !yield(n, count) {
				return
			}
		}
	}
}

// TermsTally counts the pods that every one of the terms speaks of.
func (c *Cluster) TermsTally(terms []AffinityTerm) *Tally {
	namespaces := c.Namespaces
	keys := make([]string, len(terms))
	for i := range terms {
		keys[i] = terms[i].key
	}
	return c.Tally(strings.Join(keys, "&"), func(p *Pod) bool {
		for i := range terms {
			if !terms[i].Matches(p.Pod, namespaces) {
				return false
			}
		}
		return true
	})
}

// termKey says which pods a term speaks of.
func termKey(t *AffinityTerm) string {
	namespaces := "-"
	if t.nsSelector != nil {
		namespaces = SelectorKey(t.nsSelector)
	}
	return fmt.Sprintf("%q %s %s", slices.Sorted(maps.Keys(t.namespaces)), namespaces, SelectorKey(t.selector))
}

// SelectorKey is a selector's text, which tells it from all others.
func SelectorKey(s interface {
	String() string
	Requirements() (labels.Requirements, bool)
}) string {
	if _, selectable := s.Requirements(); !selectable {
		return "nothing"
	}
	return "(" + s.String() + ")"
}
