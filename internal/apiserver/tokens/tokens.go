// Package tokens implements the subresource serviceaccounts/token, which issues
// tokens of service accounts (KEP-1205).
package tokens

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/status"
)

// Issuer issues tokens of service accounts. It defaults and validates the
// request's spec.
type Issuer interface {
	Answer(ctx context.Context, sa *corev1.ServiceAccount, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// Issue issues a token for the service account that the request names. It stores
// nothing, so a dry run issues a token, too.
func Issue(q *registry.Request, issuer Issuer, wanted *authenticationv1.TokenRequest, options *metav1.CreateOptions) (*authenticationv1.TokenRequest, error) {
	if err := q.PlaceInNamespace(wanted); err != nil {
		return nil, err
	}
	g := q.Admitter(admission.Create, options, len(options.DryRun) > 0)
	if err := g.Mutate(wanted, nil, q.Info.Name); err != nil {
		return nil, err
	}
	e, err := q.Get("")
	if err != nil {
		return nil, err
	}
	if err := g.Validate(wanted, nil, q.Info.Name); err != nil {
		return nil, err
	}
	sa, ok := e.Object.(*corev1.ServiceAccount)
	if !ok {
		return nil, status.NoSuchResource()
	}
	issued, err := issuer.Answer(q.Context, sa, wanted)
	if err != nil {
		return nil, err
	}
	issued.SetGroupVersionKind(q.Subresource.Kind)
	return issued, nil
}
