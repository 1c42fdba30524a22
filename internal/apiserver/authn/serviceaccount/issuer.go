package serviceaccount

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/faults"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/pki"
)

const (
	defaultExpirationSeconds = 60 * 60
	minimumExpirationSeconds = 10 * 60
	maximumExpirationSeconds = 1 << 32
)

// Options are the same for issuing and checking.
type Options struct {
	// Issuers are accepted; tokens are issued by the first.
	Issuers []string
	// Audiences are the API server's own (--api-audiences).
	Audiences []string
	Keys      *pki.TokenKeys
	Objects   objects.Source
	Clock     clock.PassiveClock
	// Refresh, if set, brings Objects up to what is stored now. It is called
	// before a token is refused because of an object that is missing, which
	// another API server may have just created.
	Refresh func(context.Context) error
	// MaxExpiration caps what clients ask for; 0 is no cap.
	MaxExpiration time.Duration
	// LegacyUnchecked accepts a token that is kept in a secret by its signature
	// alone, whether or not the secret and the account are there.
	LegacyUnchecked bool
	// Uses, if set, is told of each day on which a token in a secret is used.
	Uses *Uses
	// Counts counts the tokens that are used; nil counts nowhere.
	Counts *metrics.Tokens
	// ExtendExpiration gives pods' tokens for the API server a year.
	ExtendExpiration bool
}

// Issuer makes tokens.
type Issuer struct {
	o       Options
	pods    objects.Reader[*corev1.Pod]
	secrets objects.Reader[*corev1.Secret]
	nodes   objects.Reader[*corev1.Node]

	mu     sync.Mutex // guards signer and keys
	signer jose.Signer
	keys   *pki.KeySet // that signer was made from
}

// NewIssuer makes an Issuer.
func NewIssuer(o Options) *Issuer {
	return &Issuer{
		o:       o,
		pods:    objects.Of[*corev1.Pod](o.Objects, objects.Pods),
		secrets: objects.Of[*corev1.Secret](o.Objects, objects.Secrets),
		nodes:   objects.Of[*corev1.Node](o.Objects, objects.Nodes),
	}
}

// Default fills in what a TokenRequest leaves out.
func (i *Issuer) Default(spec *authenticationv1.TokenRequestSpec) {
	if spec.ExpirationSeconds == nil {
		seconds := int64(defaultExpirationSeconds)
		spec.ExpirationSeconds = &seconds
	}
	if len(spec.Audiences) == 0 {
		spec.Audiences = slices.Clone(i.o.Audiences)
	}
}

// Validate names what a client may not ask for.
func Validate(spec *authenticationv1.TokenRequestSpec) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "expirationSeconds")
	if spec.ExpirationSeconds == nil {
		return errs
	}
	if *spec.ExpirationSeconds < minimumExpirationSeconds {
		errs = append(errs, field.Invalid(path, *spec.ExpirationSeconds, "may not specify a duration less than 10 minutes"))
	}
	if *spec.ExpirationSeconds > maximumExpirationSeconds {
		errs = append(errs, field.Invalid(path, *spec.ExpirationSeconds, "may not specify a duration larger than 2^32 seconds"))
	}
	return errs
}

// Answer fills in the status of a TokenRequest for the service account: it
// defaults and validates the request, finds the bound object, and signs.
// Errors are API statuses. A request may name the account it is for, and its
// UID; an answer does.
func (i *Issuer) Answer(ctx context.Context, sa *corev1.ServiceAccount, req *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	out, kind := req.DeepCopy(), schema.GroupKind{Group: authenticationv1.GroupName, Kind: "TokenRequest"}
	if req.Name != "" && req.Name != sa.Name {
		return nil, apierrors.NewInvalid(kind, sa.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "name"), req.Name, "must match the service account name if specified"),
		})
	}
	if req.UID != "" && req.UID != sa.UID {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, sa.Name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", req.UID, sa.UID))
	}
	i.Default(&out.Spec)
	if errs := Validate(&out.Spec); len(errs) > 0 {
		return nil, faults.Invalid(kind, "", errs)
	}
	to, err := i.find(sa, out.Spec.BoundObjectRef)
	if err != nil {
		return nil, err
	}
	if limit := int64(i.o.MaxExpiration / time.Second); limit > 0 && *out.Spec.ExpirationSeconds > limit {
		warning.AddWarning(ctx, "", fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", *out.Spec.ExpirationSeconds, limit))
		out.Spec.ExpirationSeconds = &limit
	}
	token, expiry, err := i.Issue(ctx, sa, out.Spec, to)
	if err != nil {
		return nil, err
	}
	out.Name, out.Namespace, out.UID = sa.Name, sa.Namespace, sa.UID
	out.CreationTimestamp = metav1.NewTime(i.o.Clock.Now().Truncate(time.Second))
	out.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(expiry)}
	return out, nil
}

