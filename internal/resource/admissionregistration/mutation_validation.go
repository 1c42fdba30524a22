package admissionregistration

import (
	"strings"

	celgo "github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

func validateMutatingPolicy(c *compilers, o, old *admissionv1.MutatingAdmissionPolicy) field.ErrorList {
	p, s := field.NewPath("spec"), &o.Spec
	errs := validateFailurePolicy(p.Child("failurePolicy"), s.FailurePolicy)
	errs = append(errs, validateParamKind(p.Child("paramKind"), s.ParamKind)...)
	errs = append(errs, validateConstraints(p.Child("matchConstraints"), s.MatchConstraints)...)
	errs = append(errs, validateMutable(p.Child("matchConstraints"), s.MatchConstraints)...)
	v, err := newPolicy(c, s.ParamKind, s.Variables, mutatingExpressions(old))
	if err != nil {
		return append(errs, field.InternalError(p, err))
	}
	if old == nil || !sameConditions(s.ParamKind, old.Spec.ParamKind, s.MatchConditions, old.Spec.MatchConditions) {
		errs = append(errs, validateMatchConditions(p.Child("matchConditions"), s.MatchConditions, c.plain(), v.options, v.stored)...)
	}
	errs = append(errs, v.validateVariables(p.Child("variables"), s.Variables)...)
	if len(s.Mutations) == 0 {
		errs = append(errs, field.Required(p.Child("mutations"), "mutations must contain at least one item"))
	}
	for i := range s.Mutations {
		errs = append(errs, v.validateMutation(p.Child("mutations").Index(i), &s.Mutations[i])...)
	}
	if s.ReinvocationPolicy == "" {
		return append(errs, field.Required(p.Child("reinvocationPolicy"), ""))
	}
	return append(errs, validators.OneOf(p.Child("reinvocationPolicy"), s.ReinvocationPolicy, admissionv1.IfNeededReinvocationPolicy, admissionv1.NeverReinvocationPolicy)...)
}

// validateMutable refuses rules that match deletions, which cannot be mutated.
func validateMutable(p *field.Path, m *admissionv1.MatchResources) field.ErrorList {
	if m == nil {
		return nil
	}
	var errs field.ErrorList
	for i := range m.ResourceRules {
		for _, operation := range m.ResourceRules[i].Operations {
			errs = append(errs, validators.OneOf(p.Child("resourceRules", "operations"), operation,
				admissionv1.OperationAll, admissionv1.Connect, admissionv1.Create, admissionv1.Update)...)
		}
	}
	return errs
}

// validateMutation requires exactly the expression that belongs to the patch
// type.
func (v *policy) validateMutation(p *field.Path, m *admissionv1.Mutation) field.ErrorList {
	const apply, patch = admissionv1.PatchTypeApplyConfiguration, admissionv1.PatchTypeJSONPatch
	var applied, patched *string
	if m.ApplyConfiguration != nil {
		applied = &m.ApplyConfiguration.Expression
	}
	if m.JSONPatch != nil {
		patched = &m.JSONPatch.Expression
	}
	switch m.PatchType {
	case "":
		return field.ErrorList{field.Required(p.Child("patchType"), "")}
	case apply:
		errs := v.validatePatch(p.Child("applyConfiguration"), apply, applied, celgo.ObjectType("Object"))
		return append(errs, forbidOther(p, "jsonPatch", apply, patched)...)
	case patch:
		errs := v.validatePatch(p.Child("jsonPatch"), patch, patched, celgo.ListType(celgo.ObjectType("JSONPatch")))
		return append(errs, forbidOther(p, "applyConfiguration", patch, applied)...)
	default:
		return field.ErrorList{field.NotSupported(p.Child("patchType"), m.PatchType, []admissionv1.PatchType{apply, patch})}
	}
}

func (v *policy) validatePatch(p *field.Path, t admissionv1.PatchType, text *string, kind *celgo.Type) field.ErrorList {
	if text == nil {
		return field.ErrorList{field.Required(p, "must be specified when patchType is "+string(t))}
	}
	if strings.TrimSpace(*text) == "" {
		return field.ErrorList{field.Required(p.Child("expression"), "")}
	}
	options := v.options
	options.HasPatchTypes = true
	return v.compile(p.Child("expression"), *text, options, kind)
}

func forbidOther(p *field.Path, name string, t admissionv1.PatchType, text *string) field.ErrorList {
	if text == nil {
		return nil
	}
	return field.ErrorList{field.Invalid(p.Child(name), "{"+name+"}", "must not be specified when patchType is "+string(t))}
}

func mutatingExpressions(o *admissionv1.MutatingAdmissionPolicy) sets.Set[string] {
	stored := sets.New[string]()
	if o == nil {
		return stored
	}
	for _, c := range o.Spec.MatchConditions {
		stored.Insert(c.Expression)
	}
	for _, v := range o.Spec.Variables {
		stored.Insert(v.Expression)
	}
	for _, m := range o.Spec.Mutations {
		if m.ApplyConfiguration != nil {
			stored.Insert(m.ApplyConfiguration.Expression)
		}
		if m.JSONPatch != nil {
			stored.Insert(m.JSONPatch.Expression)
		}
	}
	return stored
}
