package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// limitPodHardAntiAffinityTopology refuses required anti-affinity over more than
// nodes, by which a pod could keep others away from whole zones.
type limitPodHardAntiAffinityTopology struct{ onWrite }

func (limitPodHardAntiAffinityTopology) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || !is(a, "", "pods", "") || pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	for _, term := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if term.TopologyKey != corev1.LabelHostname {
			return refused(a, "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v but only key %v is allowed", term.TopologyKey, corev1.LabelHostname)
		}
	}
	return nil
}
