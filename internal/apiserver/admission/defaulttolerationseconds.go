package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"
)

// defaultTolerationPeriod is the default of how long a pod stays on a node that
// is not ready or unreachable, in seconds.
const defaultTolerationPeriod = 300

// defaultTolerationSeconds adds tolerations for a short time on nodes that are
// not ready or unreachable.
type defaultTolerationSeconds struct {
	onWrite
	notReady, unreachable int64
}

func newDefaultTolerationSeconds(c *Config) admission.Interface {
	return defaultTolerationSeconds{
		notReady:    ptr.Deref(c.NotReadySeconds, defaultTolerationPeriod),
		unreachable: ptr.Deref(c.UnreachableSeconds, defaultTolerationPeriod),
	}
}

func (p defaultTolerationSeconds) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || !is(a, "", "pods", "") {
		return nil
	}
	for _, taint := range []struct {
		key     string
		seconds int64
	}{{corev1.TaintNodeNotReady, p.notReady}, {corev1.TaintNodeUnreachable, p.unreachable}} {
		tolerated := slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == taint.key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		})
		if !tolerated {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key: taint.key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: ptr.To(taint.seconds)})
		}
	}
	return nil
}
