package volume

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
)

// PodCertificates requests certificates for pods.
type PodCertificates interface {
	// Certificate returns a private key and the chain of certificates for it, both in
	// PEM, for a source of a projected volume. The first calls of a pod fail, until
	// the signer has issued it. It is renewed when the signer says so.
	Certificate(ctx context.Context, pod *v1.Pod, volume string, index int, source *v1.PodCertificateProjection) (key, chain []byte, err error)
	// Forget drops the keys of a pod.
	Forget(uid types.UID)
	// State returns upstream's name for the state of a source, "" if it is not known.
	State(uid types.UID, volume string, index int) string
}

// CertificateCache requests certificates by PodCertificateRequests (KEP-4317). It keeps
// the keys in memory alone: a kubelet that starts requests all certificates anew, and
// the volumes have the former ones meanwhile.
type CertificateCache struct {
	client kubernetes.Interface
	node   func() *v1.Node
	keys   *keyMaker

	mu           sync.Mutex // guards certificates
	certificates map[certificateKey]certificate

	// Recorder gets events about certificates that pods wait for or cannot renew. It may
	// be nil.
	Recorder record.EventRecorder
}

// NewCertificateCache returns a CertificateCache without certificates. node returns the
// Node of this kubelet, nil until it is known.
func NewCertificateCache(client kubernetes.Interface, node func() *v1.Node) *CertificateCache {
	return &CertificateCache{client: client, node: node, keys: newKeyMaker(), certificates: map[certificateKey]certificate{}}
}

type certificateKey struct {
	pod    types.UID
	volume string
	index  int // of the source in the volume
}

// certificate is what is known of one source of a volume.
type certificate struct {
	key, chain     []byte // in PEM; nil until the first one is issued
	renew, expires time.Time
	received       time.Time        // by the wall clock
	refused        string           // why the signer never issues one
	refusal        metav1.Condition // of the request, if it was refused
	saidOverdue    bool             // an event says that the renewal is overdue
	saidExpired    bool             // an event says that the certificate has expired
	pending        certificateRequest
}

// certificateRequest is a request that the signer has not answered. Without a name
// there is none.
type certificateRequest struct {
	name    string
	key     []byte    // in PEM
	abandon time.Time // when a request that cannot be read is gone
}

const (
	// certificateJitter spreads the renewals of pods that started together.
	certificateJitter = 5 * time.Minute
	// abandonRequest is how long a new request may not be readable yet.
	abandonRequest = 10 * time.Minute
)

var errNotIssued = errors.New("credential bundle is not issued yet")

// Certificate implements PodCertificates. A certificate that cannot be renewed because of
// an error is used until it expires, and one whose renewal the signer has not answered for
// longer: the pod sees what the signer left it with.
func (c *CertificateCache) Certificate(ctx context.Context, pod *v1.Pod, volume string, index int, source *v1.PodCertificateProjection) (key, chain []byte, err error) {
	at := certificateKey{pod.UID, volume, index}
	c.mu.Lock()
	known := c.certificates[at]
	c.mu.Unlock()
	err = c.advance(ctx, pod, at, source, &known)
	c.mu.Lock()
	c.certificates[at] = known
	c.mu.Unlock()
	switch {
	case known.refused != "":
		return nil, nil, errors.New(known.refused)
	case known.chain != nil && (err == nil || time.Now().Before(known.expires)):
		return known.key, known.chain, nil
	case err != nil:
		return nil, nil, err
	}
	return nil, nil, errNotIssued
}

// Forget implements PodCertificates.
func (c *CertificateCache) Forget(uid types.UID) {
	c.keys.forget(uid)
	c.mu.Lock()
	defer c.mu.Unlock()
	for at := range c.certificates {
		if at.pod == uid {
			delete(c.certificates, at)
		}
	}
}

