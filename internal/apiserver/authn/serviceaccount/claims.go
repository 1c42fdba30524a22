// Package serviceaccount issues and checks the tokens of service accounts:
// JSON Web Tokens with the claims of KEP-1205 (bound tokens), KEP-4193
// (credential id, node binding) and the discovery documents of KEP-1393.
package serviceaccount

import (
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// WarnPeriod is the lifetime, in seconds, that the projected volume of
	// every pod asks for. Such a token for the API server itself lives for
	// ExtendedLifetime, because old clients do not reread it, and is warned
	// about once WarnPeriod is over.
	WarnPeriod       = 60*60 + 7
	ExtendedLifetime = 365 * 24 * time.Hour
	// boundObjectLeeway is how long a token outlives the deletion of what it is bound to.
	boundObjectLeeway = 60 * time.Second
)

// claims is what a token says.
type claims struct {
	jwt.Claims
	Kubernetes bound `json:"kubernetes.io,omitempty"`
}

// legacyIssuer is that of the tokens that are kept in secrets. They hold for
// the API server's own audiences and never expire.
const legacyIssuer = "kubernetes/serviceaccount"

// invalidSince is the label of a secret whose token must not be used any more
// (KEP-2799). Who takes it away allows the token again.
const invalidSince = "kubernetes.io/legacy-token-invalid-since"

// markedInvalid is why a token is refused whose secret has that label.
type markedInvalid struct{ *bound }

func (m *markedInvalid) Error() string {
	return fmt.Sprintf("the token in secret %s/%s for service account %s/%s has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '%s' label from the secret to temporarily allow use of this token",
		m.Namespace, m.Secret.Name, m.Namespace, m.ServiceAccount.Name, invalidSince)
}

// legacyClaims is what a token that is kept in a secret says.
type legacyClaims struct {
	Namespace  string    `json:"kubernetes.io/serviceaccount/namespace"`
	SecretName string    `json:"kubernetes.io/serviceaccount/secret.name"`
	Name       string    `json:"kubernetes.io/serviceaccount/service-account.name"`
	UID        types.UID `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

// bound is the same in the words of bound tokens.
func (l *legacyClaims) bound() bound {
	return bound{
		Namespace: l.Namespace, Secret: &reference{Name: l.SecretName},
		ServiceAccount: reference{Name: l.Name, UID: l.UID},
	}
}

type bound struct {
	Namespace      string           `json:"namespace,omitempty"`
	Node           *reference       `json:"node,omitempty"`
	Pod            *reference       `json:"pod,omitempty"`
	Secret         *reference       `json:"secret,omitempty"`
	ServiceAccount reference        `json:"serviceaccount"`
	WarnAfter      *jwt.NumericDate `json:"warnafter,omitempty"`
}

type reference struct {
	Name string    `json:"name,omitempty"`
	UID  types.UID `json:"uid,omitempty"`
}

// BoundObjects are what a token shall be bound to; all may be nil.
type BoundObjects struct {
	Pod    *corev1.Pod
	Secret *corev1.Secret
	Node   *corev1.Node // with Pod: the node that the pod runs on
}

func claimsFor(issuer, id string, sa *corev1.ServiceAccount, to BoundObjects, audiences []string, now time.Time, lifetime, warnAfter time.Duration) claims {
	c := claims{
		Claims: jwt.Claims{
			Issuer:    issuer,
			Subject:   "system:serviceaccount:" + sa.Namespace + ":" + sa.Name,
			Audience:  jwt.Audience(audiences),
			IssuedAt:  jwt.NewNumericDate(now),
			NotBefore: jwt.NewNumericDate(now),
			Expiry:    jwt.NewNumericDate(now.Add(lifetime)),
			ID:        id,
		},
		Kubernetes: bound{
			Namespace:      sa.Namespace,
			ServiceAccount: reference{Name: sa.Name, UID: sa.UID},
		},
	}
	if to.Pod != nil {
		c.Kubernetes.Pod = &reference{Name: to.Pod.Name, UID: to.Pod.UID}
	}
	if to.Secret != nil {
		c.Kubernetes.Secret = &reference{Name: to.Secret.Name, UID: to.Secret.UID}
	}
	if to.Node != nil {
		c.Kubernetes.Node = &reference{Name: to.Node.Name, UID: to.Node.UID}
	}
	if warnAfter != 0 {
		c.Kubernetes.WarnAfter = jwt.NewNumericDate(now.Add(warnAfter))
	}
	return c
}
