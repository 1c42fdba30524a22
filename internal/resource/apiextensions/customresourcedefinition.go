package apiextensions

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
)

// CustomResourceDefinitions is the resource customresourcedefinitions.
func CustomResourceDefinitions() *resource.Resource {
	return resource.Define(resource.Definition[apiextensionsv1.CustomResourceDefinition, *apiextensionsv1.CustomResourceDefinition]{
		GroupVersion: apiextensionsv1.SchemeGroupVersion,
		Names: resource.Names{
			Kind:       "CustomResourceDefinition",
			Plural:     "customresourcedefinitions",
			ShortNames: []string{"crd", "crds"},
			Categories: []string{"api-extensions"},
		},
		Cluster: true,
		Storage: resource.Storage{StoredAsJSON: true, Path: "apiextensions.k8s.io/customresourcedefinitions"},
		Default: apiextensionsv1.SetObjectDefaults_CustomResourceDefinition,
		Spec:    func(c *apiextensionsv1.CustomResourceDefinition) any { return c.Spec },
		Status: resource.Status[*apiextensionsv1.CustomResourceDefinition]{
			Copy: func(c, from *apiextensionsv1.CustomResourceDefinition) { c.Status = from.Status },
			Prepare: func(r *resource.RequestContext, c, old *apiextensionsv1.CustomResourceDefinition) {
				feature.Drop(r.Features, statusFields(), &c.Status, &old.Status)
			},
			Validate: validateStatus,
		},
		UnqualifiedFinalizers: true,
		UpdateValidatesAlone:  true,
		Strategy: resource.Strategy[*apiextensionsv1.CustomResourceDefinition]{
			ForbidUnconditionalUpdate: true,
			PrepareForCreate:          func(_ *resource.RequestContext, c *apiextensionsv1.CustomResourceDefinition) { recordStorage(c) },
			PrepareForUpdate:          func(_ *resource.RequestContext, c, _ *apiextensionsv1.CustomResourceDefinition) { recordStorage(c) },
			ValidateName:              func(string, bool) []string { return nil },
			Validate:                  validate,
			ValidateUpdate:            validateUpdate,
			Warnings:                  warnings,
		},
		Table: resource.Table[*apiextensionsv1.CustomResourceDefinition]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Scope", "string", "Cluster/Namespaced"),
				resource.Column("Versions", "string", "Served versions"),
				resource.CreatedAtColumn(),
				resource.WideColumn("Group", "string", "API group"),
				resource.WideColumn("Kind", "string", "CustomResource kind"),
				resource.WideColumn("ShortNames", "string", "Short names"),
				resource.WideColumn("Established", "boolean", "Established status"),
			},
			Row: row,
		},
		DeleteStrategy: resource.DeleteStrategy[*apiextensionsv1.CustomResourceDefinition]{BeforeDelete: beforeDelete},
	})
}

// row returns the cells of a definition. Its versions are those that are served, in
// the order of their names.
func row(c *apiextensionsv1.CustomResourceDefinition, _ time.Time) []any {
	var versions []string
	for i := range c.Spec.Versions {
		v := &c.Spec.Versions[i]
		switch {
		case v.Served && v.Storage:
			versions = append(versions, v.Name+"(storage)")
		case v.Served:
			versions = append(versions, v.Name)
		}
	}
	slices.Sort(versions)
	return []any{
		c.Name, string(c.Spec.Scope), strings.Join(versions, ","), c.CreationTimestamp.UTC().Format(time.RFC3339), c.Spec.Group,
		c.Spec.Names.Kind, strings.Join(c.Spec.Names.ShortNames, ","), apihelpers.IsCRDConditionTrue(c, apiextensionsv1.Established),
	}
}

// beforeDelete marks a definition as terminating. It is deleted once all its
// objects are.
func beforeDelete(c *apiextensionsv1.CustomResourceDefinition, _ *metav1.DeleteOptions, now time.Time) (d resource.Deletion, decided bool) {
	if c.DeletionTimestamp != nil {
		return d, false
	}
	resource.MarkAsDeleting(c, now)
	if !apihelpers.CRDHasFinalizer(c, apiextensionsv1.CustomResourceCleanupFinalizer) {
		c.Finalizers = append(c.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer)
	}
	apihelpers.SetCRDCondition(c, apiextensionsv1.CustomResourceDefinitionCondition{
		Type:               apiextensionsv1.Terminating,
		Status:             apiextensionsv1.ConditionTrue,
		Reason:             "InstanceDeletionPending",
		Message:            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
		LastTransitionTime: resource.Seconds(now),
	})
	return resource.Deletion{Action: resource.MarkObject, Object: c}, true
}

// statusFields are the fields of a status that belong to features which can be
// disabled: observedGeneration.
func statusFields() []feature.Field[apiextensionsv1.CustomResourceDefinitionStatus] {
	return []feature.Field[apiextensionsv1.CustomResourceDefinitionStatus]{{
		Gate: feature.CRDObservedGenerationTracking,
		Used: func(s *apiextensionsv1.CustomResourceDefinitionStatus) bool {
			return s.ObservedGeneration != 0 || slices.ContainsFunc(s.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return c.ObservedGeneration != 0
			})
		},
		Clear: func(s *apiextensionsv1.CustomResourceDefinitionStatus) {
			s.ObservedGeneration = 0
			for i := range s.Conditions {
				s.Conditions[i].ObservedGeneration = 0
			}
		},
	}}
}
