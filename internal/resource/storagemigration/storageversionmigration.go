package storagemigration

import (
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		Gate:         "StorageVersionMigrator",
		Cluster:      true,
		CopyStatus:   func(m, from *storagemigrationv1.StorageVersionMigration) { m.Status = from.Status },
		Validate:     validateMigration,
		ValidateUpdate: func(_ *resource.Request, m, old *storagemigrationv1.StorageVersionMigration) field.ErrorList {
			if m.Spec == old.Spec {
				return nil
			}
			return field.ErrorList{field.Invalid(field.NewPath("spec"), rule.Shown(m.Spec), "field is immutable")}
		},
		ValidateStatus:      validateMigrationStatus,
		StatusKeepsMetadata: true,
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
