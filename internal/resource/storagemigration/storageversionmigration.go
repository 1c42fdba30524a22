package storagemigration

import (
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

// StorageVersionMigrations is the resource storageversionmigrations.
func StorageVersionMigrations() *resource.Resource {
	return resource.Define(resource.Definition[storagemigrationv1.StorageVersionMigration, *storagemigrationv1.StorageVersionMigration]{
		GroupVersion: storagemigrationv1.SchemeGroupVersion,
		Kind:         "StorageVersionMigration",
		Plural:       "storageversionmigrations",
		Cluster:      true,
		CopyStatus:   func(m, from *storagemigrationv1.StorageVersionMigration) { m.Status = from.Status },
		Validate:     validateMigration,
		ValidateUpdate: func(_ *resource.Request, m, old *storagemigrationv1.StorageVersionMigration) field.ErrorList {
			return rule.Immutable(field.NewPath("spec", "resource"), m.Spec.Resource, old.Spec.Resource)
		},
		ValidateStatus: func(_ *resource.Request, m, _ *storagemigrationv1.StorageVersionMigration) field.ErrorList {
			return metav1validation.ValidateConditions(m.Status.Conditions, field.NewPath("status", "conditions"))
		},
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Resource", "string", storagemigrationv1.StorageVersionMigrationSpec{}.SwaggerDoc()["resource"]),
			resource.AgeColumn(),
		},
		Row: func(m *storagemigrationv1.StorageVersionMigration, now time.Time) []any {
			return []any{m.Name, m.Spec.Resource.String(), resource.Age(m.CreationTimestamp, now)}
		},
	})
}

func validateMigration(_ *resource.Request, m *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	p := field.NewPath("spec", "resource")
	var errs field.ErrorList
	if m.Spec.Resource.Resource == "" {
		errs = append(errs, field.Required(p.Child("resource"), "resource is required"))
	}
	if group := m.Spec.Resource.Group; group != "" {
		errs = append(errs, rule.Subdomain(p.Child("group"), group)...)
	}
	return errs
}
