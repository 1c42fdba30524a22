package dynamicresources

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
)

// DeviceClasses is the resource deviceclasses.
func DeviceClasses() *resource.Resource {
	return resource.Define(resource.Definition[resourcev1.DeviceClass, *resourcev1.DeviceClass]{
		GroupVersion:         resourcev1.SchemeGroupVersion,
		Names:                resource.Names{Kind: "DeviceClass", Plural: "deviceclasses"},
		Cluster:              true,
		Spec:                 func(c *resourcev1.DeviceClass) any { return c.Spec },
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*resourcev1.DeviceClass]{
			Validate: func(r *resource.RequestContext, c *resourcev1.DeviceClass) field.ErrorList {
				return validateDeviceClass(c, nil, r.Features)
			},
			ValidateUpdate: func(r *resource.RequestContext, c, old *resourcev1.DeviceClass) field.ErrorList {
				errs := resource.ValidateNamedMetadata(c, false, validation.NameIsDNSSubdomain)
				return append(errs, validateDeviceClass(c, old, r.Features)...)
			},
		},
		Table: resource.Table[*resourcev1.DeviceClass]{Columns: []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()}},
	})
}

// validateDeviceClass checks a class. Selectors and configurations are checked
// as new ones unless their list is unchanged.
func validateDeviceClass(c, old *resourcev1.DeviceClass, features *feature.Set) field.ErrorList {
	same := func(now, before any) bool { return old != nil && equality.Semantic.DeepEqual(now, before) }
	if old == nil {
		old = &resourcev1.DeviceClass{}
	}
	p := field.NewPath("spec")
	errs := newCompiler(features).selectors(p.Child("selectors"), c.Spec.Selectors, same(c.Spec.Selectors, old.Spec.Selectors))
	stored := same(c.Spec.Config, old.Spec.Config)
	errs = append(errs, validateItems(p.Child("config"), c.Spec.Config, resourcev1.DeviceConfigMaxSize,
		func(p *field.Path, c *resourcev1.DeviceClassConfiguration) field.ErrorList {
			return validateConfiguration(p, &c.DeviceConfiguration, stored)
		})...)
	name := c.Spec.ExtendedResourceName
	if name != nil && len(validate.ExtendedResourceName(context.Background(), operation.Operation{}, nil, name, nil)) > 0 {
		errs = append(errs, field.Invalid(p.Child("extendedResourceName"), *name, "must be a valid extended resource name"))
	}
	return errs
}