// advance takes the next step for a certificate that is needed: it requests one, or
// looks whether the signer has answered.
func (c *CertificateCache) advance(ctx context.Context, pod *v1.Pod, at certificateKey, source *v1.PodCertificateProjection, known *certificate) error {
	now := time.Now()
	if known.refused != "" || known.fresh(now) {
		return nil
	}
	defer c.announce(pod, known, now)
	if known.pending.name == "" {
		pending, err := c.request(ctx, pod, at, source)
		if err != nil {
			return fmt.Errorf("request a certificate: %w", err)
		}
		known.pending = pending
		return nil
	}
	answer, err := c.client.CertificatesV1().PodCertificateRequests(pod.Namespace).Get(ctx, known.pending.name, metav1.GetOptions{})
	if err != nil {
		// To a node, a request that is gone is forbidden.
		if gone := apierrors.IsNotFound(err) || apierrors.IsForbidden(err); gone && now.After(known.pending.abandon) {
			known.pending = certificateRequest{}
		}
		return fmt.Errorf("get certificate request: %w", err)
	}
	known.take(&answer.Status, now)
	return nil
}

// fresh reports whether a certificate need not be renewed. One that was received in the future is
// not valid yet: the clock was set back since.
func (k *certificate) fresh(now time.Time) bool {
	now = now.Round(0)
	return k.chain != nil && now.Before(k.renew) && k.received.Sub(now) <= issuedLeeway
}

// take takes the answer of the signer over, if there is one.
func (k *certificate) take(status *certificatesv1.PodCertificateRequestStatus, now time.Time) {
	for i := range status.Conditions {
		switch condition := &status.Conditions[i]; condition.Type {
		case certificatesv1.PodCertificateRequestConditionTypeDenied:
			k.refused = fmt.Sprintf("PodCertificateRequest was permanently denied: reason=%q message=%q", condition.Reason, condition.Message)
			k.refusal = *condition
		case certificatesv1.PodCertificateRequestConditionTypeFailed:
			k.refused = fmt.Sprintf("PodCertificateRequest was permanently failed: reason=%q message=%q", condition.Reason, condition.Message)
			k.refusal = *condition
		case certificatesv1.PodCertificateRequestConditionTypeIssued:
			if status.BeginRefreshAt == nil || status.NotAfter == nil {
				continue // the API server requires both
			}
			*k = certificate{
				key: k.pending.key, chain: certificatesOf(status.CertificateChain),
				renew: status.BeginRefreshAt.Add(rand.N(certificateJitter)), expires: status.NotAfter.Time,
				received: now.Round(0),
			}
		}
	}
}

// certificatesOf returns the certificates of a chain in PEM, without what is between
// them and without their headers.
func certificatesOf(chain string) []byte {
	out := []byte{}
	for rest := []byte(chain); ; {
		block, more := pem.Decode(rest)
		if block == nil {
			return out
		}
		if block.Type == "CERTIFICATE" {
			out = append(out, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
		}
		rest = more
	}
}

// request makes a key and requests a certificate for it. If it cannot be requested,
// the key is kept for the next attempt.
func (c *CertificateCache) request(ctx context.Context, pod *v1.Pod, at certificateKey, source *v1.PodCertificateProjection) (certificateRequest, error) {
	node := c.node()
	if node == nil {
		return certificateRequest{}, errors.New("this node is not known yet")
	}
	account, err := c.client.CoreV1().ServiceAccounts(pod.Namespace).Get(ctx, pod.Spec.ServiceAccountName, metav1.GetOptions{})
	if err != nil {
		return certificateRequest{}, err
	}
	key, err := c.keys.get(ctx, pod.Namespace, at, source.KeyType)
	if err != nil {
		return certificateRequest{}, err
	}
	made, err := c.client.CertificatesV1().PodCertificateRequests(pod.Namespace).Create(ctx, &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: source.SignerName,
			PodName:    pod.Name, PodUID: pod.UID,
			ServiceAccountName: account.Name, ServiceAccountUID: account.UID,
			NodeName: types.NodeName(node.Name), NodeUID: node.UID,
			MaxExpirationSeconds: source.MaxExpirationSeconds, StubPKCS10Request: key.stub, UnverifiedUserAnnotations: source.UserAnnotations,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return certificateRequest{}, err
	}
	c.keys.used(at)
	return certificateRequest{made.Name, key.private, time.Now().Add(abandonRequest)}, nil
}
