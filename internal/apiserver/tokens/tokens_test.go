package tokens_test

import (
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/registry/registrytest"
	"github.com/coracle-io/coracle/internal/apiserver/tokens"
)

// issuer issues tokens that are the names of their accounts.
type issuer struct{}

func (issuer) Answer(_ context.Context, sa *corev1.ServiceAccount, wanted *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	wanted.Status.Token = sa.Name
	return wanted, nil
}

func TestIssue(t *testing.T) {
	g := registrytest.Start(t)
	account := &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	if _, err := g.Request(t, "create", "", "serviceaccounts", "default", "").Create(account, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	issue := func(name, namespace string) (*authenticationv1.TokenRequest, error) {
		q := g.Request(t, "create", "", "serviceaccounts", "default", name)
		q.Subresource, q.Info.Subresource = q.Endpoint.Resource.Subresource("token"), "token"
		return tokens.Issue(q, issuer{}, &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}, &metav1.CreateOptions{})
	}
	issued, err := issue("robot", "")
	if err != nil || issued.Status.Token != "robot" || issued.Kind != "TokenRequest" {
		t.Errorf("%+v, %v", issued, err)
	}
	if _, err := issue("missing", ""); !apierrors.IsNotFound(err) {
		t.Errorf("for an account that is not there: %v", err)
	}
	if _, err := issue("robot", "other"); !apierrors.IsBadRequest(err) {
		t.Errorf("for another namespace: %v", err)
	}
}
