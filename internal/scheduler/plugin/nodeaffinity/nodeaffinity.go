// Package nodeaffinity matches a pod's nodeSelector and node affinity.
package nodeaffinity

import (
	"context"
	"maps"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "NodeAffinity"

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.WithArguments(Name, nil, validate, newPlugin)
}

func validate(path *field.Path, a *kubescheduler.NodeAffinityArgs) field.ErrorList {
	_, _, errs := parse(path.Child("addedAffinity"), a.AddedAffinity)
	return errs
}

// parse reads the terms of the added affinity; each is nil if there are none.
func parse(path *field.Path, added *v1.NodeAffinity) (required *nodeaffinity.NodeSelector, preferred *nodeaffinity.PreferredSchedulingTerms, errs field.ErrorList) {
	if added == nil {
		return nil, nil, nil
	}
	var err error
	if terms := added.RequiredDuringSchedulingIgnoredDuringExecution; terms != nil {
		if required, err = nodeaffinity.NewNodeSelector(terms); err != nil {
			errs = append(errs, field.Invalid(path.Child("requiredDuringSchedulingIgnoredDuringExecution"), "", err.Error()))
		}
	}
	if terms := added.PreferredDuringSchedulingIgnoredDuringExecution; len(terms) > 0 {
		if preferred, err = nodeaffinity.NewPreferredSchedulingTerms(terms); err != nil {
			errs = append(errs, field.Invalid(path.Child("preferredDuringSchedulingIgnoredDuringExecution"), "", err.Error()))
		}
	}
	return required, preferred, errs
}

type plugin struct {
	required           framework.StateKey[nodeaffinity.RequiredNodeAffinity]
	preferred          framework.StateKey[*nodeaffinity.PreferredSchedulingTerms]
	mismatch, enforced *framework.Status
	addedRequired      *nodeaffinity.NodeSelector             // nil: none
	addedPreferred     *nodeaffinity.PreferredSchedulingTerms // nil: none
}

func newPlugin(_ context.Context, a *kubescheduler.NodeAffinityArgs, h *framework.Handle) (framework.Plugin, error) {
	required, preferred, errs := parse(nil, a.AddedAffinity)
	return &plugin{
		required:      framework.NewStateKey[nodeaffinity.RequiredNodeAffinity](h),
		preferred:     framework.NewStateKey[*nodeaffinity.PreferredSchedulingTerms](h),
		mismatch:      framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, "node(s) didn't match Pod's node affinity/selector"),
		enforced:      framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, "node(s) didn't match scheduler-enforced node affinity"),
		addedRequired: required, addedPreferred: preferred,
	}, errs.ToAggregate()
}

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

// PreFilter implements framework.PreFilterPlugin.
func (p *plugin) PreFilter(_ context.Context, state *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	spec := &pod.Pod.Spec
	if p.addedRequired == nil && len(spec.NodeSelector) == 0 && (spec.Affinity == nil || spec.Affinity.NodeAffinity == nil ||
		spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil) {
		return nil, framework.NewStatus(framework.Skip, Name)
	}
	p.required.Put(state, nodeaffinity.GetRequiredNodeAffinity(pod.Pod))
	names := namedNodes(spec.Affinity)
	if names == nil {
		return nil, nil
	}
	if len(names) == 0 {
		return nil, framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, "pod affinity terms conflict")
	}
	return &framework.PreFilterResult{NodeNames: names}, nil
}

// namedNodes returns the nodes that the required terms name, as in pods of
// DaemonSets; nil if a term names none.
func namedNodes(affinity *v1.Affinity) map[string]bool {
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	var all map[string]bool
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		var names map[string]bool
		for _, r := range term.MatchFields {
			if r.Key != metav1.ObjectNameField || r.Operator != v1.NodeSelectorOpIn {
				continue
			}
			those := make(map[string]bool, len(r.Values))
			for _, name := range r.Values {
				those[name] = names == nil || names[name]
			}
			maps.DeleteFunc(those, func(_ string, in bool) bool { return !in })
			names = those
		}
		if names == nil {
			return nil
		}
		if all == nil {
			all = map[string]bool{}
		}
		maps.Copy(all, names)
	}
	return all
}

// Filter implements framework.FilterPlugin.
func (p *plugin) Filter(_ context.Context, state *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) *framework.Status {
	if p.addedRequired != nil && !p.addedRequired.Match(n.Node) {
		return p.enforced
	}
	required, _ := p.required.Get(state)
	if ok, err := required.Match(n.Node); err != nil || !ok {
		return p.mismatch
	}
	return nil
}

// PreScore implements framework.PreScorePlugin.
func (p *plugin) PreScore(_ context.Context, state *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot, _ []*framework.NodeInfo) *framework.Status {
	affinity := pod.Pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || len(affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) == 0 {
		if p.addedPreferred == nil {
			return framework.NewStatus(framework.Skip, Name)
		}
		return nil
	}
	terms, err := nodeaffinity.NewPreferredSchedulingTerms(affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	if err != nil {
		return framework.AsStatus(Name, err)
	}
	p.preferred.Put(state, terms)
	return nil
}

// Score implements framework.ScorePlugin: the sum of the weights of the
// preferred terms that the node matches.
func (p *plugin) Score(_ context.Context, state *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) (int64, *framework.Status) {
	var sum int64
	if terms, ok := p.preferred.Get(state); ok {
		sum = terms.Score(n.Node)
	}
	if p.addedPreferred != nil {
		sum += p.addedPreferred.Score(n.Node)
	}
	return sum, nil
}

// NormalizeScore implements framework.ScoreNormalizer.
func (*plugin) NormalizeScore(_ context.Context, _ *framework.CycleState, _ *framework.PodInfo, scores []int64) *framework.Status {
	framework.DefaultNormalizeScore(scores, false)
	return nil
}

// SignPod implements framework.SignPlugin.
func (*plugin) SignPod(pod *framework.PodInfo) (fragment string, ok bool) {
	wanted := v1.PodSpec{NodeSelector: pod.Pod.Spec.NodeSelector}
	if a := pod.Pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		wanted.Affinity = &v1.Affinity{NodeAffinity: a.NodeAffinity}
	}
	if len(wanted.NodeSelector) == 0 && wanted.Affinity == nil {
		return "", true
	}
	text, err := wanted.Marshal() // maps in the order of their keys
	return string(text), err == nil
}

// EventsToRegister implements framework.EnqueueExtensions: a node helps that
// matches now and did not before.
func (p *plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return framework.Indexed(framework.IndexBySignature(p), []framework.ClusterEventWithHint{
		framework.On(framework.Node, framework.Add|framework.UpdateNodeLabel, func(pod *framework.PodInfo, old, node *v1.Node) framework.QueueingHint {
			return framework.QueueIf(p.allows(pod.Pod, node) && (old == nil || !p.allows(pod.Pod, old)))
		}),
		{Event: framework.ClusterEvent{Resource: framework.TargetPod, Action: framework.Update}}, // a gated pod's affinity may be tightened
	}), nil
}

func (p *plugin) allows(pod *v1.Pod, node *v1.Node) bool {
	if p.addedRequired != nil && !p.addedRequired.Match(node) {
		return false
	}
	required := nodeaffinity.GetRequiredNodeAffinity(pod)
	ok, err := required.Match(node)
	return ok && err == nil
}
