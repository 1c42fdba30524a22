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
	namespaces fresh[*corev1.Namespace]
}

func newNamespaceExists(c *Config) admission.Interface {
	return namespaceExists{namespaces: freshOf[*corev1.Namespace](c, objects.Namespaces)}
}

func (p namespaceExists) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetNamespace() == "" || a.GetKind().Kind == "Namespace" {
		return nil
	}
	_, err := namespaceOf(ctx, a, p.namespaces)
	return err
}
