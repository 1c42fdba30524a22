package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

func validateBinding(p *field.Path, policyName string, params *admissionv1.ParamRef, match *admissionv1.MatchResources) field.ErrorList {
	var errs field.ErrorList
	if policyName == "" {
		errs = append(errs, field.Required(p.Child("policyName"), ""))
	} else {
		errs = append(errs, validators.Subdomain(p.Child("policyName"), policyName)...)
	}
	if params != nil {
		errs = append(errs, validateParamRef(p.Child("paramRef"), params)...)
	}
	if match != nil {
		errs = append(errs, validateMatchResources(p.Child("matchResources"), match)...)
	}
	return errs
}

func validateParamRef(p *field.Path, r *admissionv1.ParamRef) field.ErrorList {
	var errs field.ErrorList
	if r.Name != "" {
		errs = append(errs, validators.PathSegment(p.Child("name"), r.Name)...)
		if r.Selector != nil {
			errs = append(errs, field.Forbidden(p.Child("name"), "name and selector are mutually exclusive"))
		}
	}
	if r.Selector != nil {
		errs = append(errs, validators.Selector(p.Child("selector"), r.Selector)...)
		if r.Name != "" {
			errs = append(errs, field.Forbidden(p.Child("selector"), "name and selector are mutually exclusive"))
		}
	}
	if r.Name == "" && r.Selector == nil {
		errs = append(errs, field.Required(p, "one of name or selector must be specified"))
	}
	if r.ParameterNotFoundAction == nil || *r.ParameterNotFoundAction == "" {
		return append(errs, field.Required(p.Child("parameterNotFoundAction"), ""))
	}
	return append(errs, validators.OneOf(p.Child("parameterNotFoundAction"), *r.ParameterNotFoundAction, admissionv1.DenyAction, admissionv1.AllowAction)...)
}

func validateActions(p *field.Path, actions []admissionv1.ValidationAction) field.ErrorList {
	if len(actions) == 0 {
		return field.ErrorList{field.Required(p, "")}
	}
	var errs field.ErrorList
	seen := sets.New[admissionv1.ValidationAction]()
	for i, action := range actions {
		errs = append(errs, validators.OneOf(p.Index(i), action, admissionv1.Audit, admissionv1.Deny, admissionv1.Warn)...)
		if seen.Has(action) {
			errs = append(errs, field.Duplicate(p.Index(i), action))
		}
		seen.Insert(action)
	}
	if seen.HasAll(admissionv1.Deny, admissionv1.Warn) {
		errs = append(errs, field.Invalid(p, actions, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	return errs
}
