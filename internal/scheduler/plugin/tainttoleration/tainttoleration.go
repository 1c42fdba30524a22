// Package tainttoleration keeps pods off nodes with taints that they do not
// tolerate, and away from those with PreferNoSchedule taints.
package tainttoleration

import (
	"context"
	"encoding/binary"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "TaintToleration"

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.Factory{Name: Name, New: func(_ context.Context, _ any, h *framework.Handle) (framework.Plugin, error) {
		return &plugin{
			tainted: framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, "node(s) had untolerated taint(s)"),
			numeric: h.Features.Enabled(feature.TaintTolerationComparisonOperators),
		}, nil
	}}
}

type plugin struct {
	tainted *framework.Status
	numeric bool // the operators Lt and Gt count
}

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

// Filter implements framework.FilterPlugin.
func (p *plugin) Filter(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, n *framework.NodeInfo) *framework.Status {
	if len(n.Node.Spec.Taints) > 0 && !p.tolerated(pod.Pod, n.Node) {
		return p.tainted
	}
	return nil
}

func (p *plugin) tolerated(pod *v1.Pod, node *v1.Node) bool {
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect != v1.TaintEffectPreferNoSchedule && !podquery.Tolerates(pod.Spec.Tolerations, taint, p.numeric) {
			return false
		}
	}
	return true
}

// Score implements framework.ScorePlugin: the number of PreferNoSchedule
// taints that the pod does not tolerate.
func (p *plugin) Score(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, n *framework.NodeInfo) (int64, *framework.Status) {
	var count int64
	for i := range n.Node.Spec.Taints {
		taint := &n.Node.Spec.Taints[i]
		if taint.Effect == v1.TaintEffectPreferNoSchedule && !podquery.Tolerates(pod.Pod.Spec.Tolerations, taint, p.numeric) {
			count++
		}
	}
	return count, nil
}

// NormalizeScore implements framework.ScoreNormalizer: fewer taints are better.
func (*plugin) NormalizeScore(_ context.Context, _ *framework.CycleState, _ *framework.PodInfo, scores []int64) *framework.Status {
	framework.DefaultNormalizeScore(scores, true)
	return nil
}

// SignPod implements framework.SignPlugin.
func (*plugin) SignPod(pod *framework.PodInfo) (fragment string, ok bool) {
	text := make([]byte, 0, 128)
	for i := range pod.Pod.Spec.Tolerations {
		t := &pod.Pod.Spec.Tolerations[i]
		for _, part := range [...]string{t.Key, string(t.Operator), t.Value, string(t.Effect)} {
			text = append(binary.AppendUvarint(text, uint64(len(part))), part...)
		}
	}
	return string(text), true
}

// EventsToRegister implements framework.EnqueueExtensions.
func (p *plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return framework.Indexed(framework.IndexBySignature(p), []framework.ClusterEventWithHint{
		framework.On(framework.Node, framework.Add|framework.UpdateNodeTaint, func(pod *framework.PodInfo, old, node *v1.Node) framework.QueueingHint {
			return framework.QueueIf(p.tolerated(pod.Pod, node) && (old == nil || !p.tolerated(pod.Pod, old)))
		}),
		{Event: framework.ClusterEvent{Resource: framework.TargetPod, Action: framework.UpdatePodToleration}},
	}), nil
}
