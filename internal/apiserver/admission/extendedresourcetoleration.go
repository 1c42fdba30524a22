package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/quota"
)

// extendedResourceToleration adds tolerations for the taints of the extended
// resources that a pod requests.
type extendedResourceToleration struct{ onWrite }

func (extendedResourceToleration) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || !is(a, "", "pods", "") {
		return nil
	}
	resources := sets.New[string]()
	for c := range podquery.Containers(&pod.Spec) {
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
