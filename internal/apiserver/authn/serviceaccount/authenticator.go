package serviceaccount

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/legacytoken"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/pki"
)

// These bound the cache of tokens with a valid signature: their number, their
// total size and the size of one, in bytes. Clients choose the audiences of
// their tokens, so that long ones are not cached.
const (
	maxVerified      = 4096
	maxVerifiedBytes = 8 << 20
	maxVerifiedToken = 16 << 10
)

// Authenticator authenticates service account tokens. It verifies the signature
// of a token once, and on every request its time, its audiences and the objects
// that it is bound to.
type Authenticator struct {
	o        Options
	accounts objects.Reader[*corev1.ServiceAccount]
	pods     objects.Reader[*corev1.Pod]
	secrets  objects.Reader[*corev1.Secret]
	nodes    objects.Reader[*corev1.Node]

	mu            sync.RWMutex // guards the following
	keys          *pki.KeySet
	byID          map[string]any // verification keys by key id
	verified      map[digest]*verifiedToken
	verifiedBytes int // total size of the cached tokens
}

// digest is the SHA-256 of a token. Tokens themselves are not cached.
type digest [sha256.Size]byte

type verifiedToken struct {
	claims claims
	legacy string // the token of a secret, which is compared with the secret's
	user   user.Info
}

// NewAuthenticator returns an Authenticator.
func NewAuthenticator(o Options) *Authenticator {
	if o.Counts == nil {
		o.Counts = metrics.NewTokens()
	}
	return &Authenticator{
		o:        o,
		accounts: objects.Of[*corev1.ServiceAccount](o.Objects, objects.ServiceAccounts),
		pods:     objects.Of[*corev1.Pod](o.Objects, objects.Pods),
		secrets:  objects.Of[*corev1.Secret](o.Objects, objects.Secrets),
		nodes:    objects.Of[*corev1.Node](o.Objects, objects.Nodes),
	}
}

// AuthenticateToken implements authenticator.Token. For a token of another
// issuer it returns false and no error.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	v, err := a.verify(token)
	if v == nil || err != nil {
		return nil, false, err
	}
	accepted, wanted := authenticator.Audiences(v.claims.Audience), authenticator.Audiences(a.o.Audiences)
	if requested, ok := authenticator.AudiencesFrom(ctx); ok {
		wanted = requested
	}
	if len(accepted) == 0 {
		accepted = a.o.Audiences
	}
	audiences := accepted.Intersect(wanted)
	if len(audiences) == 0 && len(wanted) > 0 {
		return nil, false, fmt.Errorf("token audiences %q is invalid for the target audiences %q", accepted, wanted)
	}
	now := a.o.Clock.Now()
	err = a.checkBound(v, now)
	if err != nil && a.o.Refresh != nil && a.o.Refresh(ctx) == nil {
		err = a.checkBound(v, now)
	}
	if v.legacy != "" {
		a.recordUse(ctx, v, err, now)
	}
	if err != nil {
		return nil, false, err
	}
	switch w := v.claims.Kubernetes.WarnAfter; {
	case v.legacy != "":
	case w != nil && w.Time().Before(now):
		a.o.Counts.Stale.Inc()
		audit.AddAuditAnnotation(ctx, "authentication.k8s.io/stale-token",
			fmt.Sprintf("subject: %s, seconds after warning threshold: %.0f", v.claims.Subject, now.Sub(w.Time()).Seconds()))
	default:
		a.o.Counts.Valid.Inc()
	}
	return &authenticator.Response{User: v.user, Audiences: audiences}, true, nil
}

// verify verifies the signature of a token and returns its claims. It returns
// nil if the token is not of our issuers.
func (a *Authenticator) verify(token string) (*verifiedToken, error) {
	keys := a.o.Keys.Current()
	var key digest
	if len(token) <= maxVerifiedToken {
		key = sha256.Sum256([]byte(token))
	}
	a.mu.RLock()
	v, byID := a.verified[key], a.byID
	current := a.keys == keys
	a.mu.RUnlock()
	if v != nil && current {
		return v, nil
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512})
	if err != nil {
		return nil, nil
	}
	var c claims
	if err := parsed.UnsafeClaimsWithoutVerification(&c); err != nil || c.Issuer != legacytoken.Issuer && !slices.Contains(a.o.Issuers, c.Issuer) {
		return nil, nil
	}
	if !current {
		if byID, err = a.setKeys(keys); err != nil {
			return nil, err
		}
	}
	if err := checkSignature(parsed, byID, &c); err != nil {
		return nil, err
	}
	legacy := ""
	if c.Issuer == legacytoken.Issuer {
		var l legacyClaims
		if err := parsed.UnsafeClaimsWithoutVerification(&l); err != nil {
			return nil, err
		}
		c.Kubernetes, c.Audience, legacy = l.bound(), nil, strings.Clone(token) // a copy, so that the request's header is freed
	}
	namespace, name, err := serviceaccount.SplitUsername(c.Subject)
	if err != nil || namespace != c.Kubernetes.Namespace || name != c.Kubernetes.ServiceAccount.Name {
		return nil, fmt.Errorf("token's subject %q does not name its service account", c.Subject)
	}
	v = &verifiedToken{claims: c, legacy: legacy, user: userOf(&c)}
	if len(token) <= maxVerifiedToken {
		a.cache(key, v, len(token), keys)
	}
	return v, nil
}

