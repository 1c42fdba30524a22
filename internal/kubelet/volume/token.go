package volume

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// TokenCache requests tokens that are bound to a pod. It renews a token after
// four fifths of its life, or after a day.
type TokenCache struct {
	Client kubernetes.Interface

	mu     sync.Mutex // guards tokens
	tokens map[tokenKey]token
}

type tokenKey struct {
	pod        types.UID
	account    string
	audience   string
	expiration int64
}

// token is a token with times of the wall clock, which the API server compares with its own.
type token struct {
	value   string
	issued  time.Time
	renew   time.Time
	expires time.Time
}

const (
	longestTokenUse = 24 * time.Hour
	// issuedLeeway is how far in the future a token or a certificate may have been issued. Servers
	// refuse others: their clock was set back, and most likely that of the node too.
	issuedLeeway = time.Minute
)

// fresh reports whether a token need not be renewed. The clock may have been set since it was
// issued.
func (k *token) fresh(now time.Time) bool {
	now = now.Round(0) // without the monotonic reading, by which the token would not age while the machine sleeps
	return k.value != "" && now.Before(k.renew) && k.issued.Sub(now) <= issuedLeeway
}

// Token implements Tokens. A token that cannot be renewed is used until it expires.
func (t *TokenCache) Token(ctx context.Context, pod *v1.Pod, audience string, expirationSeconds int64) (string, error) {
	value, _, err := t.Expiring(ctx, pod, audience, expirationSeconds)
	return value, err
}

// Expiring is like Token, and also returns when the token expires.
func (t *TokenCache) Expiring(ctx context.Context, pod *v1.Pod, audience string, expirationSeconds int64) (string, time.Time, error) {
	key := tokenKey{pod.UID, pod.Spec.ServiceAccountName, audience, expirationSeconds}
	t.mu.Lock()
	known := t.tokens[key]
	t.mu.Unlock()
	now := time.Now()
	if known.fresh(now) {
		return known.value, known.expires, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &expirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	answer, err := t.Client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		if known.value != "" && now.Before(known.expires) {
			return known.value, known.expires, nil
		}
		return "", time.Time{}, fmt.Errorf("failed to fetch token: %w", err)
	}
	fresh := token{value: answer.Status.Token, issued: now.Round(0), expires: answer.Status.ExpirationTimestamp.Time}
	life := fresh.expires.Sub(now)
	use := min(life*4/5, longestTokenUse)
	fresh.renew = now.Round(0).Add(use - time.Duration(rand.Int64N(10_000))*time.Millisecond)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tokens == nil {
		t.tokens = make(map[tokenKey]token)
	}
	t.tokens[key] = fresh
	return fresh.value, fresh.expires, nil
}

// Forget implements Tokens.
func (t *TokenCache) Forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.tokens {
		if key.pod == uid {
			delete(t.tokens, key)
		}
	}
}
