// Package framework holds what the scheduler and its plugins share: the
// cluster as the scheduler sees it (Node, Pod), and the two roles a plugin
// can have.
//
//	prepare once a pod        then once a node
//	Filter(pod, cluster) ──►  func(node) *Failure    may the pod run there?
//	Score(pod, cluster)  ──►  func(node) int64       how well?  normalized to 0..100, times weight
//
// Everything here is read under the lock of the scheduler's cache and must
// not be kept beyond one decision.
package framework

import (
	"maps"

	v1 "k8s.io/api/core/v1"
)

// MaxScore is the best score a plugin gives to a node.
const MaxScore = 100

// Failure says why a node cannot take a pod, in the words that users see.
type Failure struct {
	Plugin  string
	Reasons []string
	// Unresolvable means that evicting pods from the node would not help.
	Unresolvable bool
}

// NodeFilter decides about one node; nil means that the pod fits.
type NodeFilter func(*Node) *Failure

// Filter is a plugin that rules nodes out.
type Filter interface {
	Name() string
	// Filter prepares the decision for a pod; nil means that the plugin has no
	// say about this pod.
	Filter(pod *Pod, cluster *Cluster) NodeFilter
}

// NodeScore rates one node in any range.
type NodeScore func(*Node) int64

// Score is a plugin that ranks nodes.
type Score interface {
	Name() string
	// Score prepares the rating of a pod on the nodes that passed all
	// filters; nil means that the plugin has no say about this pod. normalize
	// brings the ratings into 0..MaxScore in place; nil where they are there.
	Score(pod *Pod, cluster *Cluster, feasible []*Node) (rate NodeScore, normalize func([]int64))
}

// Cluster is all nodes and what the plugins need to know across them.
type Cluster struct {
	Nodes []*Node
	// ByName finds a node.
	ByName map[string]*Node
	// Namespaces has the labels of each namespace.
	Namespaces map[string]map[string]string
	// Selectors returns the label selectors of the services and controllers
	// that select the pod (default topology spreading).
	Selectors func(pod *v1.Pod) []Matcher
	// Images counts on how many nodes each image is, and its size in bytes.
	Images map[string]Image
	// Census counts the pods on the nodes.
	Census *Census
	// Instead is a node that a trial puts in the place of another, with other
	// pods; nil in the cluster as it is.
	Instead *Instead
	domains map[string]map[string]int
}

// Instead is a replacement of a node. The labels are the same.
type Instead struct{ Old, Replacement *Node }

// Domains returns the values that the nodes have of a topology key, with how
// many nodes have each.
func (c *Cluster) Domains(key string) map[string]int {
	values, ok := c.domains[key]
	if !ok {
		values = map[string]int{}
		for _, n := range c.Nodes {
			if value, has := n.Node.Labels[key]; has {
				values[value]++
			}
		}
		if c.domains == nil {
			c.domains = map[string]map[string]int{}
		}
		c.domains[key] = values
	}
	return values
}

// ForgetDomains must be called when nodes come, go or change their labels.
func (c *Cluster) ForgetDomains() { c.domains = nil }

// Matcher is the part of a label selector that plugins use.
type Matcher interface {
	Matches(labels map[string]string) bool
}

// Image is an image that nodes hold.
type Image struct {
	Size  int64
	Nodes int
}

// NormalizeByMax scales ratings so that the largest becomes MaxScore;
// reverse turns the order around.
func NormalizeByMax(ratings []int64, reverse bool) {
	var highest int64
	for _, r := range ratings {
		highest = max(highest, r)
	}
	for i, r := range ratings {
		if highest > 0 {
			r = r * MaxScore / highest
		}
		if reverse {
			r = MaxScore - r
		}
		ratings[i] = r
	}
}

// Clone copies the nodes so that a plan (preemption) can take pods off them.
func (n *Node) Clone() *Node {
	c := *n
	c.Pods = maps.Clone(n.Pods)
	c.Requested.Scalar = maps.Clone(n.Requested.Scalar)
	c.ports = maps.Clone(n.ports)
	return &c
}