// Issue signs a token for the spec, which Default has completed. expiry is
// what the client is told; an extended token is good for longer.
func (i *Issuer) Issue(_ context.Context, sa *corev1.ServiceAccount, spec authenticationv1.TokenRequestSpec, to BoundObjects) (token string, expiry time.Time, err error) {
	now := i.o.Clock.Now()
	asked := time.Duration(*spec.ExpirationSeconds) * time.Second
	lifetime, warnAfter := asked, time.Duration(0)
	if i.o.ExtendExpiration && to.Pod != nil && *spec.ExpirationSeconds == WarnPeriod && i.ownAudiences(spec.Audiences) {
		lifetime, warnAfter = ExtendedLifetime, asked
	}
	signer, err := i.signerNow()
	if err != nil {
		return "", time.Time{}, err
	}
	c := claimsFor(i.o.Issuers[0], uuid.NewString(), sa, to, spec.Audiences, now, lifetime, warnAfter)
	token, err = jwt.Signed(signer).Claims(c).Serialize()
	if err != nil {
		return "", time.Time{}, fmt.Errorf("signing a token for service account %s/%s: %w", sa.Namespace, sa.Name, err)
	}
	return token, now.Add(asked), nil
}

func (i *Issuer) ownAudiences(audiences []string) bool {
	for _, a := range audiences {
		if !slices.Contains(i.o.Audiences, a) {
			return false
		}
	}
	return true
}

// find returns the object that the request names and that the token may be
// bound to.
func (i *Issuer) find(sa *corev1.ServiceAccount, ref *authenticationv1.BoundObjectReference) (BoundObjects, error) {
	var to BoundObjects
	if ref == nil {
		return to, nil
	}
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	var uid types.UID
	switch {
	case gvk.Group == "" && gvk.Kind == "Pod":
		pod, ok := i.pods.Get(sa.Namespace, ref.Name)
		if !ok {
			return to, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, ref.Name)
		}
		if pod.Spec.ServiceAccountName != sa.Name {
			return to, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", sa.Name))
		}
		to.Pod, uid = pod, pod.UID
		if pod.Spec.NodeName != "" {
			node, ok := i.nodes.Get("", pod.Spec.NodeName)
			if !ok {
				node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pod.Spec.NodeName}}
			}
			to.Node = node
		}
	case gvk.Group == "" && gvk.Kind == "Secret":
		secret, ok := i.secrets.Get(sa.Namespace, ref.Name)
		if !ok {
			return to, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, ref.Name)
		}
		to.Secret, uid = secret, secret.UID
	case gvk.Group == "" && gvk.Kind == "Node":
		node, ok := i.nodes.Get("", ref.Name)
		if !ok {
			return to, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, ref.Name)
		}
		to.Node, uid = node, node.UID
	default:
		return to, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", gvk))
	}
	if ref.UID != "" && ref.UID != uid {
		return to, apierrors.NewConflict(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	}
	return to, nil
}

func (i *Issuer) signerNow() (jose.Signer, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	keys := i.o.Keys.Current()
	if keys == i.keys {
		return i.signer, nil
	}
	algorithm, err := algorithmOf(keys.Signing.Public())
	if err != nil {
		return nil, err
	}
	id, err := keyID(keys.Signing.Public())
	if err != nil {
		return nil, err
	}
	signer, err := jose.NewSigner(jose.SigningKey{
		Algorithm: algorithm,
		Key:       jose.JSONWebKey{Key: keys.Signing, KeyID: id, Algorithm: string(algorithm)},
	}, nil)
	if err != nil {
		return nil, err
	}
	i.signer, i.keys = signer, keys
	return signer, nil
}

func algorithmOf(public crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch key := public.(type) {
	case *rsa.PublicKey:
		return jose.RS256, nil
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return jose.ES256, nil
		case elliptic.P384():
			return jose.ES384, nil
		case elliptic.P521():
			return jose.ES512, nil
		}
	}
	return "", fmt.Errorf("service account key: must be RSA or ECDSA (P-256, P-384, P-521), is %T", public)
}

// keyID names a key by the hash of its public half, as upstream does.
func keyID(public crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}
