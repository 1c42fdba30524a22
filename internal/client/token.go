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
	// tokenRetry is how long after a failure no token is asked for.
	tokenRetry = 10 * time.Second
	// firstTokenRetry is that while there is no valid token.
	firstTokenRetry = time.Second
)

// tokenSource keeps a valid token of a service account, from TokenRequest.
type tokenSource struct {
	client             kubernetes.Interface
	namespace, account string
	now                func() time.Time

	requesting chan struct{} // holds a token while one is requested

	mu      sync.Mutex // guards the following
	token   string
	renewAt time.Time
	expires time.Time
	failed  error // why there was none when it was last requested
}

func newTokenSource(c kubernetes.Interface, namespace, account string) *tokenSource {
	return &tokenSource{client: c, namespace: namespace, account: account, now: time.Now, requesting: make(chan struct{}, 1)}
}

// get returns a valid token. When it cannot be renewed, the old one serves
// until it expires. One caller at a time requests a token; the others go on with
// the old one, or wait for the new one no longer than until their ctx ends.
func (s *tokenSource) get(ctx context.Context) (string, error) {
	token, due, err := s.have()
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
			return "", s.because(ctx.Err())
		}
	}
	defer func() { <-s.requesting }()
	if token, due, err := s.have(); !due {
		return token, err
	}
	return s.renew(ctx)
}

// have returns the token if it is valid, else "" and why there is none. due
// says that it is time to request one.
func (s *tokenSource) have() (token string, due bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if now.Before(s.expires) {
		return s.token, !now.Before(s.renewAt), nil
	}
	return "", s.failed == nil || !now.Before(s.renewAt), s.failed
}

// renew requests a token. After a failure none is requested for a while, unless
// it was the caller that gave up.
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
		s.renewAt, s.failed = now.Add(firstTokenRetry), s.because(err)
	}
	if valid {
		return s.token, nil
	}
	return "", s.because(err)
}

func (s *tokenSource) because(err error) error {
	return fmt.Errorf("token for service account %s/%s: %w", s.namespace, s.account, err)
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
		s.renewAt, s.expires, s.failed = time.Time{}, time.Time{}, nil
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