// cache caches a token whose signature was verified with keys. It clears the
// cache if that is full.
func (a *Authenticator) cache(key digest, v *verifiedToken, bytes int, keys *pki.KeySet) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.keys != keys {
		return
	}
	if a.verified == nil || len(a.verified) >= maxVerified || a.verifiedBytes+bytes > maxVerifiedBytes {
		a.verified, a.verifiedBytes = map[digest]*verifiedToken{}, 0
	}
	if a.verified[key] == nil {
		a.verifiedBytes += bytes
	}
	a.verified[key] = v
}

// setKeys changes the verification keys and clears the cache.
func (a *Authenticator) setKeys(keys *pki.KeySet) (map[string]any, error) {
	byID := map[string]any{}
	for _, public := range keys.Verification {
		id, err := keyID(public)
		if err != nil {
			return nil, err
		}
		byID[id] = public
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys, a.byID, a.verified, a.verifiedBytes = keys, byID, nil, 0
	return byID, nil
}

func checkSignature(parsed *jwt.JSONWebToken, byID map[string]any, into *claims) error {
	if len(parsed.Headers) == 1 && parsed.Headers[0].KeyID != "" {
		public, ok := byID[parsed.Headers[0].KeyID]
		if !ok {
			return errors.New("token is signed with a key that is not known")
		}
		return parsed.Claims(public, into)
	}
	err := errors.New("token's signature fits none of the keys")
	for _, public := range byID {
		if e := parsed.Claims(public, into); e == nil {
			return nil
		}
	}
	return err
}

func userOf(c *claims) user.Info {
	k := c.Kubernetes
	info := serviceaccount.ServiceAccountInfo{Namespace: k.Namespace, Name: k.ServiceAccount.Name, UID: string(k.ServiceAccount.UID)}
	if k.Pod != nil {
		info.PodName, info.PodUID = k.Pod.Name, string(k.Pod.UID)
	}
	if k.Node != nil {
		info.NodeName, info.NodeUID = k.Node.Name, string(k.Node.UID)
	}
	if c.ID != "" {
		info.CredentialID = tokenjwt.CredentialIDForJTI(c.ID)
	}
	return info.UserInfo()
}

// checkBound checks the token's time, for which the clock of the server that
// issued it may differ by a minute, and the objects that it is bound to. An
// object that is being deleted counts for one more minute.
func (a *Authenticator) checkBound(v *verifiedToken, now time.Time) error {
	c := &v.claims
	err := c.ValidateWithLeeway(jwt.Expected{Time: now}, jwt.DefaultLeeway)
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return errors.New("service account token has expired")
	case errors.Is(err, jwt.ErrIssuedInTheFuture):
		return errors.New("service account token is issued in the future")
	case err != nil:
		return fmt.Errorf("service account token is not valid yet: %w", err)
	}
	if v.legacy != "" && a.o.LegacyUnchecked {
		return nil
	}
	k := &c.Kubernetes
	account, ok := a.accounts.Get(k.Namespace, k.ServiceAccount.Name)
	if !ok {
		return fmt.Errorf("serviceaccounts %q not found", k.ServiceAccount.Name)
	}
	if gone(account.DeletionTimestamp, now) {
		return fmt.Errorf("service account %s/%s has been deleted", k.Namespace, k.ServiceAccount.Name)
	}
	if account.UID != k.ServiceAccount.UID {
		return fmt.Errorf("service account UID (%s) does not match claim (%s)", account.UID, k.ServiceAccount.UID)
	}
	if k.Secret != nil {
		secret, ok := a.secrets.Get(k.Namespace, k.Secret.Name)
		if !ok || gone(secret.DeletionTimestamp, now) || v.legacy == "" && secret.UID != k.Secret.UID ||
			v.legacy != "" && string(secret.Data[corev1.ServiceAccountTokenKey]) != v.legacy {
			return fmt.Errorf("service account token has been invalidated: secret %s is gone", k.Secret.Name)
		}
		if v.legacy != "" && secret.Labels[legacytoken.InvalidSince] != "" {
			return &markedInvalid{k}
		}
	}
	if k.Pod != nil {
		pod, ok := a.pods.Get(k.Namespace, k.Pod.Name)
		if !ok || pod.UID != k.Pod.UID || gone(pod.DeletionTimestamp, now) {
			return fmt.Errorf("service account token has been invalidated: pod %s is gone", k.Pod.Name)
		}
	} else if k.Node != nil {
		node, ok := a.nodes.Get("", k.Node.Name)
		if !ok || node.UID != k.Node.UID || gone(node.DeletionTimestamp, now) {
			return fmt.Errorf("service account token has been invalidated: node %s is gone", k.Node.Name)
		}
	}
	return nil
}

// gone reports whether an object was deleted at least boundObjectLeeway ago.
func gone(deletion *metav1.Time, now time.Time) bool {
	return deletion != nil && deletion.Add(boundObjectLeeway).Before(now)
}
