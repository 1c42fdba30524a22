package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	celgo "github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Limits of a policy's audit annotations: their number, and the size of a
// value expression in bytes.
const (
	maxAuditAnnotations = 20
	maxValueExpression  = 5 * 1024
)

// policy has the fields of a policy that are validated, and the compilers for
// its expressions.
type policy struct {
	compiler cel.Compiler
	composed *cel.CompositedCompiler // nil if the policy has no variables
	options  cel.OptionalVariableDeclarations
	stored   sets.Set[string]
}

func newPolicy(c *compilers, params *admissionv1.ParamKind, variables []admissionv1.Variable, stored sets.Set[string]) (*policy, error) {
	p := &policy{
		compiler: c.plain(), stored: stored,
		options: cel.OptionalVariableDeclarations{HasParams: params != nil, HasAuthorizer: true},
	}
	if len(variables) > 0 {
		composed, err := c.withVariables()
		if err != nil {
			return nil, err
		}
		p.compiler, p.composed = composed, composed
	}
	return p, nil
}

func (v *policy) compile(p *field.Path, text string, options cel.OptionalVariableDeclarations, types ...*celgo.Type) field.ErrorList {
	return problems(p, text, v.compiler.CompileCELExpression(expression{text: text, types: types}, options, environmentOf(text, v.stored)))
}

func (v *policy) validateVariables(p *field.Path, variables []admissionv1.Variable) field.ErrorList {
	var errs field.ErrorList
	for i, variable := range variables {
		at := p.Index(i)
		switch {
		case strings.TrimSpace(variable.Name) == "":
			errs = append(errs, field.Required(at.Child("name"), "name is not specified"))
		case !isIdentifier(variable.Name):
			errs = append(errs, field.Invalid(at.Child("name"), variable.Name, "must be a valid CEL identifier"))
		}
		if strings.TrimSpace(variable.Expression) == "" {
			errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
			continue
		}
		e := expression{name: variable.Name, text: variable.Expression, types: []*celgo.Type{celgo.AnyType, celgo.DynType}}
		result := v.composed.CompileAndStoreVariable(e, v.options, environmentOf(variable.Expression, v.stored))
		errs = append(errs, problems(at.Child("expression"), variable.Expression, result)...)
	}
	return errs
}

func (v *policy) validateValidation(p *field.Path, r *admissionv1.Validation) field.ErrorList {
	var errs field.ErrorList
	message := strings.TrimSpace(r.Message)
	if strings.TrimSpace(r.Expression) == "" {
		errs = append(errs, field.Required(p.Child("expression"), "expression is not specified"))
	} else {
		errs = append(errs, v.compile(p.Child("expression"), r.Expression, v.options, celgo.BoolType)...)
	}
	if r.MessageExpression != "" {
		at := p.Child("messageExpression")
		if strings.TrimSpace(r.MessageExpression) == "" {
			errs = append(errs, field.Invalid(at, r.MessageExpression, "must be non-empty if specified"))
		} else {
			options := v.options
			options.HasAuthorizer = false
			errs = append(errs, v.compile(at, r.MessageExpression, options, celgo.StringType)...)
		}
	}
	at := p.Child("message")
	switch {
	case r.Message != "" && message == "":
		errs = append(errs, field.Invalid(at, r.Message, "must be non-empty if specified"))
	case strings.ContainsAny(message, "\n\r"):
		errs = append(errs, field.Invalid(at, r.Message, "must not contain line breaks"))
	}
	if r.Reason != nil {
		errs = append(errs, validators.OneOf(p.Child("reason"), *r.Reason, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge)...)
	}
	return errs
}

func (v *policy) validateAnnotations(p *field.Path, name string, annotations []admissionv1.AuditAnnotation) field.ErrorList {
	var errs field.ErrorList
	if len(annotations) > maxAuditAnnotations {
		errs = append(errs, field.Invalid(p, validators.Shown(annotations), fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations)))
	}
	keys := sets.New[string]()
	for i, a := range annotations {
		at := p.Index(i)
		if name == "" {
			errs = append(errs, field.Invalid(at.Child("key"), a.Key, "requires metadata.name be non-empty"))
		} else {
			key := name + "/" + a.Key
			errs = append(errs, validators.Problems(at.Child("key"), key, utilvalidation.IsQualifiedName(key))...)
		}
		switch value, text := at.Child("valueExpression"), strings.TrimSpace(a.ValueExpression); {
		case text == "":
			errs = append(errs, field.Required(value, "valueExpression is not specified"))
		case len(text) > maxValueExpression:
			errs = append(errs, field.Required(value, fmt.Sprintf("must not exceed %d bytes in length", maxValueExpression)))
		default:
			e := expression{text: text, types: []*celgo.Type{celgo.StringType, celgo.NullType}}
			result := v.compiler.CompileCELExpression(e, v.options, environmentOf(a.ValueExpression, v.stored))
			errs = append(errs, problems(value, a.ValueExpression, result)...)
		}
		if keys.Has(a.Key) {
			errs = append(errs, field.Duplicate(at.Child("key"), a.Key))
		}
		keys.Insert(a.Key)
	}
	return errs
}

