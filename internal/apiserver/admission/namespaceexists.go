package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

// namespaceExists is the older plugin that only checks that the namespace
// exists, also on deletion.
type namespaceExists struct {
	always
	namespaces objects.Reader[*corev1.Namespace]
	refresh    func(context.Context) error
}

func newNamespaceExists(c *Config) admission.Interface {
	return namespaceExists{namespaces: objects.Of[*corev1.Namespace](c.Objects, objects.Namespaces), refresh: c.Refresh}
}

func (p namespaceExists) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetNamespace() == "" || a.GetKind().Kind == "Namespace" {
		return nil
	}
	_, err := namespaceOf(ctx, a, p.namespaces, p.refresh)
	return err
}
