package storage

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
)

// VolumeAttributesClasses is the resource volumeattributesclasses.
func VolumeAttributesClasses() *resource.Resource {
	return resource.Define(resource.Definition[storagev1.VolumeAttributesClass, *storagev1.VolumeAttributesClass]{
		GroupVersion: storagev1.SchemeGroupVersion,
		Names: resource.Names{
			Kind:       "VolumeAttributesClass",
			Plural:     "volumeattributesclasses",
			ShortNames: []string{"vac"},
		},
		Cluster:              true,
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*storagev1.VolumeAttributesClass]{
			Validate:       validateVolumeAttributesClass,
			ValidateUpdate: validateVolumeAttributesClassUpdate,
		},
		Table: resource.Table[*storagev1.VolumeAttributesClass]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("DriverName", "string", storagev1.VolumeAttributesClass{}.SwaggerDoc()["driverName"]),
				resource.AgeColumn(),
			},
			Row: func(c *storagev1.VolumeAttributesClass, now time.Time) []any {
				return []any{c.Name, c.DriverName, resource.Age(c.CreationTimestamp, now)}
			},
		},
	})
}

func validateVolumeAttributesClass(_ *resource.RequestContext, c *storagev1.VolumeAttributesClass) field.ErrorList {
	errs := validateProvisioner(field.NewPath("driverName"), c.DriverName)
	return append(errs, validateParameters(field.NewPath("parameters"), c.Parameters, true)...)
}

func validateVolumeAttributesClassUpdate(r *resource.RequestContext, c, old *storagev1.VolumeAttributesClass) field.ErrorList {
	var errs field.ErrorList
	if c.DriverName != old.DriverName {
		errs = append(errs, field.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden."))
	}
	if !equality.Semantic.DeepEqual(c.Parameters, old.Parameters) {
		errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
	}
	errs = append(errs, resource.ValidateNamedMetadata(c, false, validation.NameIsDNSSubdomain)...)
	return append(errs, validateVolumeAttributesClass(r, c)...)
}
