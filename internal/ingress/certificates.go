package ingress

import (
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
)

const (
	// maxCertificate and maxKey bound a chain of certificates and a key in PEM, in
	// bytes. An RSA key of 8192 bits has about 6,400.
	maxCertificate, maxKey = 64 << 10, 8 << 10
	// maxRSABits bounds an RSA key. The time of a handshake grows with its third
	// power, and clients refuse larger ones.
	maxRSABits = 8192
)

// Errors of certificates, for events.
var (
	errNoSecret = errors.New("there is no Secret of that name with the type " + string(v1.SecretTypeTLS))
	errTooLarge = fmt.Errorf("%s has more than %d bytes, or %s more than %d", v1.TLSCertKey, maxCertificate, v1.TLSPrivateKeyKey, maxKey)
)

// certificates parses the certificates of Secrets, and remembers them while an Ingress
// refers to them. One goroutine uses it.
type certificates struct {
	secret func(namespace, name string) *v1.Secret // nil if there is none

	parsed map[certificateKey]parsed
	used   map[certificateKey]bool // since the last call of forget
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
		c.parsed, c.used = map[certificateKey]parsed{}, map[certificateKey]bool{}
	}
	c.used[key] = true
	known, ok := c.parsed[key]
	if !ok || known.version != string(s.UID)+s.ResourceVersion {
		known = parsed{version: string(s.UID) + s.ResourceVersion}
		known.certificate, known.err = parseCertificate(s)
		c.parsed[key] = known
	}
	return known.certificate, known.err
}

// forget forgets what was not used since the last call.
func (c *certificates) forget() {
	for key := range c.parsed {
		if !c.used[key] {
			delete(c.parsed, key)
		}
	}
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
