package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/resource"
)

// MountableSecretsAnnotation is the annotation that, if it is "true", limits
// the pods of a service account to the secrets that the account lists.
const MountableSecretsAnnotation = "kubernetes.io/enforce-mountable-secrets"

// ServiceAccounts is the resource serviceaccounts.
func ServiceAccounts() *resource.Resource {
	return resource.Define(resource.Definition[corev1.ServiceAccount, *corev1.ServiceAccount]{
		GroupVersion: corev1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "ServiceAccount", Plural: "serviceaccounts", ShortNames: []string{"sa"}},
		Strategy: resource.Strategy[*corev1.ServiceAccount]{
			PrepareForCreate: func(_ *resource.RequestContext, a *corev1.ServiceAccount) {
				a.Secrets = onlyNames(a.Secrets)
			},
			PrepareForUpdate: func(_ *resource.RequestContext, a, _ *corev1.ServiceAccount) {
				a.Secrets = onlyNames(a.Secrets)
			},
			Warnings:                  serviceAccountWarnings,
			ForbidUnconditionalUpdate: true,
		},
		DeleteStrategy: resource.DeleteStrategy[*corev1.ServiceAccount]{ReturnDeletedObject: true},
		Table:          resource.Table[*corev1.ServiceAccount]{Columns: []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()}},
		Subresources: []resource.SubresourceDefinition[corev1.ServiceAccount, *corev1.ServiceAccount]{{
			Name:   "token",
			Kind:   schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest"},
			Verbs:  []string{"create"},
			Action: resource.IssueToken,
		}},
	})
}

func serviceAccountWarnings(_ *resource.RequestContext, a, old *corev1.ServiceAccount) []string {
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

// onlyNames keeps only the names of references to secrets.
func onlyNames(secrets []corev1.ObjectReference) []corev1.ObjectReference {
	for i := range secrets {
		secrets[i] = corev1.ObjectReference{Name: secrets[i].Name}
	}
	return secrets
}
