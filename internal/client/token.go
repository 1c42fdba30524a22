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
	// tokenRenewal is the fraction of a token's lifetime after which it is renewed.
	tokenRenewal = 0.8
	// tokenRetry is the delay after a failed renewal.
	tokenRetry = 10 * time.Second
	// firstTokenRetry is the delay after a failure if there is no valid token.
	firstTokenRetry = time.Second
)

// tokenSource requests and renews the token of a service account with TokenRequest.
type tokenSource struct {
	client             kubernetes.Interface
	namespace, account string
	now                func() time.Time

	requesting chan struct{} // a semaphore for requests

	mu      sync.Mutex // guards the following
	token   string
	renewAt time.Time
	expires time.Time
	failed  error // of the last request, if there is no valid token
}

func newTokenSource(c kubernetes.Interface, namespace, account string) *tokenSource {
	return &tokenSource{client: c, namespace: namespace, account: account, now: time.Now, requesting: make(chan struct{}, 1)}
}

// get returns a valid token. If it cannot be renewed, the old one is used until it expires.
// One caller at a time requests a token. The others get the old one if it is valid, or wait
// for the new one until their ctx is done.
func (s *tokenSource) get(ctx context.Context) (string, error) {
	token, due, err := s.cached()
	if !due {
		return token, err
	}
	select {
	case s.requesting <- struct{}{}:
	default:
		if token != "" {
			return token, nil
		}
		select {
		case s.requesting <- struct{}{}:
		case <-ctx.Done():
			return "", s.wrap(ctx.Err())
		}
	}
	defer func() { <-s.requesting }()
	if token, due, err := s.cached(); !due {
		return token, err
	}
	return s.renew(ctx)
}

// cached returns the token if it is valid, otherwise the last error. due is true if a token
// must be requested now.
func (s *tokenSource) cached() (token string, due bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if now.Before(s.expires) {
		return s.token, !now.Before(s.renewAt), nil
	}
	return "", s.failed == nil || !now.Before(s.renewAt), s.failed
}

// renew requests a token. After a failure it delays the next request, unless ctx is done.
func (s *tokenSource) renew(ctx context.Context) (string, error) {
	answer, err := s.request(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	valid := now.Before(s.expires)
	switch {
	case err == nil:
		s.token, s.expires, s.failed = answer.Status.Token, answer.Status.ExpirationTimestamp.Time, nil
		s.renewAt = now.Add(time.Duration(tokenRenewal * float64(s.expires.Sub(now))))
		return s.token, nil
	case ctx.Err() == nil && valid:
		s.renewAt = now.Add(tokenRetry)
	case ctx.Err() == nil:
		s.renewAt, s.failed = now.Add(firstTokenRetry), s.wrap(err)
	}
	if valid {
		return s.token, nil
	}
	return "", s.wrap(err)
}

func (s *tokenSource) wrap(err error) error {
	return fmt.Errorf("token for service account %s/%s: %w", s.namespace, s.account, err)
}

// request requests a token. It creates the service account if it does not exist.
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

// invalidate drops a token that the server has rejected.
func (s *tokenSource) invalidate(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token == token {
		s.renewAt, s.expires, s.failed = time.Time{}, time.Time{}, nil
	}
}

// tokenTransport adds the token to every request.
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
		t.tokens.invalidate(token)
	}
	return response, err
}
