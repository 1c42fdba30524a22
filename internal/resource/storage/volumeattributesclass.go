package storage

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
)

// VolumeAttributesClasses is the resource volumeattributesclasses.
func VolumeAttributesClasses() *resource.Resource {
	return resource.Define(resource.Definition[storagev1.VolumeAttributesClass, *storagev1.VolumeAttributesClass]{
		GroupVersion:   storagev1.SchemeGroupVersion,
		Kind:           "VolumeAttributesClass",
		Plural:         "volumeattributesclasses",
		ShortNames:     []string{"vac"},
		Cluster:        true,
		Validate:       validateVolumeAttributesClass,
		ValidateUpdate: validateVolumeAttributesClassUpdate,
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("DriverName", "string", storagev1.VolumeAttributesClass{}.SwaggerDoc()["driverName"]),
			resource.AgeColumn(),
		},
		Row: func(c *storagev1.VolumeAttributesClass, now time.Time) []any {
			return []any{c.Name, c.DriverName, resource.Age(c.CreationTimestamp, now)}
		},
	})
}
