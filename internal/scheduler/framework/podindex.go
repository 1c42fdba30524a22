package framework

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// TermRole says whether an affinity term is required or preferred, and whether
// it is for affinity or anti-affinity.
type TermRole uint8

// The roles of a pod's terms.
const (
	RequiredAffinity TermRole = iota
	RequiredAntiAffinity
	PreferredAffinity
	PreferredAntiAffinity
)

// podIndex counts the pods on nodes, so that a decision need not visit them
// all. The snapshot keeps it current as pods are added and removed, in trials
// too:
//
//	affinity terms of existing pods  ──► how many such pods are on each node
//	selectors that plugins asked for ──► how many matching pods are on each node
type podIndex struct {
	terms map[termKey]*ExistingTerm
	// byNamespace are the terms by the namespaces that they name. Terms that
	// select namespaces by their labels are below anyNamespace.
	byNamespace map[string]map[*ExistingTerm]bool
	counts      map[string]*PodCount
	// countsIn are the counts by the namespaces whose pods they count, or below
	// anyNamespace.
	countsIn map[string]map[*PodCount]bool
	uses     uint64 // of counts
}

const anyNamespace = "*"

func newPodIndex() *podIndex {
	return &podIndex{
		terms: map[termKey]*ExistingTerm{}, byNamespace: map[string]map[*ExistingTerm]bool{},
		counts: map[string]*PodCount{}, countsIn: map[string]map[*PodCount]bool{},
	}
}

type termKey struct {
	role     TermRole
	weight   int64
	topology string
	term     string
}

// ExistingTerm is an affinity term of existing pods, with the number of those
// pods on each node.
type ExistingTerm struct {
	Role   TermRole
	Weight int64 // of preferred terms
	Term   AffinityTerm
	podCounts
}

// PodCount is the number of pods on each node that a selector matches.
type PodCount struct {
	podCounts
	matches    func(*PodInfo) bool
	namespaces []string // keys of podIndex.countsIn
	kept       bool     // the snapshot keeps it current
	lastUse    uint64
}

// maxPodCounts bounds the selectors whose matches are counted continuously,
// and maxTopologies the labels by which nodes are divided.
const (
	maxPodCounts  = 256
	maxTopologies = 64
)

// add notes that a pod was put on a node (by is 1) or taken off it (-1).
func (x *podIndex) add(n *NodeInfo, p *PodInfo, by int64) {
	p.eachTerm(func(role TermRole, weight int64, term *AffinityTerm) {
		key := termKey{role, weight, term.TopologyKey, term.key}
		entry, ok := x.terms[key]
		if !ok {
			entry = &ExistingTerm{Role: role, Weight: weight, Term: *term, podCounts: podCounts{on: map[*NodeInfo]int64{}}}
			x.terms[key] = entry
			for _, ns := range term.namedNamespaces() {
				if x.byNamespace[ns] == nil {
					x.byNamespace[ns] = map[*ExistingTerm]bool{}
				}
				x.byNamespace[ns][entry] = true
			}
		}
		if entry.add(n, by); len(entry.on) == 0 {
			delete(x.terms, key)
			for _, ns := range term.namedNamespaces() {
				if delete(x.byNamespace[ns], entry); len(x.byNamespace[ns]) == 0 {
					delete(x.byNamespace, ns)
				}
			}
		}
	})
	for _, ns := range [...]string{p.Pod.Namespace, anyNamespace} {
		for c := range x.countsIn[ns] {
			c.count(n, p, by)
		}
	}
}

// keep has a count kept current.
func (x *podIndex) keep(key string, c *PodCount) {
	c.kept = true
	x.counts[key] = c
	for _, ns := range c.namespaces {
		if x.countsIn[ns] == nil {
			x.countsIn[ns] = map[*PodCount]bool{}
		}
		x.countsIn[ns][c] = true
	}
}

// drop undoes keep.
func (x *podIndex) drop(key string) {
	c := x.counts[key]
	delete(x.counts, key)
	for _, ns := range c.namespaces {
		if delete(x.countsIn[ns], c); len(x.countsIn[ns]) == 0 {
			delete(x.countsIn, ns)
		}
	}
}

// namedNamespaces are the keys of a term in podIndex.byNamespace, and of a count of the
// pods that it selects in podIndex.countsIn.
func (t *AffinityTerm) namedNamespaces() []string {
	if t.nsSelector != nil {
		return []string{anyNamespace}
	}
	return slices.Collect(maps.Keys(t.namespaces))
}

func (c *PodCount) count(n *NodeInfo, p *PodInfo, by int64) {
	if c.matches(p) {
		c.add(n, by)
	}
}

// Changed updates the count after a trial added a pod to a node (by is 1) or removed
// it (-1). It does nothing for a count that the snapshot itself keeps current.
func (c *PodCount) Changed(n *NodeInfo, p *PodInfo, by int64) {
	if !c.kept {
		c.count(n, p, by)
	}
}

// move takes the pods of a node from one domain to another.
func (x *podIndex) move(n *NodeInfo, t *Topology, from, to int) {
	for _, e := range x.terms {
		e.move(n, t, from, to)
	}
	for _, c := range x.counts {
		c.move(n, t, from, to)
	}
}

