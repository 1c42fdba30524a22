package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/resource"
)

// MountableSecretsAnnotation is an annotation which, if it is true, keeps a service account's pods
// from all secrets but those that the account lists.
const MountableSecretsAnnotation = "kubernetes.io/enforce-mountable-secrets"

// ServiceAccounts is the resource serviceaccounts.
func ServiceAccounts() *resource.Resource {
	return resource.Define(resource.Definition[corev1.ServiceAccount, *corev1.ServiceAccount]{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "ServiceAccount",
		Plural:              "serviceaccounts",
		ReturnDeletedObject: true,
		ShortNames:          []string{"sa"},
		PrepareForCreate: func(_ *resource.Request, a *corev1.ServiceAccount) {
			a.Secrets = namesAlone(a.Secrets)
		},
		PrepareForUpdate: func(_ *resource.Request, a, _ *corev1.ServiceAccount) {
			a.Secrets = namesAlone(a.Secrets)
		},
		Warnings:                  serviceAccountWarnings,
		ForbidUnconditionalUpdate: true,
		Columns:                   []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()},
		Subresources: []resource.SubresourceDefinition[corev1.ServiceAccount, *corev1.ServiceAccount]{{
			Name:   "token",
			Kind:   schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest"},
			Verbs:  []string{"create"},
			Action: resource.IssueToken,
		}},
	})
}

func serviceAccountWarnings(_ *resource.Request, a, old *corev1.ServiceAccount) []string {
	if _, ok := a.Annotations[MountableSecretsAnnotation]; !ok {
		return nil
	}
	if old != nil {
		if _, known := old.Annotations[MountableSecretsAnnotation]; known {
			return nil
		}
	}
	return []string{"metadata.annotations[" + MountableSecretsAnnotation + "]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}
}

// namesAlone keeps of references to secrets only what says which.
func namesAlone(secrets []corev1.ObjectReference) []corev1.ObjectReference {
	for i := range secrets {
		secrets[i] = corev1.ObjectReference{Name: secrets[i].Name}
	}
	return secrets
}
