package crd

import (
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsinternal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// acceptNames returns the accepted names of a definition and the condition
// NamesAccepted. It keeps an accepted name if another definition of the group
// has the wanted one.
func acceptNames(crd *apiextensionsv1.CustomResourceDefinition, others []*apiextensionsv1.CustomResourceDefinition) (apiextensionsv1.CustomResourceDefinitionNames, apiextensionsv1.CustomResourceDefinitionCondition) {
	resources, kinds := sets.New[string](), sets.New[string]()
	for _, other := range others {
		taken := other.Status.AcceptedNames
		resources.Insert(taken.Plural, taken.Singular)
		resources.Insert(taken.ShortNames...)
		kinds.Insert(taken.Kind, taken.ListKind)
	}
	condition := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue,
		Reason: "NoConflicts", Message: "no conflicts found",
	}
	refuse := func(reason string, err error) {
		condition.Status, condition.Reason, condition.Message = apiextensionsv1.ConditionFalse, reason, err.Error()
	}
	wanted, names := crd.Spec.Names, *crd.Status.AcceptedNames.DeepCopy()
	accept := func(reason, wanted string, name *string, taken sets.Set[string]) {
		if err := free(wanted, *name, taken); err != nil {
			refuse(reason, err)
			return
		}
		*name = wanted
	}
	accept("PluralConflict", wanted.Plural, &names.Plural, resources)
	accept("SingularConflict", wanted.Singular, &names.Singular, resources)
	if !slices.Equal(wanted.ShortNames, names.ShortNames) {
		var errs []error
		for _, short := range wanted.ShortNames {
			if !slices.Contains(names.ShortNames, short) {
				if err := free(short, "", resources); err != nil {
					errs = append(errs, err)
				}
			}
		}
		if err := utilerrors.NewAggregate(errs); err != nil {
			refuse("ShortNamesConflict", err)
		} else {
			names.ShortNames = wanted.ShortNames
		}
	}
	accept("KindConflict", wanted.Kind, &names.Kind, kinds)
	accept("ListKindConflict", wanted.ListKind, &names.ListKind, kinds)
	names.Categories = wanted.Categories
	return names, condition
}

func free(wanted, accepted string, taken sets.Set[string]) error {
	if wanted == accepted || !taken.Has(wanted) {
		return nil
	}
	return fmt.Errorf("%q is already in use", wanted)
}

// nonStructural returns the condition of a definition with schemas that are not
// structural; nil if all are.
func nonStructural(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionCondition {
	if !crd.Spec.PreserveUnknownFields && apihelpers.FindCRDCondition(crd, apiextensionsv1.NonStructuralSchema) == nil {
		return nil // validated already
	}
	var errs field.ErrorList
	if crd.Spec.PreserveUnknownFields {
		errs = append(errs, field.Invalid(field.NewPath("spec", "preserveUnknownFields"), true, "must be false"))
	}
	condition := &apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.NonStructuralSchema, Status: apiextensionsv1.ConditionTrue, Reason: "Violations",
	}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		props, err := internalSchema(v)
		if err != nil || props == nil {
			continue
		}
		s, err := structuralschema.NewStructural(props.OpenAPIV3Schema)
		if err != nil {
			condition.Status, condition.Reason = apiextensionsv1.ConditionUnknown, "StructuralError"
			condition.Message = fmt.Sprintf("failed to check validation schema for version %s: %v", v.Name, err)
			return condition
		}
		path := field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema")
		errs = append(errs, structuralschema.ValidateStructural(path, s)...)
	}
	if len(errs) == 0 {
		return nil
	}
	condition.Message = errs.ToAggregate().Error()
	return condition
}

// internalSchema returns a version's schema in the libraries' form; nil if it
// has none.
func internalSchema(v *apiextensionsv1.CustomResourceDefinitionVersion) (*apiextensionsinternal.CustomResourceValidation, error) {
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return nil, nil
	}
	out := &apiextensionsinternal.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(v.Schema.DeepCopy(), out, nil); err != nil {
		return nil, fmt.Errorf("schema of version %s: %w", v.Name, err)
	}
	return out, nil
}

// approval returns the condition of a definition in a protected group of the
// Kubernetes community (KEP-1111); nil for others.
func approval(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionCondition {
	if !apihelpers.IsProtectedCommunityGroup(crd.Spec.Group) {
		return nil
	}
	state, message := apihelpers.GetAPIApprovalState(crd.Annotations)
	condition := &apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.KubernetesAPIApprovalPolicyConformant, Status: apiextensionsv1.ConditionFalse, Message: message,
	}
	switch state {
	case apihelpers.APIApproved:
		condition.Status, condition.Reason = apiextensionsv1.ConditionTrue, "ApprovedAnnotation"
	case apihelpers.APIApprovalBypassed:
		condition.Reason = "UnapprovedAnnotation"
	case apihelpers.APIApprovalMissing:
		condition.Reason = "MissingAnnotation"
	default:
		condition.Reason = "InvalidAnnotation"
	}
	return condition
}
