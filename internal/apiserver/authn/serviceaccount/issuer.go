package serviceaccount

import (
	"cmp"
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
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
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/errorlist"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/pki"
)

const (
	defaultExpirationSeconds = 60 * 60
	minimumExpirationSeconds = 10 * 60
	maximumExpirationSeconds = 1 << 32
)

// Options are the settings of an Issuer and an Authenticator.
type Options struct {
	// Issuers are the accepted issuers. New tokens have the first.
	Issuers []string
	// Audiences are the API server's own (--api-audiences).
	Audiences []string
	Keys      *pki.TokenKeys
	Objects   objects.Source
	Clock     clock.PassiveClock
	// Refresh, if set, updates Objects to the state of the store. It is called
	// before a token is refused because of a missing object, which another API
	// server may have just created.
	Refresh func(context.Context) error
	// MaxExpiration caps the lifetime that clients request; 0 is no cap.
	MaxExpiration time.Duration
	// LegacyUnchecked accepts a token of a secret by its signature alone,
	// whether or not the secret and the service account exist.
	LegacyUnchecked bool
	// Uses, if set, records the days on which tokens of secrets are used.
	Uses *Uses
	// Counts counts the tokens used; nil disables it.
	Counts *metrics.Tokens
	// ExtendExpiration extends the lifetime of pods' tokens for the API server
	// to a year.
	ExtendExpiration bool
	// OtherUIDs answers requests that name another UID than the service account has,
	// with a warning.
	OtherUIDs bool
}

// Issuer signs service account tokens.
type Issuer struct {
	o       Options
	pods    objects.Reader[*corev1.Pod]
	secrets objects.Reader[*corev1.Secret]
	nodes   objects.Reader[*corev1.Node]

	mu     sync.Mutex // guards signer and keys
	signer jose.Signer
	keys   *pki.KeySet // that signer was built from
}

// NewIssuer returns an Issuer. It uses only part of the options.
func NewIssuer(o Options) *Issuer {
	return &Issuer{
		o:       o,
		pods:    objects.Of[*corev1.Pod](o.Objects, objects.Pods),
		secrets: objects.Of[*corev1.Secret](o.Objects, objects.Secrets),
		nodes:   objects.Of[*corev1.Node](o.Objects, objects.Nodes),
	}
}

// Default sets the unset fields of a TokenRequest.
func (i *Issuer) Default(spec *authenticationv1.TokenRequestSpec) {
	if spec.ExpirationSeconds == nil {
		seconds := int64(defaultExpirationSeconds)
		spec.ExpirationSeconds = &seconds
	}
	if len(spec.Audiences) == 0 {
		spec.Audiences = slices.Clone(i.o.Audiences)
	}
}

// Validate returns the errors of a TokenRequest.
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

// Answer returns a TokenRequest with its status for the service account. It
// defaults and validates the request, looks up the bound object, and signs the
// token. Errors are API statuses. A request may name the service account and
// its UID; the result always does. With OtherUIDs, it repeats a UID that the service
// account does not have.
func (i *Issuer) Answer(ctx context.Context, sa *corev1.ServiceAccount, req *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	out, kind := req.DeepCopy(), schema.GroupKind{Group: authenticationv1.GroupName, Kind: "TokenRequest"}
	if req.Name != "" && req.Name != sa.Name {
		return nil, apierrors.NewInvalid(kind, sa.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "name"), req.Name, "must match the service account name if specified"),
		})
	}
	if req.UID != "" && req.UID != sa.UID {
		mismatch := fmt.Sprintf("the UID in the token request (%s) does not match the UID of the service account (%s)", req.UID, sa.UID)
		if !i.o.OtherUIDs {
			return nil, apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, sa.Name, errors.New(mismatch))
		}
		audit.AddAuditAnnotation(ctx, "authentication.k8s.io/token-request-uid-mismatch", mismatch)
		warning.AddWarning(ctx, "", mismatch+" but TokenRequestServiceAccountUIDValidation is not enabled. In the future, this will return a conflict error")
	}
	i.Default(&out.Spec)
	if errs := Validate(&out.Spec); len(errs) > 0 {
		return nil, errorlist.Invalid(kind, "", errs)
	}
	to, err := i.boundObjects(sa, out.Spec.BoundObjectRef)
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
	out.Name, out.Namespace, out.UID = sa.Name, sa.Namespace, cmp.Or(req.UID, sa.UID)
	out.CreationTimestamp = metav1.NewTime(i.o.Clock.Now().Truncate(time.Second))
	out.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(expiry)}
	return out, nil
}

// Issue signs a token for a spec that Default has completed. The returned
// expiry is the one that clients see; an extended token is valid for longer.
func (i *Issuer) Issue(_ context.Context, sa *corev1.ServiceAccount, spec authenticationv1.TokenRequestSpec, to BoundObjects) (token string, expiry time.Time, err error) {
	now := i.o.Clock.Now()
	requested := time.Duration(*spec.ExpirationSeconds) * time.Second
	lifetime, warnAfter := requested, time.Duration(0)
	if i.o.ExtendExpiration && to.Pod != nil && *spec.ExpirationSeconds == warnPeriod && i.ownAudiences(spec.Audiences) {
		lifetime, warnAfter = extendedLifetime, requested
	}
	signer, err := i.currentSigner()
	if err != nil {
		return "", time.Time{}, err
	}
	c := claimsFor(i.o.Issuers[0], uuid.NewString(), sa, to, spec.Audiences, now, lifetime, warnAfter)
	token, err = jwt.Signed(signer).Claims(c).Serialize()
	if err != nil {
		return "", time.Time{}, fmt.Errorf("signing a token for service account %s/%s: %w", sa.Namespace, sa.Name, err)
	}
	return token, now.Add(requested), nil
}

func (i *Issuer) ownAudiences(audiences []string) bool {
	for _, a := range audiences {
		if !slices.Contains(i.o.Audiences, a) {
			return false
		}
	}
	return true
}

// boundObjects returns the objects to which the request binds the token.
func (i *Issuer) boundObjects(sa *corev1.ServiceAccount, ref *authenticationv1.BoundObjectReference) (BoundObjects, error) {
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

func (i *Issuer) currentSigner() (jose.Signer, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	keys := i.o.Keys.Current()
	if keys == i.keys {
		return i.signer, nil
	}
	algorithm, err := pki.TokenAlgorithm(keys.Signing.Public())
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

// keyID returns the ID of a key: the hash of its public key, as upstream's.
func keyID(public crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}
