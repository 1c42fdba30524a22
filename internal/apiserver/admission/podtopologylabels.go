package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/feature"
)

// podTopologyLabels copies the zone and region labels of a node to the pods
// that are bound to it.
type podTopologyLabels struct {
	onCreate
	nodes objects.Reader[*corev1.Node]
}

func newPodTopologyLabels(c *Config) admission.Interface {
	if !c.Features.Enabled(feature.PodTopologyLabelsAdmission) {
		return nil
	}
	return podTopologyLabels{nodes: objects.Of[*corev1.Node](c.Objects, objects.Nodes)}
}

func (p podTopologyLabels) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	switch o := a.GetObject().(type) {
	case *corev1.Binding:
		if o.Target.Kind == "" || o.Target.Kind == "Node" {
			o.Labels = p.copied(o.Target.Name, o.Labels)
		}
	case *corev1.Pod:
		if is(a, "", "pods", "") && o.Spec.NodeName != "" {
			o.Labels = p.copied(o.Spec.NodeName, o.Labels)
		}
	}
	return nil
}

func (p podTopologyLabels) copied(node string, labels map[string]string) map[string]string {
	n, ok := p.nodes.Get("", node)
	if !ok {
		return labels
	}
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		if value, ok := n.Labels[key]; ok {
			if labels == nil {
				labels = map[string]string{}
			}
			labels[key] = value
		}
	}
	return labels
}
