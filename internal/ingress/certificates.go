package ingress

import (
	"crypto"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"

	v1 "k8s.io/api/core/v1"
)

const (
	// maxCertificate and maxKey bound a chain of certificates and a key in PEM, in
	// bytes. An RSA key of 8192 bits has about 6,400.
	maxCertificate, maxKey = 64 << 10, 8 << 10
	// maxRSABits bounds an RSA key. The time of a handshake grows with its third
	// power, and clients refuse larger ones.
	maxRSABits = 8192
	// quickRSABits is the size of RSA keys up to which a signature costs no more than the rest
	// of a handshake. One with a key of maxRSABits takes a hundred times as long, and costs the
	// client nothing.
	quickRSABits = 2048
	// maxSignatures bounds the signatures with longer keys of a namespace that are made or
	// waited for.
	maxSignatures = 1024
)

// Errors of certificates, for events.
var (
	errNoSecret = errors.New("there is no Secret of that name with the type " + string(v1.SecretTypeTLS))
	errTooLarge = fmt.Errorf("%s has more than %d bytes, or %s more than %d", v1.TLSCertKey, maxCertificate, v1.TLSPrivateKeyKey, maxKey)
)

// errBusy is the error of a handshake for which there is no room.
var errBusy = errors.New("too many clients wait for signatures with long keys of the namespace")

// signatures bounds those that are made with the long keys of a namespace at a time, to a
// quarter of the processors: the others have handshakes, too, and the node other work.
type signatures struct {
	room  chan struct{} // has an element for each that is made or waited for
	turns chan struct{} // has an element for each that is made
}

func newSignatures() *signatures {
	return &signatures{room: make(chan struct{}, maxSignatures), turns: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/4))}
}

// longKey is a private key whose signatures take turns.
type longKey struct {
	crypto.Signer
	of *signatures
}

// Sign implements crypto.Signer. It returns errBusy if too many others wait.
func (k longKey) Sign(random io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	select {
	case k.of.room <- struct{}{}:
	default:
		return nil, errBusy
	}
	defer func() { <-k.of.room }()
	k.of.turns <- struct{}{}
	defer func() { <-k.of.turns }()
	return k.Signer.Sign(random, digest, opts)
}

// certificates parses the certificates of Secrets, and remembers them while an Ingress
// refers to them. One goroutine uses it.
type certificates struct {
	secret func(namespace, name string) *v1.Secret // nil if there is none

	parsed map[certificateKey]parsed
	used   map[certificateKey]bool // since the last call of forget
	signed map[string]*signatures  // by namespace
}

type certificateKey struct{ namespace, name string }

// parsed is what a Secret was parsed to.
type parsed struct {
	version     string // of the Secret
	certificate *tls.Certificate
	err         error
}

// get returns the certificate in a Secret.
func (c *certificates) get(namespace, name string) (*tls.Certificate, error) {
	key := certificateKey{namespace, name}
	s := c.secret(namespace, name)
	if s == nil || s.Type != v1.SecretTypeTLS {
		return nil, errNoSecret
	}
	if c.parsed == nil {
		c.parsed, c.used, c.signed = map[certificateKey]parsed{}, map[certificateKey]bool{}, map[string]*signatures{}
	}
	c.used[key] = true
	known, ok := c.parsed[key]
	if !ok || known.version != string(s.UID)+s.ResourceVersion {
		known = parsed{version: string(s.UID) + s.ResourceVersion}
		if known.certificate, known.err = parseCertificate(s); known.err == nil {
			c.bound(namespace, known.certificate)
		}
		c.parsed[key] = known
	}
	return known.certificate, known.err
}

// bound makes the signatures with the key of a certificate take turns, if they take long.
func (c *certificates) bound(namespace string, of *tls.Certificate) {
	private, ok := of.PrivateKey.(*rsa.PrivateKey)
	if !ok || private.N.BitLen() <= quickRSABits {
		return
	}
	if c.signed[namespace] == nil {
		c.signed[namespace] = newSignatures()
	}
	of.PrivateKey = longKey{private, c.signed[namespace]}
}

// forget forgets what was not used since the last call.
func (c *certificates) forget() {
	namespaces := map[string]bool{}
	for key := range c.parsed {
		if !c.used[key] {
			delete(c.parsed, key)
			continue
		}
		namespaces[key.namespace] = true
	}
	maps.DeleteFunc(c.signed, func(namespace string, _ *signatures) bool { return !namespaces[namespace] })
	clear(c.used)
}

// parseCertificate returns the certificate in a Secret. A key that would take long to
// read or to use is an error.
func parseCertificate(s *v1.Secret) (*tls.Certificate, error) {
	chain, key := s.Data[v1.TLSCertKey], s.Data[v1.TLSPrivateKeyKey]
	if isTooLarge(s) {
		return nil, errTooLarge
	}
	first, _ := pem.Decode(chain)
	if first == nil || first.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%s does not begin with a certificate in PEM", v1.TLSCertKey)
	}
	leaf, err := x509.ParseCertificate(first.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v1.TLSCertKey, err)
	}
	if public, ok := leaf.PublicKey.(*rsa.PublicKey); ok && public.N.BitLen() > maxRSABits {
		return nil, fmt.Errorf("%s: the key has %d bits, more than %d", v1.TLSCertKey, public.N.BitLen(), maxRSABits)
	}
	certificate, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, err
	}
	return &certificate, nil
}

// isTooLarge reports whether a Secret has a larger certificate or key than is used.
// Reduced Secrets have marks of that size and no content.
func isTooLarge(s *v1.Secret) bool {
	return len(s.Data[v1.TLSCertKey]) > maxCertificate || len(s.Data[v1.TLSPrivateKeyKey]) > maxKey
}
