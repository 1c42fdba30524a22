package client

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	tokenLifetime = time.Hour
	// tokenRenewal is the part of a token's life after which a new one is asked for.
	tokenRenewal = 0.8
)

// tokenSource keeps a valid token of a service account, from TokenRequest.
type tokenSource struct {
	client             kubernetes.Interface
	namespace, account string
	now                func() time.Time

	mu      sync.Mutex // guards the following, and is held while a token is requested
	token   string
	renewAt time.Time
	expires time.Time
}

func newTokenSource(c kubernetes.Interface, namespace, account string) *tokenSource {
	return &tokenSource{client: c, namespace: namespace, account: account, now: time.Now}
}

// get returns a valid token. When it cannot be renewed, the old one serves
// until it expires.
func (s *tokenSource) get(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if now.Before(s.renewAt) {
		return s.token, nil
	}
	answer, err := s.request(ctx)
	if err != nil {
		if now.Before(s.expires) {
			return s.token, nil
		}
		return "", fmt.Errorf("token for service account %s/%s: %w", s.namespace, s.account, err)
	}
	s.token, s.expires = answer.Status.Token, answer.Status.ExpirationTimestamp.Time
	s.renewAt = now.Add(time.Duration(tokenRenewal * float64(s.expires.Sub(now))))
	return s.token, nil
}

// request asks for a token, making the service account if it is missing.
func (s *tokenSource) request(ctx context.Context) (*authenticationv1.TokenRequest, error) {
	seconds := int64(tokenLifetime / time.Second)
	want := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	accounts := s.client.CoreV1().ServiceAccounts(s.namespace)
	answer, err := accounts.CreateToken(ctx, s.account, want, metav1.CreateOptions{})
	if !apierrors.IsNotFound(err) {
		return answer, err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.account}}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	return accounts.CreateToken(ctx, s.account, want, metav1.CreateOptions{})
}

// drop forgets a token that the server did not accept.
func (s *tokenSource) drop(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token == token {
		s.renewAt, s.expires = time.Time{}, time.Time{}
	}
}

// tokenTransport sends the token with every request.
type tokenTransport struct {
	tokens *tokenSource
	base   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *tokenTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	token, err := t.tokens.get(request.Context())
	if err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, err
	}
	authorized := request.Clone(request.Context())
	authorized.Header.Set("Authorization", "Bearer "+token)
	response, err := t.base.RoundTrip(authorized)
	if err == nil && response.StatusCode == http.StatusUnauthorized {
		t.tokens.drop(token)
	}
	return response, err
}
