package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

// defaultIngressClass gives an ingress without a class the default one.
type defaultIngressClass struct {
	onCreate
	classes objects.Reader[*networkingv1.IngressClass]
}

func newDefaultIngressClass(c *Config) admission.Interface {
	return defaultIngressClass{classes: objects.Of[*networkingv1.IngressClass](c.Objects, objects.IngressClasses)}
}

func (p defaultIngressClass) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	ingress, ok := a.GetObject().(*networkingv1.Ingress)
	if !ok || !is(a, networkingv1.GroupName, "ingresses", "") || ingress.Spec.IngressClassName != nil {
		return nil
	}
	if _, legacy := ingress.Annotations["kubernetes.io/ingress.class"]; legacy {
		return nil
	}
	var found *networkingv1.IngressClass
	for c := range p.classes.All("") {
		if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" &&
			(found == nil || c.CreationTimestamp.After(found.CreationTimestamp.Time)) {
			found = c
		}
	}
	if found != nil {
		name := found.Name
		ingress.Spec.IngressClassName = &name
	}
	return nil
}

// denyServiceExternalIPs keeps users from adding external addresses.
type denyServiceExternalIPs struct{ onWrite }

func (denyServiceExternalIPs) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	service, ok := a.GetObject().(*corev1.Service)
	if !ok || !is(a, "", "services", "") {
		return nil
	}
	var had []string
	if old, ok := a.GetOldObject().(*corev1.Service); ok {
		had = old.Spec.ExternalIPs
	}
	for _, ip := range service.Spec.ExternalIPs {
		if !slices.Contains(had, ip) {
			return refused(a, "Use of external IPs is denied by admission control")
		}
	}
	return nil
}

// podTopologyLabels copies zone and region from the node to a pod bound to it.
type podTopologyLabels struct {
	onCreate
	nodes objects.Reader[*corev1.Node]
}

func newPodTopologyLabels(c *Config) admission.Interface {
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
