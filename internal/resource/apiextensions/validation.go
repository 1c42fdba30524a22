package apiextensions

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/amount/celamount"
	"github.com/coracle-io/coracle/internal/resource"
)

// recordStorage adds the storage version to status.storedVersions.
func recordStorage(c *apiextensionsv1.CustomResourceDefinition) {
	stored := sets.New(c.Status.StoredVersions...)
	for i := range c.Spec.Versions {
		v := &c.Spec.Versions[i]
		if v.Storage && !stored.Has(v.Name) {
			stored.Insert(v.Name)
			c.Status.StoredVersions = append(c.Status.StoredVersions, v.Name)
		}
	}
}

func validate(_ *resource.RequestContext, c *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	in, errs := internal(c)
	if errs != nil {
		return errs
	}
	celamount.Bound()
	return withoutMetadata(validation.ValidateCustomResourceDefinition(context.Background(), in))
}

func validateUpdate(_ *resource.RequestContext, c, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	return compare(c, old, validation.ValidateCustomResourceDefinitionUpdate)
}

func validateStatus(_ *resource.RequestContext, c, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
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
	celamount.Bound()
	return withoutMetadata(check(context.Background(), in, before))
}

// internal converts to the internal type that the validation of apiextensions
// takes.
func internal(c *apiextensionsv1.CustomResourceDefinition) (*apiextensions.CustomResourceDefinition, field.ErrorList) {
	out := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(c.DeepCopy(), out, nil); err != nil {
		return nil, field.ErrorList{field.InternalError(field.NewPath("spec"), err)}
	}
	// The rules for selectable fields need a structural schema. Without one,
	// only the errors of the schema are reported.
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

// structural reports whether a schema is structural, so that fields can be
// looked up in it.
func structural(s *apiextensions.JSONSchemaProps) bool {
	if s == nil {
		return false
	}
	_, err := schema.NewStructural(s)
	return err == nil
}

// approvalAnnotation is the path of the annotation that approves definitions
// in API groups of the Kubernetes community.
const approvalAnnotation = "metadata.annotations[" + apiextensionsv1.KubeAPIApprovedAnnotation + "]"

// withoutMetadata removes the errors in the metadata that the checks for all
// resources report, too. Errors in the name and the approval stay, because
// their rules are this kind's.
func withoutMetadata(errs field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		return strings.HasPrefix(err.Field, "metadata.") && err.Field != approvalAnnotation && (err.Field != "metadata.name" || err.Type == field.ErrorTypeRequired)
	})
}
