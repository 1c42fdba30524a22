package admissionregistration

import (
	"strings"

	celgo "github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/rule"
)

func validateMutatingPolicy(c *compilers, o, old *admissionv1.MutatingAdmissionPolicy) field.ErrorList {
	p, s := field.NewPath("spec"), &o.Spec
	errs := validateFailurePolicy(p.Child("failurePolicy"), s.FailurePolicy)
	errs = append(errs, validateParamKind(p.Child("paramKind"), s.ParamKind)...)
	errs = append(errs, validateConstraints(p.Child("matchConstraints"), s.MatchConstraints)...)
	v, err := newPolicy(c, s.ParamKind, s.Variables, mutatingExpressions(old))
	if err != nil {
		return append(errs, field.InternalError(p, err))
	}
	errs = append(errs, validateMatchConditions(p.Child("matchConditions"), s.MatchConditions, c.plain(), v.options, v.stored)...)
	errs = append(errs, v.validateVariables(p.Child("variables"), s.Variables)...)
	if s.ReinvocationPolicy == "" {
		errs = append(errs, field.Required(p.Child("reinvocationPolicy"), ""))
	} else {
		errs = append(errs, rule.OneOf(p.Child("reinvocationPolicy"), s.ReinvocationPolicy, admissionv1.IfNeededReinvocationPolicy, admissionv1.NeverReinvocationPolicy)...)
	}
	if len(s.Mutations) == 0 {
		errs = append(errs, field.Required(p.Child("mutations"), "mutations must contain at least one item"))
	}
	for i := range s.Mutations {
		errs = append(errs, v.validateMutation(p.Child("mutations").Index(i), &s.Mutations[i])...)
	}
	return errs
}

func (v *policy) validateMutation(p *field.Path, m *admissionv1.Mutation) field.ErrorList {
	const apply, patch = admissionv1.PatchTypeApplyConfiguration, admissionv1.PatchTypeJSONPatch
	options := v.options
	options.HasPatchTypes = true
	check := func(name string, present bool, text string, kind *celgo.Type) field.ErrorList {
		at := p.Child(name)
		switch {
		case !present:
			return field.ErrorList{field.Required(at, "must be specified when patchType is "+string(m.PatchType))}
		case strings.TrimSpace(text) == "":
			return field.ErrorList{field.Required(at.Child("expression"), "expression is not specified")}
		default:
			return v.compile(at.Child("expression"), text, options, kind)
		}
	}
	switch m.PatchType {
	case "":
		return field.ErrorList{field.Required(p.Child("patchType"), "")}
	case apply:
		text := ""
		if m.ApplyConfiguration != nil {
			text = m.ApplyConfiguration.Expression
		}
		return check("applyConfiguration", m.ApplyConfiguration != nil, text, celgo.ObjectType("Object"))
	case patch:
		text := ""
		if m.JSONPatch != nil {
			text = m.JSONPatch.Expression
		}
		return check("jsonPatch", m.JSONPatch != nil, text, celgo.ListType(celgo.ObjectType("JSONPatch")))
	default:
		return field.ErrorList{field.NotSupported(p.Child("patchType"), m.PatchType, []admissionv1.PatchType{apply, patch})}
	}
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
