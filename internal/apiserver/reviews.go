package apiserver

import (
	"context"
	"errors"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/faults"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

var (
	errNoTokens     = errors.New("no token authenticator is configured")
	errInvalidToken = errors.New("invalid bearer token")
)

// reviewToken says whose a token is.
func (q *request) reviewToken() error {
	return review(q, func(r *authenticationv1.TokenReview) error {
		if r.Namespace != "" {
			return apierrors.NewBadRequest("namespace is not allowed on this type: " + r.Namespace)
		}
		if r.Spec.Token == "" {
			return apierrors.NewBadRequest("token is required for TokenReview in authentication")
		}
		r.Status = q.tokenStatus(r.Spec)
		return nil
	})
}

func (q *request) tokenStatus(spec authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
	if q.server.Tokens == nil {
		return authenticationv1.TokenReviewStatus{Error: errNoTokens.Error()}
	}
	audiences := authenticator.Audiences(spec.Audiences)
	if len(audiences) == 0 {
		audiences = q.server.Audiences
	}
	ctx := q.ctx
	if len(audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, audiences)
	}
	found, ok, err := q.server.Tokens.AuthenticateToken(ctx, spec.Token)
	if err == nil && !ok {
		err = errInvalidToken
	}
	status := authenticationv1.TokenReviewStatus{Authenticated: ok}
	if err != nil {
		status.Error = err.Error()
	}
	if len(audiences) > 0 && found != nil && len(audiences.Intersect(found.Audiences)) == 0 {
		return authenticationv1.TokenReviewStatus{}
	}
	if found != nil && found.User != nil {
		status.User = userInfo(found.User)
		status.Audiences = found.Audiences
	}
	return status
}

func userInfo(u user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for k, v := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[k] = v
	}
	return info
}

// reviewSelf says who the client is.
func (q *request) reviewSelf() error {
	return review(q, func(r *authenticationv1.SelfSubjectReview) error {
		r.Status.UserInfo = userInfo(q.user)
		r.CreationTimestamp = seconds(q.now)
		return nil
	})
}

// reviewAccess says whether somebody may do something.
func (q *request) reviewAccess() error {
	return review(q, func(r *authorizationv1.SubjectAccessReview) error {
		errs := validateSubject(r.Spec)
		if !isBlank(&r.ObjectMeta, "") {
			errs = append(errs, field.Invalid(field.NewPath("metadata"), r.ObjectMeta, "must be empty"))
		}
		if len(errs) > 0 {
			return invalidReview(errs)
		}
		r.Status = q.access(q.ctx, subjectOf(r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
		return nil
	})
}

// reviewLocalAccess is reviewAccess within a namespace.
func (q *request) reviewLocalAccess() error {
	return review(q, func(r *authorizationv1.LocalSubjectAccessReview) error {
		errs := validateSubject(r.Spec)
		if !isBlank(&r.ObjectMeta, r.Namespace) {
			errs = append(errs, field.Invalid(field.NewPath("metadata"), r.ObjectMeta, "must be empty except for namespace"))
		}
		if a := r.Spec.ResourceAttributes; a != nil && a.Namespace != r.Namespace {
			errs = append(errs, field.Invalid(field.NewPath("spec", "resourceAttributes", "namespace"), a.Namespace, "must match metadata.namespace"))
		}
		if r.Spec.NonResourceAttributes != nil {
			errs = append(errs, field.Invalid(field.NewPath("spec", "nonResourceAttributes"), rule.Shown(r.Spec.NonResourceAttributes), "disallowed on this kind of request"))
		}
		if len(errs) > 0 {
			return invalidReview(errs)
		}
		if r.Spec.ResourceAttributes.Namespace == "" {
			return apierrors.NewBadRequest("spec.resourceAttributes.namespace must match namespace: ")
		}
		r.Status = q.access(q.ctx, subjectOf(r.Spec), r.Spec.ResourceAttributes, nil)
		return nil
	})
}

// reviewOwnAccess says whether the client may do something.
func (q *request) reviewOwnAccess() error {
	return review(q, func(r *authorizationv1.SelfSubjectAccessReview) error {
		errs := validateAttributes(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
		if !isBlank(&r.ObjectMeta, "") {
			errs = append(errs, field.Invalid(field.NewPath("metadata"), r.ObjectMeta, "must be empty"))
		}
		if len(errs) > 0 {
			return invalidReview(errs)
		}
		r.Status = q.access(q.ctx, q.user, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
		return nil
	})
}

// invalidReview names neither kind nor name, as clients know it from upstream.
func invalidReview(errs field.ErrorList) error {
	return faults.Invalid(schema.GroupKind{Group: authorizationv1.GroupName}, "", errs)
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
		errs = append(errs, field.Invalid(spec.Child("nonResourceAttributes"), rule.Shown(n), "cannot be specified in combination with resourceAttributes"))
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
func (q *request) access(ctx context.Context, u user.Info, r *authorizationv1.ResourceAttributes, n *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	a := authorizer.AttributesRecord{User: u}
	if r != nil {
		a = resourceAttributes(u, r)
	} else {
		a.Path, a.Verb = n.Path, n.Verb
	}
	decision, reason, err := q.server.Authorizer.Authorize(ctx, a)
	return authorizationv1.SubjectAccessReviewStatus{
		Allowed:         decision == authorizer.DecisionAllow,
		Denied:          decision == authorizer.DecisionDeny,
		Reason:          reason,
		EvaluationError: evaluationError(err, &a),
	}
}

// evaluationError says what went wrong with a decision, and which selectors
// were not understood and so not taken into account.
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

// labelRequirements reads those that are understood.
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
	return understood, faults.Join(failed)
}
