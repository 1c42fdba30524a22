// Package nodelabel filters and scores nodes by labels that they have or lack,
// in the same way for all pods. It serves the predicate CheckNodeLabelPresence
// and the priority NodeLabel of Policy v1.
package nodelabel

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "NodeLabel"

// Arguments name labels by their keys; values do not matter.
type Arguments struct {
	// PresentLabels and AbsentLabels are required of every node.
	PresentLabels []string `json:"presentLabels,omitempty"`
	AbsentLabels  []string `json:"absentLabels,omitempty"`
	// PresentLabelsPreference and AbsentLabelsPreference rank nodes.
	PresentLabelsPreference []string `json:"presentLabelsPreference,omitempty"`
	AbsentLabelsPreference  []string `json:"absentLabelsPreference,omitempty"`
}

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.WithArguments(Name, nil, validate, newPlugin)
}

func validate(path *field.Path, a *Arguments) field.ErrorList {
	errs := contradictions(path, "Labels", a.PresentLabels, a.AbsentLabels)
	return append(errs, contradictions(path, "LabelsPreference", a.PresentLabelsPreference, a.AbsentLabelsPreference)...)
}

// contradictions returns an error for each key of the field present+suffix that
// absent+suffix has too.
func contradictions(path *field.Path, suffix string, present, absent []string) (errs field.ErrorList) {
	for i, key := range present {
		if slices.Contains(absent, key) {
			errs = append(errs, field.Invalid(path.Child("present"+suffix).Index(i), key, "is in absent"+suffix+" too: no node can have and lack a label"))
		}
	}
	return errs
}

type plugin struct {
	Arguments
	mismatch *framework.Status
}

func newPlugin(_ context.Context, a *Arguments, _ *framework.Handle) (framework.Plugin, error) {
	return &plugin{
		Arguments: *a,
		mismatch:  framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, "node(s) didn't have the requested labels"),
	}, nil
}

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

// Filter implements framework.FilterPlugin.
func (p *plugin) Filter(_ context.Context, _ *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) *framework.Status {
	if !p.allows(n.Node) {
		return p.mismatch
	}
	return nil
}

func (p *plugin) allows(node *v1.Node) bool {
	return met(node, p.PresentLabels, true) == len(p.PresentLabels) && met(node, p.AbsentLabels, false) == len(p.AbsentLabels)
}

// met counts the keys that the node has, or lacks if present is false.
func met(node *v1.Node, keys []string, present bool) (count int) {
	for _, key := range keys {
		if _, has := node.Labels[key]; has == present {
			count++
		}
	}
	return count
}

// Score implements framework.ScorePlugin: the share of the preferences that the node meets.
func (p *plugin) Score(_ context.Context, _ *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) (int64, *framework.Status) {
	all := len(p.PresentLabelsPreference) + len(p.AbsentLabelsPreference)
	if all == 0 {
		return 0, nil
	}
	good := met(n.Node, p.PresentLabelsPreference, true) + met(n.Node, p.AbsentLabelsPreference, false)
	return framework.MaxNodeScore * int64(good) / int64(all), nil
}

// EventsToRegister implements framework.EnqueueExtensions. A node helps if the
// filter accepts it now and did not before.
func (p *plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return []framework.ClusterEventWithHint{
		framework.On(framework.Node, framework.Add|framework.UpdateNodeLabel, func(_ *framework.PodInfo, old, node *v1.Node) framework.QueueingHint {
			return framework.QueueIf(p.allows(node) && (old == nil || !p.allows(old)))
		}),
	}, nil
}
