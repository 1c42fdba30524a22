package admission

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/defaultclass"
)

// defaultIngressClass sets the default class of ingresses without one.
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
	if class := defaultclass.Ingress(p.classes.All("")); class != nil {
		ingress.Spec.IngressClassName = new(class.Name) // the class is shared
	}
	return nil
}
