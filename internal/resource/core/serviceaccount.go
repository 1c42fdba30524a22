package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/resource"
)

// ServiceAccounts is the resource serviceaccounts.
func ServiceAccounts() *resource.Resource {
	return resource.Define(resource.Definition[corev1.ServiceAccount, *corev1.ServiceAccount]{
		GroupVersion: corev1.SchemeGroupVersion,
		Kind:         "ServiceAccount",
		Plural:       "serviceaccounts",
		ShortNames:   []string{"sa"},
		PrepareForCreate: func(_ *resource.Request, a *corev1.ServiceAccount) {
			a.Secrets = namesAlone(a.Secrets)
		},
		PrepareForUpdate: func(_ *resource.Request, a, _ *corev1.ServiceAccount) {
			a.Secrets = namesAlone(a.Secrets)
		},
		ForbidUnconditionalUpdate: true,
		Columns:                   []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()},
		Subresources: []resource.SubresourceDefinition[corev1.ServiceAccount, *corev1.ServiceAccount]{{
			Name:  "token",
			Kind:  schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest"},
			Verbs: []string{"create"},
		}},
	})
}

// namesAlone keeps of references to secrets only what says which.
func namesAlone(secrets []corev1.ObjectReference) []corev1.ObjectReference {
	for i := range secrets {
		secrets[i] = corev1.ObjectReference{Name: secrets[i].Name}
	}
	return secrets
}
