package apiextensions

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
)

// recordStorage notes the version that objects are stored in from now on.
func recordStorage(c *apiextensionsv1.CustomResourceDefinition) {
	for _, v := range c.Spec.Versions {
		if v.Storage && !slices.Contains(c.Status.StoredVersions, v.Name) {
			c.Status.StoredVersions = append(c.Status.StoredVersions, v.Name)
		}
	}
}

func validate(_ *resource.Request, c *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	in, errs := internal(c)
	if errs != nil {
		return errs
	}
	return withoutMetadata(validation.ValidateCustomResourceDefinition(context.Background(), in))
}

func validateUpdate(_ *resource.Request, c, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	return compare(c, old, validation.ValidateCustomResourceDefinitionUpdate)
}

func validateStatus(_ *resource.Request, c, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	return compare(c, old, func(_ context.Context, c, old *apiextensions.CustomResourceDefinition) field.ErrorList {
		return validation.ValidateUpdateCustomResourceDefinitionStatus(context.Background(), c, old)
	})
}

func compare(
	c, old *apiextensionsv1.CustomResourceDefinition,
	check func(context.Context, *apiextensions.CustomResourceDefinition, *apiextensions.CustomResourceDefinition) field.ErrorList,
) field.ErrorList {
	in, errs := internal(c)
	if errs != nil {
		return errs
	}
	before, errs := internal(old)
	if errs != nil {
		return errs
	}
	return withoutMetadata(check(context.Background(), in, before))
}

// internal converts to the form that the rules of apiextensions take.
func internal(c *apiextensionsv1.CustomResourceDefinition) (*apiextensions.CustomResourceDefinition, field.ErrorList) {
	out := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(c.DeepCopy(), out, nil); err != nil {
		return nil, field.ErrorList{field.InternalError(field.NewPath("spec"), err)}
	}
	// The rules of selectable fields presume a schema that is structural; with
	// none, or another one, what is wrong with it is all there is to say.
	if common := out.Spec.Validation; common != nil && !structural(common.OpenAPIV3Schema) {
		out.Spec.SelectableFields = nil
	}
	for i := range out.Spec.Versions {
		v := &out.Spec.Versions[i]
		if v.Schema != nil && v.Schema.OpenAPIV3Schema != nil && !structural(v.Schema.OpenAPIV3Schema) {
			v.SelectableFields = nil
		}
	}
	return out, nil
}

// structural says whether fields can be looked up in a schema.
func structural(s *apiextensions.JSONSchemaProps) bool {
	if s == nil {
		return false
	}
	_, err := schema.NewStructural(s)
	return err == nil
}

// approvalAnnotation is where a definition in a group of the Kubernetes
// community says that it was approved.
const approvalAnnotation = "metadata.annotations[" + apiextensionsv1.KubeAPIApprovedAnnotation + "]"

// withoutMetadata leaves out what every resource's own check of the metadata
// reports, except for the name and the approval, whose rules are this kind's own.
func withoutMetadata(errs field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		return strings.HasPrefix(err.Field, "metadata.") && err.Field != approvalAnnotation && (err.Field != "metadata.name" || err.Type == field.ErrorTypeRequired)
	})
}
