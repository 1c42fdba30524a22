package reviews

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
)

// selfSubjectRules answers a SelfSubjectRulesReview.
func (v *Reviewer) selfSubjectRules(ctx context.Context, u user.Info, r *authorizationv1.SelfSubjectRulesReview) error {
	if r.Spec.Namespace == "" {
		return apierrors.NewBadRequest("no namespace on request")
	}
	r.Status = authorizationv1.SubjectRulesReviewStatus{ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}}
	if v.Rules == nil {
		r.Status.Incomplete, r.Status.EvaluationError = true, "the authorizer does not know rules"
		return nil
	}
	resources, others, incomplete, err := v.Rules.RulesFor(ctx, u, r.Spec.Namespace)
	r.Status.Incomplete = incomplete
	if err != nil {
		r.Status.EvaluationError = err.Error()
	}
	for _, rule := range resources {
		r.Status.ResourceRules = append(r.Status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: rule.GetVerbs(), APIGroups: rule.GetAPIGroups(), Resources: rule.GetResources(), ResourceNames: rule.GetResourceNames(),
		})
	}
	for _, rule := range others {
		r.Status.NonResourceRules = append(r.Status.NonResourceRules, authorizationv1.NonResourceRule{
			Verbs: rule.GetVerbs(), NonResourceURLs: rule.GetNonResourceURLs(),
		})
	}
	return nil
}

// metav1FieldRequirements converts those requirements that a field selector
// can express. It skips others and returns an error for them; the review then
// asks about more, not fewer, objects.
func metav1FieldRequirements(in []metav1.FieldSelectorRequirement) (fields.Requirements, error) {
	var out fields.Requirements
	var failed error
	for _, r := range in {
		operator := selection.Equals
		switch {
		case r.Operator == metav1.FieldSelectorOpIn && len(r.Values) == 1:
		case r.Operator == metav1.FieldSelectorOpNotIn && len(r.Values) == 1:
			operator = selection.NotEquals
		default:
			failed = fmt.Errorf("%s of %d values is not a requirement that field selectors know", r.Operator, len(r.Values))
			continue
		}
		out = append(out, fields.Requirement{Field: r.Key, Operator: operator, Value: r.Values[0]})
	}
	return out, failed
}
