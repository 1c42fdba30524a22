package devices

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
)

// DeviceClasses is the resource deviceclasses.
func DeviceClasses() *resource.Resource {
	return resource.Define(resource.Definition[resourcev1.DeviceClass, *resourcev1.DeviceClass]{
		GroupVersion: resourcev1.SchemeGroupVersion,
		Kind:         "DeviceClass",
		Plural:       "deviceclasses",
		Cluster:      true,
		Spec:         func(c *resourcev1.DeviceClass) any { return c.Spec },
		Validate: func(_ *resource.Request, c *resourcev1.DeviceClass) field.ErrorList {
			return validateDeviceClass(c, nil)
		},
		UpdateValidatesAlone: true,
		ValidateUpdate: func(_ *resource.Request, c, old *resourcev1.DeviceClass) field.ErrorList {
			return validateDeviceClass(c, old)
		},
		Columns: []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()},
	})
}

func validateDeviceClass(c, old *resourcev1.DeviceClass) field.ErrorList {
	stored := sets.New[string]()
	if old != nil {
		for _, selector := range old.Spec.Selectors {
			if selector.CEL != nil {
				stored.Insert(selector.CEL.Expression)
			}
		}
	}
	p := field.NewPath("spec")
	errs := validateSelectors(p.Child("selectors"), c.Spec.Selectors, stored)
	for i := range c.Spec.Config {
		errs = append(errs, validateConfiguration(p.Child("config").Index(i), &c.Spec.Config[i].DeviceConfiguration)...)
	}
	name := c.Spec.ExtendedResourceName
	if name != nil && len(validate.ExtendedResourceName(context.Background(), operation.Operation{}, nil, name, nil)) > 0 {
		errs = append(errs, field.Invalid(p.Child("extendedResourceName"), *name, "must be a valid extended resource name"))
	}
	return errs
}