func validateParamKind(p *field.Path, k *admissionv1.ParamKind) field.ErrorList {
	if k == nil {
		return nil
	}
	var errs field.ErrorList
	if k.APIVersion == "" {
		errs = append(errs, field.Required(p.Child("apiVersion"), ""))
	} else if gv, err := schema.ParseGroupVersion(k.APIVersion); err != nil {
		errs = append(errs, field.Invalid(p.Child("apiVersion"), k.APIVersion, err.Error()))
	} else {
		errs = append(errs, validateGroupVersion(p.Child("apiVersion"), k.APIVersion, gv)...)
	}
	if k.Kind == "" {
		return append(errs, field.Required(p.Child("kind"), ""))
	}
	if found := utilvalidation.IsDNS1035Label(strings.ToLower(k.Kind)); len(found) > 0 {
		errs = append(errs, field.Invalid(p.Child("kind"), k.Kind, "may have mixed case, but should otherwise match: "+strings.Join(found, ",")))
	}
	return errs
}

func validateGroupVersion(p *field.Path, text string, gv schema.GroupVersion) field.ErrorList {
	var errs field.ErrorList
	if gv.Group != "" {
		if found := utilvalidation.IsDNS1123Subdomain(gv.Group); len(found) > 0 {
			errs = append(errs, field.Invalid(p, gv.Group, strings.Join(found, ",")))
		}
	}
	if gv.Version == "" {
		return append(errs, field.Invalid(p, text, "version must be specified"))
	}
	if found := utilvalidation.IsDNS1035Label(gv.Version); len(found) > 0 {
		errs = append(errs, field.Invalid(p, gv.Version, strings.Join(found, ",")))
	}
	return errs
}

func validateConstraints(p *field.Path, m *admissionv1.MatchResources) field.ErrorList {
	if m == nil {
		return field.ErrorList{field.Required(p, "")}
	}
	errs := validateMatchResources(p, m)
	if len(m.ResourceRules) == 0 {
		errs = append(errs, field.Required(p.Child("resourceRules"), ""))
	}
	return errs
}

func validateValidatingPolicy(c *compilers, o, old *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	p, s := field.NewPath("spec"), &o.Spec
	errs := validateFailurePolicy(p.Child("failurePolicy"), s.FailurePolicy)
	errs = append(errs, validateParamKind(p.Child("paramKind"), s.ParamKind)...)
	errs = append(errs, validateConstraints(p.Child("matchConstraints"), s.MatchConstraints)...)
	v, err := newPolicy(c, s.ParamKind, s.Variables, validatingExpressions(old))
	if err != nil {
		return append(errs, field.InternalError(p, err))
	}
	if old == nil || !sameConditions(s.ParamKind, old.Spec.ParamKind, s.MatchConditions, old.Spec.MatchConditions) {
		errs = append(errs, validateMatchConditions(p.Child("matchConditions"), s.MatchConditions, c.plain(), v.options, v.stored)...)
	}
	errs = append(errs, v.validateVariables(p.Child("variables"), s.Variables)...)
	if len(s.Validations) == 0 && len(s.AuditAnnotations) == 0 {
		const missing = "validations or auditAnnotations must contain at least one item"
		return append(errs, field.Required(p.Child("validations"), missing), field.Required(p.Child("auditAnnotations"), missing))
	}
	for i := range s.Validations {
		errs = append(errs, v.validateValidation(p.Child("validations").Index(i), &s.Validations[i])...)
	}
	return append(errs, v.validateAnnotations(p.Child("auditAnnotations"), o.Name, s.AuditAnnotations)...)
}

// sameConditions says that an update of a policy changes neither its conditions
// nor what they can refer to, so that they are not checked again.
func sameConditions(kind, oldKind *admissionv1.ParamKind, conditions, old []admissionv1.MatchCondition) bool {
	return ptr.Equal(kind, oldKind) && slices.Equal(conditions, old)
}

func validatingExpressions(o *admissionv1.ValidatingAdmissionPolicy) sets.Set[string] {
	stored := sets.New[string]()
	if o == nil {
		return stored
	}
	for _, c := range o.Spec.MatchConditions {
		stored.Insert(c.Expression)
	}
	for _, v := range o.Spec.Validations {
		stored.Insert(v.Expression, v.MessageExpression)
	}
	for _, a := range o.Spec.AuditAnnotations {
		stored.Insert(a.ValueExpression)
	}
	for _, v := range o.Spec.Variables {
		stored.Insert(v.Expression)
	}
	return stored
}
