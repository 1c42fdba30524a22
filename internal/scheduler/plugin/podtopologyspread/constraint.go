// Package podtopologyspread spreads pods over the values of topology keys
// (KEP-895, with matchLabelKeys, minDomains and the node inclusion policies).
package podtopologyspread

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/podselector"
)

// Name is the plugin's name in configurations.
const Name = "PodTopologySpread"

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.WithArguments(Name, setDefaults, validate, newPlugin)
}

type plugin struct {
	filterKey       framework.StateKey[*preFilterState]
	scoreKey        framework.StateKey[*preScoreState]
	missing, skewed *framework.Status
	defaults        []v1.TopologySpreadConstraint
	system          bool // defaults are the system's
	numeric         bool // the toleration operators Lt and Gt count
	// defaultSelector is of the services and controllers of a pod; nil: there are no defaults.
	defaultSelector func(*v1.Pod) labels.Selector
}

func newPlugin(_ context.Context, a *kubescheduler.PodTopologySpreadArgs, h *framework.Handle) (framework.Plugin, error) {
	p := &plugin{
		filterKey: framework.NewStateKey[*preFilterState](h), scoreKey: framework.NewStateKey[*preScoreState](h),
		missing:  framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, "node(s) didn't match pod topology spread constraints (missing required label)"),
		skewed:   framework.NewStatus(framework.Unschedulable, Name, "node(s) didn't match pod topology spread constraints"),
		numeric:  h.Features.Enabled(feature.TaintTolerationComparisonOperators),
		defaults: a.DefaultConstraints, system: a.DefaultingType == kubescheduler.SystemDefaulting,
	}
	if p.system {
		p.defaults = systemDefaults()
	}
	if h.Informers != nil && len(p.defaults) > 0 {
		p.defaultSelector = podselector.New(h.Informers)
	}
	return p, nil
}

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

type constraint struct {
	v1.TopologySpreadConstraint
	selector labels.Selector
	numeric  bool // the toleration operators Lt and Gt count
}

// constraintsOf returns the pod's constraints of one kind. A pod without any
// gets the defaults, over the pods of its services and controllers.
func (p *plugin) constraintsOf(pod *framework.PodInfo, action v1.UnsatisfiableConstraintAction) (out []constraint) {
	if all := pod.Pod.Spec.TopologySpreadConstraints; len(all) > 0 {
		for i := range all {
			if all[i].WhenUnsatisfiable == action {
				out = append(out, constraint{all[i], withLabelKeys(podquery.Selector(all[i].LabelSelector), &all[i], pod.Pod.Labels), p.numeric})
			}
		}
		return out
	}
	isOfKind := func(c v1.TopologySpreadConstraint) bool { return c.WhenUnsatisfiable == action }
	if p.defaultSelector == nil || !slices.ContainsFunc(p.defaults, isOfKind) {
		return nil
	}
	selector := p.defaultSelector(pod.Pod)
	if selector == nil {
		return nil
	}
	for i := range p.defaults {
		if c := &p.defaults[i]; c.WhenUnsatisfiable == action {
			out = append(out, constraint{*c, withLabelKeys(selector, c, pod.Pod.Labels), p.numeric})
		}
	}
	return out
}

// withLabelKeys adds the pod's values of the constraint's matchLabelKeys. The
// API server has done that when it created the pod, but not for pods older
// than that, nor for defaults.
func withLabelKeys(selector labels.Selector, c *v1.TopologySpreadConstraint, podLabels map[string]string) labels.Selector {
	requirements, selectable := selector.Requirements()
	if !selectable {
		return selector
	}
	for _, key := range c.MatchLabelKeys {
		value, ok := podLabels[key]
		if !ok || slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return r.Key() == key }) {
			continue
		}
		if r, err := labels.NewRequirement(key, selection.In, []string{value}); err == nil {
			selector = selector.Add(*r)
		}
	}
	return selector
}

// selects reports whether the constraint counts a pod of a namespace.
func (c *constraint) selects(p *v1.Pod, namespace string) bool {
	return p.Namespace == namespace && p.DeletionTimestamp == nil && c.selector.Matches(labels.Set(p.Labels))
}

// counted reports whether the pods of a node count for the constraint.
func (c *constraint) counted(pod *framework.PodInfo, affinity *nodeaffinity.RequiredNodeAffinity, n *framework.NodeInfo) bool {
	if c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == v1.NodeInclusionPolicyHonor {
		if ok, err := affinity.Match(n.Node); err != nil || !ok {
			return false
		}
	}
	if c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == v1.NodeInclusionPolicyHonor {
		for i := range n.Node.Spec.Taints {
			if taint := &n.Node.Spec.Taints[i]; taint.Effect != v1.TaintEffectPreferNoSchedule && !podquery.Tolerates(pod.Pod.Spec.Tolerations, taint, c.numeric) {
				return false
			}
		}
	}
	return true
}

// count counts the pods that the constraint selects, by node.
func (c *constraint) count(snapshot *framework.Snapshot, namespace string) *framework.PodCount {
	return snapshot.CountPods("spread "+namespace+" "+framework.SelectorKey(c.selector), namespace, func(p *framework.PodInfo) bool { return c.selects(p.Pod, namespace) })
}

// countsEverywhere reports whether the pods of every node that has the
// constraint's key count, whatever else the node is.
func (c *constraint) countsEverywhere(pod *v1.Pod, constraints []constraint) bool {
	affinity := pod.Spec.Affinity
	return len(constraints) == 1 && len(pod.Spec.NodeSelector) == 0 && (affinity == nil || affinity.NodeAffinity == nil) &&
		(c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy == v1.NodeInclusionPolicyIgnore)
}

func hasAllKeys(n *framework.NodeInfo, constraints []constraint) bool {
	for i := range constraints {
		if _, ok := n.Node.Labels[constraints[i].TopologyKey]; !ok {
			return false
		}
	}
	return true
}
