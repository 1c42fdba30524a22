package admission

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

// runtimeClass sets the overhead of a pod's runtime class, and its node
// selector and tolerations.
type runtimeClass struct {
	onCreate
	classes fresh[*nodev1.RuntimeClass]
}

func newRuntimeClass(c *Config) admission.Interface {
	return runtimeClass{classes: freshOf[*nodev1.RuntimeClass](c, objects.RuntimeClasses)}
}

func (p runtimeClass) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, class, err := p.find(ctx, a)
	if err != nil || class == nil {
		return err
	}
	if class.Overhead != nil {
		if len(pod.Spec.Overhead) > 0 && !equality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead) {
			return refused(a, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
		}
		pod.Spec.Overhead = class.Overhead.PodFixed.DeepCopy()
	}
	if class.Scheduling == nil {
		return nil
	}
	for key, value := range class.Scheduling.NodeSelector {
		if have, ok := pod.Spec.NodeSelector[key]; ok && have != value {
			return refused(a, "conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, value, key, have)
		}
	}
	if len(class.Scheduling.NodeSelector) > 0 {
		merged := maps.Clone(class.Scheduling.NodeSelector)
		maps.Copy(merged, pod.Spec.NodeSelector)
		pod.Spec.NodeSelector = merged
	}
	pod.Spec.Tolerations = mergeTolerations(pod.Spec.Tolerations, class.Scheduling.Tolerations)
	return nil
}

// mergeTolerations returns the tolerations of both lists, except for those that
// another one contains: the shortest of several decides when a pod is evicted.
func mergeTolerations(first, second []corev1.Toleration) []corev1.Toleration {
	all := slices.Concat(first, second)
	var merged []corev1.Toleration
	for i, t := range all {
		contained := func(in corev1.Toleration) bool { return containsToleration(in, t) }
		containedLater := func(in corev1.Toleration) bool { return contained(in) && !equality.Semantic.DeepEqual(in, t) }
		if !slices.ContainsFunc(merged, contained) && !slices.ContainsFunc(all[i+1:], containedLater) {
			merged = append(merged, *t.DeepCopy())
		}
	}
	return merged
}

// containsToleration reports whether a pod that has the first toleration
// tolerates all that the second one tolerates, for at least as long.
func containsToleration(t, other corev1.Toleration) bool {
	switch {
	case equality.Semantic.DeepEqual(t, other):
		return true
	case t.Key != other.Key && (t.Key != "" || t.Operator != corev1.TolerationOpExists),
		t.Effect != "" && t.Effect != other.Effect,
		t.TolerationSeconds != nil && (other.TolerationSeconds == nil || *other.TolerationSeconds > *t.TolerationSeconds):
		return false
	}
	switch t.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		return (other.Operator == corev1.TolerationOpEqual || other.Operator == "") && other.Value == t.Value
	}
	return false
}

func (p runtimeClass) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, class, err := p.find(ctx, a)
	if err != nil || pod == nil {
		return err
	}
	switch {
	case (class == nil || class.Overhead == nil) && len(pod.Spec.Overhead) > 0:
		return refused(a, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
	case class != nil && class.Overhead != nil && !equality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead):
		return refused(a, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
	}
	return nil
}

func (p runtimeClass) find(ctx context.Context, a admission.Attributes) (*corev1.Pod, *nodev1.RuntimeClass, error) {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || !is(a, "", "pods", "") {
		return nil, nil, nil
	}
	if pod.Spec.RuntimeClassName == nil {
		return pod, nil, nil
	}
	name := *pod.Spec.RuntimeClassName
	class, ok := p.classes.find(ctx, "", name)
	if !ok {
		return nil, nil, refused(a, "pod rejected: RuntimeClass %q not found", name)
	}
	return pod, class, nil
}
