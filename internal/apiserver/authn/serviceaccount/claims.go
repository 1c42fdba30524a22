// Package serviceaccount issues and authenticates the tokens of service
// accounts. These are JSON Web Tokens with the claims of KEP-1205 (bound
// tokens) and KEP-4193 (credential ID, node binding), and have the discovery
// documents of KEP-1393.
package serviceaccount

import (
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/legacytoken"
)

const (
	// warnPeriod is the lifetime, in seconds, that the projected volumes of all
	// pods request. Such a token for the API server itself is valid for
	// extendedLifetime, because old clients do not read it again. Its use is
	// counted as stale after warnPeriod.
	warnPeriod       = 60*60 + 7
	extendedLifetime = 365 * 24 * time.Hour
	// boundObjectLeeway is how long a token stays valid after the deletion of
	// the object that it is bound to.
	boundObjectLeeway = 60 * time.Second
)

// claims are the claims of a token.
type claims struct {
	jwt.Claims
	Kubernetes bound `json:"kubernetes.io,omitempty"`
}

// markedInvalid is the error for a token whose secret has the label InvalidSince.
type markedInvalid struct{ *bound }

func (m *markedInvalid) Error() string {
	return fmt.Sprintf("the token in secret %s/%s for service account %s/%s has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '%s' label from the secret to temporarily allow use of this token",
		m.Namespace, m.Secret.Name, m.Namespace, m.ServiceAccount.Name, legacytoken.InvalidSince)
}

// legacyClaims are the private claims of a token that is stored in a secret.
type legacyClaims struct {
	Namespace  string    `json:"kubernetes.io/serviceaccount/namespace"`
	SecretName string    `json:"kubernetes.io/serviceaccount/secret.name"`
	Name       string    `json:"kubernetes.io/serviceaccount/service-account.name"`
	UID        types.UID `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

// bound converts the claims to the claims of a bound token.
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

// BoundObjects are the objects that a token is bound to; all may be nil.
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
