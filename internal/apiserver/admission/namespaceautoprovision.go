package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

// namespaceAutoProvision creates the namespaces of new objects.
type namespaceAutoProvision struct {
	onCreate
	namespaces objects.Reader[*corev1.Namespace]
	create     func(ctx context.Context, name string) error
}

func newNamespaceAutoProvision(c *Config) admission.Interface {
	return namespaceAutoProvision{namespaces: objects.Of[*corev1.Namespace](c.Objects, objects.Namespaces), create: c.CreateNamespace}
}

func (p namespaceAutoProvision) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.IsDryRun() || a.GetNamespace() == "" || a.GetKind().Kind == "Namespace" {
		return nil
	}
	if _, exists := p.namespaces.Get("", a.GetNamespace()); exists {
		return nil
	}
	if err := p.create(ctx, a.GetNamespace()); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}
