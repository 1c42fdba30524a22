package core

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
)

// ConfigMaps is the resource configmaps.
func ConfigMaps() *resource.Resource {
	return resource.Define(resource.Definition[corev1.ConfigMap, *corev1.ConfigMap]{
		GroupVersion: corev1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "ConfigMap", Plural: "configmaps", ShortNames: []string{"cm"}},
		Strategy: resource.Strategy[*corev1.ConfigMap]{
			Validate:       validateConfigMap,
			ValidateUpdate: validateConfigMapUpdate,
		},
		Table: resource.Table[*corev1.ConfigMap]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Data", "string", corev1.ConfigMap{}.SwaggerDoc()["data"]),
				resource.AgeColumn(),
			},
			Row: func(c *corev1.ConfigMap, now time.Time) []any {
				return []any{c.Name, int64(len(c.Data) + len(c.BinaryData)), resource.Age(c.CreationTimestamp, now)}
			},
		},
	})
}

func validateConfigMap(_ *resource.RequestContext, c *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	data, binary, size := field.NewPath("data"), field.NewPath("binaryData"), 0
	for key, value := range c.Data {
		for _, msg := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(data.Key(key), key, msg))
		}
		if _, both := c.BinaryData[key]; both {
			errs = append(errs, field.Invalid(data.Key(key), key, fmt.Sprintf("duplicate of key present in %s", binary)))
		}
		size += len(value)
	}
	for key, value := range c.BinaryData {
		for _, msg := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(binary.Key(key), key, msg))
		}
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	return errs
}

func validateConfigMapUpdate(_ *resource.RequestContext, c, old *corev1.ConfigMap) field.ErrorList {
	if !ptr.Deref(old.Immutable, false) {
		return nil
	}
	var errs field.ErrorList
	if !ptr.Deref(c.Immutable, false) {
		errs = append(errs, immutableWhenSet("immutable"))
	}
	if !resource.Equal(c.Data, old.Data) {
		errs = append(errs, immutableWhenSet("data"))
	}
	if !resource.Equal(c.BinaryData, old.BinaryData) {
		errs = append(errs, immutableWhenSet("binaryData"))
	}
	return errs
}

func immutableWhenSet(name string) *field.Error {
	return field.Forbidden(field.NewPath(name), "field is immutable when `immutable` is set")
}
