package reviews

import (
	"context"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/errorlist"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// subjectAccess answers a SubjectAccessReview.
func (v *Reviewer) subjectAccess(ctx context.Context, r *authorizationv1.SubjectAccessReview) error {
	errs := validateSubject(r.Spec)
	if !isBlank(&r.ObjectMeta, "") {
		errs = append(errs, field.Invalid(field.NewPath("metadata"), r.ObjectMeta, "must be empty"))
	}
	if len(errs) > 0 {
		return invalidReview(errs)
	}
	r.Status = v.access(ctx, subjectOf(r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return nil
}

// localSubjectAccess answers a LocalSubjectAccessReview.
func (v *Reviewer) localSubjectAccess(ctx context.Context, r *authorizationv1.LocalSubjectAccessReview) error {
	errs := validateSubject(r.Spec)
	if !isBlank(&r.ObjectMeta, r.Namespace) {
		errs = append(errs, field.Invalid(field.NewPath("metadata"), r.ObjectMeta, "must be empty except for namespace"))
	}
	if a := r.Spec.ResourceAttributes; a != nil && a.Namespace != r.Namespace {
		errs = append(errs, field.Invalid(field.NewPath("spec", "resourceAttributes", "namespace"), a.Namespace, "must match metadata.namespace"))
	}
	if r.Spec.NonResourceAttributes != nil {
		errs = append(errs, field.Invalid(field.NewPath("spec", "nonResourceAttributes"), validators.Shown(r.Spec.NonResourceAttributes), "disallowed on this kind of request"))
	}
	if len(errs) > 0 {
		return invalidReview(errs)
	}
	if r.Spec.ResourceAttributes.Namespace == "" {
		return apierrors.NewBadRequest("spec.resourceAttributes.namespace must match namespace: ")
	}
	r.Status = v.access(ctx, subjectOf(r.Spec), r.Spec.ResourceAttributes, nil)
	return nil
}

// selfSubjectAccess answers a SelfSubjectAccessReview.
func (v *Reviewer) selfSubjectAccess(ctx context.Context, u user.Info, r *authorizationv1.SelfSubjectAccessReview) error {
	errs := validateAttributes(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	if !isBlank(&r.ObjectMeta, "") {
		errs = append(errs, field.Invalid(field.NewPath("metadata"), r.ObjectMeta, "must be empty"))
	}
	if len(errs) > 0 {
		return invalidReview(errs)
	}
	r.Status = v.access(ctx, u, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return nil
}

// isBlank reports whether an object has no metadata except managed fields and
// the given namespace.
func isBlank(meta *metav1.ObjectMeta, namespace string) bool {
	rest := *meta
	rest.ManagedFields = nil
	if rest.Namespace == namespace {
		rest.Namespace = ""
	}
	return equality.Semantic.DeepEqual(&rest, &metav1.ObjectMeta{})
}

// invalidReview returns the error of an invalid review. Like upstream's, it has
// no kind and no name.
func invalidReview(errs field.ErrorList) error {
	return errorlist.Invalid(schema.GroupKind{Group: authorizationv1.GroupName}, "", errs)
}

func validateSubject(spec authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := validateAttributes(spec.ResourceAttributes, spec.NonResourceAttributes)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), spec.User, "at least one of user or group must be specified"))
	}
	return errs
}

func validateAttributes(r *authorizationv1.ResourceAttributes, n *authorizationv1.NonResourceAttributes) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	switch {
	case r != nil && n != nil:
		errs = append(errs, field.Invalid(spec.Child("nonResourceAttributes"), validators.Shown(n), "cannot be specified in combination with resourceAttributes"))
	case r == nil && n == nil:
		errs = append(errs, field.Invalid(spec.Child("resourceAttributes"), n, "exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	if r == nil {
		return errs
	}
	path := spec.Child("resourceAttributes")
	if s := r.FieldSelector; s != nil {
		at := path.Child("fieldSelector")
		errs = append(errs, validateSelector(s.RawSelector, len(s.Requirements), at)...)
		options := metav1validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
		for i, requirement := range s.Requirements {
			errs = append(errs, metav1validation.ValidateFieldSelectorRequirement(requirement, options, at.Child("requirements").Index(i))...)
		}
	}
	if s := r.LabelSelector; s != nil {
		at := path.Child("labelSelector")
		errs = append(errs, validateSelector(s.RawSelector, len(s.Requirements), at)...)
		options := metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
		for i, requirement := range s.Requirements {
			errs = append(errs, metav1validation.ValidateLabelSelectorRequirement(requirement, options, at.Child("requirements").Index(i))...)
		}
	}
	return errs
}

func validateSelector(raw string, requirements int, path *field.Path) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(path.Child("rawSelector"), raw, "may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(path.Child("requirements"), "when "+path.String()+" is specified, requirements or rawSelector is required")}
	}
	return nil
}

func subjectOf(spec authorizationv1.SubjectAccessReviewSpec) user.Info {
	u := &user.DefaultInfo{Name: spec.User, UID: spec.UID, Groups: spec.Groups, Extra: map[string][]string{}}
	for k, v := range spec.Extra {
		u.Extra[k] = v
	}
	return u
}

// access asks the authorizer for a decision.
func (v *Reviewer) access(ctx context.Context, u user.Info, r *authorizationv1.ResourceAttributes, n *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	a := authorizer.AttributesRecord{User: u}
	if r != nil {
		a = resourceAttributes(u, r)
	} else {
		a.Path, a.Verb = n.Path, n.Verb
	}
	decision, reason, err := v.Authorizer.Authorize(ctx, a)
	return authorizationv1.SubjectAccessReviewStatus{
		Allowed:         decision == authorizer.DecisionAllow,
		Denied:          decision == authorizer.DecisionDeny,
		Reason:          reason,
		EvaluationError: evaluationError(err, &a),
	}
}

// evaluationError returns the error of a decision and the selectors that were
// ignored because they cannot be parsed.
func evaluationError(err error, a *authorizer.AttributesRecord) string {
	var problems []string
	if err != nil {
		problems = append(problems, err.Error())
	}
	ignored := func(selector string, err error, understood int) {
		switch {
		case err == nil:
		case understood > 0:
			problems = append(problems, "spec.resourceAttributes."+selector+" partially ignored due to parse error")
		default:
			problems = append(problems, "spec.resourceAttributes."+selector+" ignored due to parse error")
		}
	}
	ignored("fieldSelector", a.FieldSelectorParsingErr, len(a.FieldSelectorRequirements))
	ignored("labelSelector", a.LabelSelectorParsingErr, len(a.LabelSelectorRequirements))
	return strings.Join(problems, "; ")
}

func resourceAttributes(u user.Info, r *authorizationv1.ResourceAttributes) authorizer.AttributesRecord {
	a := authorizer.AttributesRecord{
		User: u, Verb: r.Verb, Namespace: r.Namespace, APIGroup: r.Group, APIVersion: r.Version,
		Resource: r.Resource, Subresource: r.Subresource, Name: r.Name, ResourceRequest: true,
	}
	if a.APIVersion == "" {
		a.APIVersion = "*"
	}
	if s := r.FieldSelector; s != nil {
		a.FieldSelectorRequirements, a.FieldSelectorParsingErr = fieldRequirements(s)
	}
	if s := r.LabelSelector; s != nil {
		a.LabelSelectorRequirements, a.LabelSelectorParsingErr = labelRequirements(s)
	}
	return a
}

func fieldRequirements(s *authorizationv1.FieldSelectorAttributes) (fields.Requirements, error) {
	if s.RawSelector != "" {
		parsed, err := fields.ParseSelector(s.RawSelector)
		if err != nil {
			return nil, err
		}
		return parsed.Requirements(), nil
	}
	requirements, err := metav1FieldRequirements(s.Requirements)
	return requirements, err
}

// labelRequirements converts the requirements of a label selector. It skips
// those with unknown operators and returns their errors.
func labelRequirements(s *authorizationv1.LabelSelectorAttributes) (labels.Requirements, error) {
	if s.RawSelector != "" {
		parsed, err := labels.Parse(s.RawSelector)
		if err != nil {
			return nil, err
		}
		requirements, _ := parsed.Requirements()
		return requirements, nil
	}
	var understood labels.Requirements
	var failed []error
	for _, r := range s.Requirements {
		selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}})
		if err != nil {
			failed = append(failed, err)
			continue
		}
		requirements, _ := selector.Requirements()
		understood = append(understood, requirements...)
	}
	return understood, errorlist.Aggregate(failed)
}
