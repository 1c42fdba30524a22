// Package tokens answers serviceaccounts/token, by which clients ask for the
// token of a service account (KEP-1205).
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

// Issuer issues the tokens of service accounts. The request's spec is filled
// in and checked by it.
type Issuer interface {
	Answer(ctx context.Context, sa *corev1.ServiceAccount, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// Issue answers a TokenRequest for the service account that the request
// names. Nothing is stored, so a dry run is like any other.
func Issue(q *registry.Request, issuer Issuer, wanted *authenticationv1.TokenRequest, options *metav1.CreateOptions) (*authenticationv1.TokenRequest, error) {
	if err := q.PlaceInNamespace(wanted); err != nil {
		return nil, err
	}
	g := q.Gate(admission.Create, options, len(options.DryRun) > 0)
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
