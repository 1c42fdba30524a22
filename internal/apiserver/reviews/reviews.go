// Package reviews answers the resources that are not stored and that clients
// create to ask something: whose a token is (TokenReview), who they are
// (SelfSubjectReview), what somebody may do (the access reviews and
// SelfSubjectRulesReview).
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

// Reviewer knows the answers to reviews.
type Reviewer struct {
	// Tokens answers TokenReviews; nil says that no token is known.
	Tokens authenticator.Token
	// Audiences are the API server's own, for tokens that name an audience.
	Audiences  authenticator.Audiences
	Authorizer authorizer.UnconditionalAuthorizer
	// Rules answers SelfSubjectRulesReviews; nil says that rules are unknown.
	Rules authorizer.RuleResolver
}

// Create passes a review through admission and fills in its status. Nothing
// is stored, so a dry run is like any other.
func (v *Reviewer) Create(q *registry.Request, obj resource.Object, options *metav1.CreateOptions) error {
	if err := q.PlaceInNamespace(obj); err != nil {
		return err
	}
	g := q.Gate(admission.Create, options, len(options.DryRun) > 0)
	if err := g.Mutate(obj, nil, obj.GetName()); err != nil {
		return err
	}
	if err := v.answer(q, obj); err != nil {
		return err
	}
	return g.Validate(obj, nil, obj.GetName())
}

// answer fills in the status.
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
