package reviews_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/registry/registrytest"
	"github.com/coracle-io/coracle/internal/apiserver/reviews"
)

// reads allows all users to read, and denies everything else.
func reads(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetVerb() == "get" {
		return authorizer.DecisionAllow, "reading is free", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// Each case has the spec of a review and a part of its status or error.
func TestReviewedSelectors(t *testing.T) {
	g := registrytest.Start(t)
	reviewer := &reviews.Reviewer{Authorizer: authorizer.AuthorizerFunc(reads)}
	for name, test := range map[string]struct {
		spec, want string
		invalid    bool
	}{
		"understood": {
			spec: `{"user":"u","resourceAttributes":{"fieldSelector":{"rawSelector":"a=b"},"labelSelector":{"requirements":[{"key":"a","operator":"Exists"}]}}}`,
			want: `{"allowed":false}`,
		},
		"not understood": {
			spec: `{"user":"u","resourceAttributes":{"fieldSelector":{"rawSelector":"a in b"},"labelSelector":{"rawSelector":"&"}}}`,
			want: `"evaluationError":"spec.resourceAttributes.fieldSelector ignored due to parse error; spec.resourceAttributes.labelSelector ignored due to parse error"`,
		},
		"understood in part": {
			spec: `{"user":"u","resourceAttributes":{"labelSelector":{"requirements":[{"key":"a","operator":"Exists"},{"key":"b","operator":"Near"}]}}}`,
			want: `"evaluationError":"spec.resourceAttributes.labelSelector partially ignored due to parse error"`,
		},
		"of nobody": {
			spec:    `{"resourceAttributes":{}}`,
			invalid: true, want: `.authorization.k8s.io "" is invalid: spec.user: Invalid value: "": at least one of user or group must be specified`,
		},
	} {
		review := &authorizationv1.SubjectAccessReview{}
		if err := json.Unmarshal([]byte(test.spec), &review.Spec); err != nil {
			t.Fatal(err)
		}
		err := reviewer.Create(g.Request(t, "create", "authorization.k8s.io", "subjectaccessreviews", "", ""), review, &metav1.CreateOptions{})
		if apierrors.IsInvalid(err) != test.invalid || !test.invalid && err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		said := ""
		if err != nil {
			said = err.Error()
		} else if data, err := json.Marshal(review.Status); err == nil {
			said = string(data)
		}
		if !strings.Contains(said, test.want) {
			t.Errorf("%s: %s", name, said)
		}
	}
}

func TestSelf(t *testing.T) {
	g := registrytest.Start(t)
	reviewer := &reviews.Reviewer{Authorizer: authorizer.AuthorizerFunc(reads)}
	who := &authenticationv1.SelfSubjectReview{}
	if err := reviewer.Create(g.Request(t, "create", "authentication.k8s.io", "selfsubjectreviews", "", ""), who, &metav1.CreateOptions{}); err != nil || who.Status.UserInfo.Username != "admin" {
		t.Errorf("%+v, %v", who.Status, err)
	}
	may := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"}}}
	if err := reviewer.Create(g.Request(t, "create", "authorization.k8s.io", "selfsubjectaccessreviews", "", ""), may, &metav1.CreateOptions{}); err != nil || !may.Status.Allowed || may.Status.Reason != "reading is free" {
		t.Errorf("%+v, %v", may.Status, err)
	}
}

func TestTokenWithoutAuthenticator(t *testing.T) {
	g := registrytest.Start(t)
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "x"}}
	err := (&reviews.Reviewer{}).Create(g.Request(t, "create", "authentication.k8s.io", "tokenreviews", "", ""), review, &metav1.CreateOptions{})
	if err != nil || review.Status.Authenticated || review.Status.Error != "no token authenticator is configured" {
		t.Errorf("%+v, %v", review.Status, err)
	}
}
