// Package reviews implements the resources that are not stored and whose
// creation is a query: TokenReview, SelfSubjectReview, SelfSubjectRulesReview
// and the access reviews.
package reviews

import (
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/resource"
)

// Reviewer answers reviews.
type Reviewer struct {
	// Tokens authenticates the tokens of TokenReviews; nil rejects all.
	Tokens authenticator.Token
	// Audiences are the audiences of the API server.
	Audiences  authenticator.Audiences
	Authorizer authorizer.UnconditionalAuthorizer
	// Rules resolves the rules for SelfSubjectRulesReviews; nil means that
	// rules are unknown.
	Rules authorizer.RuleResolver
}

// Create passes a review through admission and sets its status. Nothing is
// stored, so a dry run makes no difference.
func (v *Reviewer) Create(q *registry.Request, obj resource.Object, options *metav1.CreateOptions) error {
	if err := q.PlaceInNamespace(obj); err != nil {
		return err
	}
	g := q.Admitter(admission.Create, options, len(options.DryRun) > 0)
	if err := g.Mutate(obj, nil, obj.GetName()); err != nil {
		return err
	}
	if err := v.answer(q, obj); err != nil {
		return err
	}
	return g.Validate(obj, nil, obj.GetName())
}

// answer sets the status of a review.
func (v *Reviewer) answer(q *registry.Request, obj resource.Object) error {
	switch r := obj.(type) {
	case *authenticationv1.TokenReview:
		return v.token(q.Context, r)
	case *authenticationv1.SelfSubjectReview:
		r.Status.UserInfo = userInfo(q.User)
		r.CreationTimestamp = resource.Seconds(q.Now)
		return nil
	case *authorizationv1.SubjectAccessReview:
		return v.subjectAccess(q.Context, r)
	case *authorizationv1.LocalSubjectAccessReview:
		return v.localSubjectAccess(q.Context, r)
	case *authorizationv1.SelfSubjectAccessReview:
		return v.selfSubjectAccess(q.Context, q.User, r)
	case *authorizationv1.SelfSubjectRulesReview:
		return v.selfSubjectRules(q.Context, q.User, r)
	}
	return fmt.Errorf("there is no answer to a %T", obj)
}
