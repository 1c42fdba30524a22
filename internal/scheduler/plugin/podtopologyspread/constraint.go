// Package podtopologyspread spreads pods over the values of topology keys
// (KEP-895, with matchLabelKeys, minDomains and the node inclusion policies).
package podtopologyspread

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "PodTopologySpread"

// Plugin is the filter and score PodTopologySpread.
type Plugin struct{}

// Name implements framework.Filter and framework.Score.
func (Plugin) Name() string { return Name }

type constraint struct {
	v1.TopologySpreadConstraint
	matches framework.Matcher
}

type labelMatcher struct{ labels.Selector }

func (m labelMatcher) Matches(l map[string]string) bool { return m.Selector.Matches(labels.Set(l)) }

// constraintsOf returns the pod's constraints of one kind. A pod without any
// gets the cluster's defaults for ranking: 3 by host and 5 by zone over the
// pods of its services and controllers.
func constraintsOf(pod *framework.Pod, cluster *framework.Cluster, action v1.UnsatisfiableConstraintAction) []constraint {
	if len(pod.Pod.Spec.TopologySpreadConstraints) == 0 {
		if action == v1.DoNotSchedule || cluster.Selectors == nil {
			return nil
		}
		var out []constraint
		for _, m := range cluster.Selectors(pod.Pod) {
			out = append(out,
				constraint{v1.TopologySpreadConstraint{MaxSkew: 3, TopologyKey: v1.LabelHostname}, m},
				constraint{v1.TopologySpreadConstraint{MaxSkew: 5, TopologyKey: v1.LabelTopologyZone}, m})
		}
		return out
	}
	var out []constraint
	for _, c := range pod.Pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable != action {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		if err != nil {
			selector = labels.Nothing()
		}
		out = append(out, constraint{c, labelMatcher{selector}})
	}
	return out
}

// counted reports whether the pods of a node count for the constraint.
func (c *constraint) counted(pod *framework.Pod, affinity *nodeaffinity.RequiredNodeAffinity, n *framework.Node) bool {
	if c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == v1.NodeInclusionPolicyHonor {
		if ok, err := affinity.Match(n.Node); err != nil || !ok {
			return false
		}
	}
	if c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == v1.NodeInclusionPolicyHonor {
		for i := range n.Node.Spec.Taints {
			if taint := &n.Node.Spec.Taints[i]; taint.Effect != v1.TaintEffectPreferNoSchedule && !podutil.Tolerates(pod.Pod.Spec.Tolerations, taint, false) {
				return false
			}
		}
	}
	return true
}

// tally counts the pods that the constraint speaks of, node by node.
func (c *constraint) tally(cluster *framework.Cluster, namespace string) *framework.Tally {
	key := ""
	if selector, ok := c.matches.(interface {
		String() string
		Requirements() (labels.Requirements, bool)
	}); ok {
		key = "spread " + namespace + " " + framework.SelectorKey(selector)
	}
	return cluster.Tally(key, func(p *framework.Pod) bool {
		return p.Pod.Namespace == namespace && p.Pod.DeletionTimestamp == nil && c.matches.Matches(p.Pod.Labels)
	})
}

// countsEverywhere reports whether the pods of every node that has the
// constraint's key count, whatever else the node is.
func (c *constraint) countsEverywhere(pod *v1.Pod, constraints []constraint) bool {
	affinity := pod.Spec.Affinity
	return len(constraints) == 1 && len(pod.Spec.NodeSelector) == 0 && (affinity == nil || affinity.NodeAffinity == nil) &&
		(c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy == v1.NodeInclusionPolicyIgnore)
}

func hasAllKeys(n *framework.Node, constraints []constraint) bool {
	for i := range constraints {
		if _, ok := n.Node.Labels[constraints[i].TopologyKey]; !ok {
			return false
		}
	}
	return true
}
