package core

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Namespaces is the resource namespaces.
func Namespaces() *resource.Resource {
	return resource.Define(resource.Definition[corev1.Namespace, *corev1.Namespace]{
		GroupVersion: corev1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "Namespace", Plural: "namespaces", ShortNames: []string{"ns"}},
		Cluster:      true,
		IsNamespace:  true,
		Verbs:        []string{"create", "delete", "get", "list", "patch", "update", "watch"},
		Default:      defaultNamespace,
		Status: resource.Status[*corev1.Namespace]{
			Copy:     func(n, from *corev1.Namespace) { n.Status = from.Status },
			Validate: validateNamespaceStatus,
		},
		Strategy: resource.Strategy[*corev1.Namespace]{
			PrepareForCreate: prepareNamespace,
			PrepareForUpdate: func(_ *resource.RequestContext, n, old *corev1.Namespace) {
				n.Spec.Finalizers = old.Spec.Finalizers
			},
			Validate:     validateNamespace,
			ValidateName: validation.ValidateNamespaceName,
		},
		DeleteStrategy: resource.DeleteStrategy[*corev1.Namespace]{
			BeforeDelete:  beforeNamespaceDelete,
			HasFinalizers: func(n *corev1.Namespace) bool { return len(n.Spec.Finalizers) > 0 },
		},
		Table: resource.Table[*corev1.Namespace]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Status", "string", "The status of the namespace"),
				resource.AgeColumn(),
			},
			Row: func(n *corev1.Namespace, now time.Time) []any {
				return []any{n.Name, string(n.Status.Phase), resource.Age(n.CreationTimestamp, now)}
			},
		},
		FieldSelectors: resource.FieldSelectors[*corev1.Namespace]{
			SelectableFields: func(n *corev1.Namespace) fields.Set {
				return fields.Set{"name": n.Name, "status.phase": string(n.Status.Phase)}
			},
			Fields: []string{"name", "status.phase"},
		},
		Subresources: []resource.SubresourceDefinition[corev1.Namespace, *corev1.Namespace]{{
			Name:  "finalize",
			Verbs: []string{"update"},
			PrepareForUpdate: func(_ *resource.RequestContext, n, old *corev1.Namespace) {
				n.Status = old.Status
			},
			ValidateUpdate: func(_ *resource.RequestContext, n, _ *corev1.Namespace) field.ErrorList {
				return validateNamespaceFinalizers(n)
			},
		}},
	})
}

// defaultNamespace labels the namespace with its name, so that selectors can
// find it.
func defaultNamespace(n *corev1.Namespace) {
	if n.Name == "" {
		return
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelMetadataName] = n.Name
}

// prepareNamespace sets the finalizer that makes the namespace controller
// delete the namespace's content first.
func prepareNamespace(_ *resource.RequestContext, n *corev1.Namespace) {
	n.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	defaultNamespace(n) // only now a generated name is known
	if !slices.Contains(n.Spec.Finalizers, corev1.FinalizerKubernetes) {
		n.Spec.Finalizers = append(n.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

func validateNamespace(_ *resource.RequestContext, n *corev1.Namespace) field.ErrorList {
	return validateNamespaceFinalizers(n)
}

func validateNamespaceFinalizers(n *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "finalizers")
	for i, name := range n.Spec.Finalizers {
		errs = append(errs, validators.Problems(path.Index(i), string(name), utilvalidation.IsQualifiedName(string(name)))...)
		errs = append(errs, resource.ValidateFinalizerDomain(string(name), path.Index(i))...)
	}
	return errs
}

func validateNamespaceStatus(_ *resource.RequestContext, n, _ *corev1.Namespace) field.ErrorList {
	path := field.NewPath("status", "phase")
	deleted := !n.DeletionTimestamp.IsZero()
	switch {
	case !deleted && n.Status.Phase != corev1.NamespaceActive:
		return field.ErrorList{field.Invalid(path, n.Status.Phase,
			"may only be 'Active' if `deletionTimestamp` is empty")}
	case deleted && n.Status.Phase != corev1.NamespaceTerminating:
		return field.ErrorList{field.Invalid(path, n.Status.Phase,
			"may only be 'Terminating' if `deletionTimestamp` is not empty")}
	}
	return nil
}

// beforeNamespaceDelete marks a namespace as terminating. It is deleted once
// its content is deleted and the namespace controller has finalized it.
func beforeNamespaceDelete(n *corev1.Namespace, options *metav1.DeleteOptions, now time.Time) (d resource.Deletion, decided bool) {
	marked := n.DeletionTimestamp != nil
	if !marked {
		at := resource.Seconds(now)
		n.DeletionTimestamp = &at
		n.Status.Phase = corev1.NamespaceTerminating
		n.Finalizers = resource.DeletionFinalizers(n, options, metav1.DeletePropagationBackground)
	}
	switch waits := len(n.Spec.Finalizers) > 0 || len(n.Finalizers) > 0; {
	case !waits:
		return resource.Deletion{Action: resource.DeleteNow, Object: n}, true
	case marked:
		return resource.Deletion{Action: resource.LeaveAsIs}, true
	}
	return resource.Deletion{Action: resource.MarkObject, Object: n}, true
}