// Trim drops the least recently used of the counts and topologies that plugins asked
// for, if there are too many. It is called between cycles.
func (s *Snapshot) Trim() {
	if x := s.index; len(x.counts) > maxPodCounts {
		uses := make([]uint64, 0, len(x.counts))
		for _, c := range x.counts {
			uses = append(uses, c.lastUse)
		}
		slices.Sort(uses)
		first := uses[len(uses)-maxPodCounts*3/4]
		for key, c := range x.counts {
			if c.lastUse < first {
				x.drop(key)
			}
		}
	}
	if len(s.topologies) > maxTopologies {
		clear(s.topologies)
		for _, e := range s.index.terms {
			e.domains = nil
		}
		for _, c := range s.index.counts {
			c.domains = nil
		}
	}
}

// forgetCounts drops the counts of selectors, after the labels of namespaces changed.
func (x *podIndex) forgetCounts() {
	clear(x.counts)
	clear(x.countsIn)
}

func (p *PodInfo) eachTerm(visit func(TermRole, int64, *AffinityTerm)) {
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

// Nodes returns the nodes with pods that have the term, and how many. The
// order is not defined.
func (t *ExistingTerm) Nodes() iter.Seq2[*NodeInfo, int64] { return withObject(t.on) }

// Nodes returns the nodes with such pods, and how many. The order is not defined.
func (c *PodCount) Nodes() iter.Seq2[*NodeInfo, int64] { return withObject(c.on) }

// withObject leaves out nodes that are known only by their pods.
func withObject(on map[*NodeInfo]int64) iter.Seq2[*NodeInfo, int64] {
	return func(yield func(*NodeInfo, int64) bool) {
		for n, count := range on {
			if n.Node != nil && !yield(n, count) {
				return
			}
		}
	}
}

// ExistingTerms returns the affinity terms of the pods on nodes that may select
// pods of a namespace, in no order. Terms of other namespaces are not visited.
func (s *Snapshot) ExistingTerms(namespace string) iter.Seq[*ExistingTerm] {
	return func(yield func(*ExistingTerm) bool) {
		for _, ns := range [...]string{namespace, anyNamespace} {
			for term := range s.index.byNamespace[ns] {
				if !yield(term) {
					return
				}
			}
		}
	}
}

// CountPods counts the pods that matches selects, by node. key identifies the
// function: the count of a key is kept current for later calls, and in trials.
// The function is asked about pods of the namespace. Beyond a number of keys, a
// count is not kept: it must be told of changes in trials. The result is valid
// until the cycle ends.
func (s *Snapshot) CountPods(key, namespace string, matches func(*PodInfo) bool) *PodCount {
	return s.countPods(key, func() []string { return []string{namespace} }, func(p *PodInfo) bool { return p.Pod.Namespace == namespace && matches(p) })
}

// countPods is CountPods for several namespaces, which are keys of podIndex.countsIn.
// matches must know them too.
func (s *Snapshot) countPods(key string, namespaces func() []string, matches func(*PodInfo) bool) *PodCount {
	s.index.uses++
	if c, known := s.index.counts[key]; known {
		c.lastUse = s.index.uses
		return c
	}
	c := &PodCount{podCounts: podCounts{on: map[*NodeInfo]int64{}}, matches: matches, namespaces: namespaces(), lastUse: s.index.uses}
	for _, n := range s.known {
		for _, p := range n.Pods {
			if matches(p) {
				c.on[n]++
			}
		}
	}
	if len(s.index.counts) < 2*maxPodCounts {
		s.index.keep(key, c)
	}
	return c
}

// ExistingTerm returns the entry of a required anti-affinity term of a pod on a
// node, or nil.
func (s *Snapshot) ExistingTerm(role TermRole, weight int64, term *AffinityTerm) *ExistingTerm {
	return s.index.terms[termKey{role, weight, term.TopologyKey, term.key}]
}

// CountPodsOfTerms counts the pods that every one of the terms selects. There is at
// least one.
func (s *Snapshot) CountPodsOfTerms(terms []AffinityTerm) *PodCount {
	keys := make([]string, len(terms))
	for i := range terms {
		keys[i] = terms[i].key
	}
	return s.countPods(strings.Join(keys, "&"), terms[0].namedNamespaces, func(p *PodInfo) bool { return s.MatchesAll(terms, p) })
}

// MatchesAll reports whether every one of the terms selects the pod.
func (s *Snapshot) MatchesAll(terms []AffinityTerm, p *PodInfo) bool {
	for i := range terms {
		if !terms[i].Matches(p.Pod, s.namespaces) {
			return false
		}
	}
	return true
}

// keyOf identifies the pods that a term selects.
func keyOf(t *AffinityTerm) string {
	namespaces := "-"
	if t.nsSelector != nil {
		namespaces = SelectorKey(t.nsSelector)
	}
	return fmt.Sprintf("%q %s %s", slices.Sorted(maps.Keys(t.namespaces)), namespaces, SelectorKey(t.selector))
}

// SelectorKey is the text of a selector, which distinguishes it from all others.
func SelectorKey(s labels.Selector) string {
	if _, selectable := s.Requirements(); !selectable {
		return "nothing"
	}
	return "(" + s.String() + ")"
}
