package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"

	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/quota"
)

// defaultTolerationPeriod is how long a pod stays on a node that is not ready
// or unreachable, in seconds.
const defaultTolerationPeriod = 300

// defaultTolerationSeconds lets pods outlive short absences of their node.
type defaultTolerationSeconds struct{ onWrite }

func (defaultTolerationSeconds) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || !is(a, "", "pods", "") {
		return nil
	}
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		tolerated := slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		})
		if !tolerated {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: ptr.To[int64](defaultTolerationPeriod)})
		}
	}
	return nil
}

// taintNodesByCondition keeps pods off a new node until it is ready.
type taintNodesByCondition struct{ onCreate }

func (taintNodesByCondition) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	node, ok := a.GetObject().(*corev1.Node)
	if !ok || !is(a, "", "nodes", "") {
		return nil
	}
	taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
	return nil
}

// extendedResourceToleration lets pods that ask for an extended resource onto
// nodes that are tainted with its name.
type extendedResourceToleration struct{ onWrite }

func (extendedResourceToleration) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || !is(a, "", "pods", "") {
		return nil
	}
	resources := sets.New[string]()
	for c := range podutil.Containers(&pod.Spec) {
		for name := range c.Resources.Requests {
			if quota.Extended(name) {
				resources.Insert(string(name))
			}
		}
	}
	for _, name := range sets.List(resources) {
		t := corev1.Toleration{Key: name, Operator: corev1.TolerationOpExists}
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(have corev1.Toleration) bool { return have.MatchToleration(&t) }) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
		}
	}
	return nil
}
