package admissionregistration

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/jsonpath"

	"github.com/coracle-io/coracle/internal/resource"
)

// validatePolicyStatus checks the status that type checking of a policy's
// expressions results in.
func validatePolicyStatus(_ *resource.RequestContext, o, _ *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	p := field.NewPath("status")
	var errs field.ErrorList
	if checked := o.Status.TypeChecking; checked != nil {
		for i, w := range checked.ExpressionWarnings {
			at := p.Child("typeChecking", "expressionWarnings").Index(i)
			if w.Warning == "" {
				errs = append(errs, field.Required(at.Child("warning"), ""))
			}
			errs = append(errs, validateFieldReference(at.Child("fieldRef"), w.FieldRef)...)
		}
	}
	return append(errs, metav1validation.ValidateConditions(o.Status.Conditions, p.Child("conditions"))...)
}

func validateFieldReference(p *field.Path, reference string) field.ErrorList {
	reference = strings.TrimSpace(reference)
	if reference == "" {
		return field.ErrorList{field.Required(p, "")}
	}
	if err := jsonpath.New("spec").Parse("{" + reference + "}"); err != nil {
		return field.ErrorList{field.Invalid(p, reference, fmt.Sprintf("invalid JSONPath: %v", err))}
	}
	return nil
}
