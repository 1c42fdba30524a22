package storagemigration

import (
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// StorageVersionMigrations is the resource storageversionmigrations.
func StorageVersionMigrations() *resource.Resource {
	return resource.Define(resource.Definition[storagemigrationv1.StorageVersionMigration, *storagemigrationv1.StorageVersionMigration]{
		GroupVersion: storagemigrationv1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "StorageVersionMigration", Plural: "storageversionmigrations"},
		Cluster:      true,
		Gate:         feature.StorageVersionMigrator,
		Status: resource.Status[*storagemigrationv1.StorageVersionMigration]{
			Copy:          func(m, from *storagemigrationv1.StorageVersionMigration) { m.Status = from.Status },
			Validate:      validateMigrationStatus,
			KeepsMetadata: true,
		},
		Strategy: resource.Strategy[*storagemigrationv1.StorageVersionMigration]{
			ForbidUnconditionalUpdate: true,
			Validate:                  validateMigration,
			ValidateUpdate: func(_ *resource.RequestContext, m, old *storagemigrationv1.StorageVersionMigration) field.ErrorList {
				if m.Spec == old.Spec {
					return nil
				}
				return field.ErrorList{field.Invalid(field.NewPath("spec"), validators.Shown(m.Spec), "field is immutable")}
			},
		},
		Table: resource.Table[*storagemigrationv1.StorageVersionMigration]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Resource", "string", storagemigrationv1.StorageVersionMigrationSpec{}.SwaggerDoc()["resource"]),
				resource.AgeColumn(),
			},
			Row: func(m *storagemigrationv1.StorageVersionMigration, now time.Time) []any {
				return []any{m.Name, m.Spec.Resource.String(), resource.Age(m.CreationTimestamp, now)}
			},
		},
	})
}
