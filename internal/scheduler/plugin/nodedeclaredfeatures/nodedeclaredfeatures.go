// Package nodedeclaredfeatures keeps pods from nodes that do not declare the
// features of the kubelet that the pods need (KEP-5328).
package nodedeclaredfeatures

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	features "k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	kubernetes "github.com/coracle-io/coracle/internal/version"
)

// Name is the plugin's name in configurations.
const Name = "NodeDeclaredFeatures"

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.Factory{Name: Name, New: func(_ context.Context, _ any, h *framework.Handle) (framework.Plugin, error) {
		target, err := version.ParseSemantic(kubernetes.Kubernetes)
		if err != nil {
			return nil, fmt.Errorf("parse the version of the cluster: %w", err)
		}
		return newPlugin(features.DefaultFramework, target, h), nil
	}}
}

type plugin struct {
	features *features.Framework
	version  *version.Version
	required framework.StateKey[features.FeatureSet]
	skip     *framework.Status
}

func newPlugin(known *features.Framework, target *version.Version, h *framework.Handle) *plugin {
	return &plugin{
		features: known, version: target, required: framework.NewStateKey[features.FeatureSet](h),
		skip: framework.NewStatus(framework.Skip, Name),
	}
}

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

// infer returns the features that a pod needs on its node.
func (p *plugin) infer(pod *v1.Pod) (features.FeatureSet, error) {
	return p.features.InferForPodScheduling(&types.PodInfo{Spec: &pod.Spec}, p.version)
}

// PreFilter implements framework.PreFilterPlugin.
func (p *plugin) PreFilter(_ context.Context, state *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	required, err := p.infer(pod.Pod)
	if err != nil {
		return nil, framework.AsStatus(Name, err)
	}
	if required.IsEmpty() {
		return nil, p.skip
	}
	p.required.Put(state, required)
	return nil, nil
}

// Filter implements framework.FilterPlugin.
func (p *plugin) Filter(_ context.Context, state *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) *framework.Status {
	required, ok := p.required.Get(state)
	if !ok {
		return nil
	}
	result, err := p.features.MatchNode(required, n.Node)
	if err != nil {
		return framework.AsStatus(Name, err)
	}
	if !result.IsMatch {
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, Name,
			"node declared features check failed - unsatisfied requirements: "+strings.Join(result.UnsatisfiedRequirements, ", "))
	}
	return nil
}

// EventsToRegister implements framework.EnqueueExtensions: a node helps that
// declares everything now and did not before, and a pod that needs less.
func (p *plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return []framework.ClusterEventWithHint{
		framework.On(framework.Node, framework.Add|framework.UpdateNodeDeclaredFeature, func(pod *framework.PodInfo, old, node *v1.Node) framework.QueueingHint {
			if node == nil || old != nil && slices.Equal(old.Status.DeclaredFeatures, node.Status.DeclaredFeatures) {
				return framework.QueueSkip
			}
			return framework.QueueIf(p.matches(pod.Pod, node))
		}),
		framework.On(framework.TargetPod, framework.Update, func(_ *framework.PodInfo, old, pod *v1.Pod) framework.QueueingHint {
			if old == nil || pod == nil {
				return framework.Queue
			}
			before, errBefore := p.infer(old)
			now, errNow := p.infer(pod)
			return framework.QueueIf(errBefore != nil || errNow != nil || !before.Equal(now))
		}),
	}, nil
}

func (p *plugin) matches(pod *v1.Pod, node *v1.Node) bool {
	required, err := p.infer(pod)
	if err != nil {
		return true
	}
	result, err := p.features.MatchNode(required, node)
	return err != nil || result.IsMatch
}
