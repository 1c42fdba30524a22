package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"sync/atomic"
	"time"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

// Authority signs certificates.
type Authority struct {
	base    string // path without .crt and .key
	current atomic.Pointer[authorityState]
}

type authorityState struct {
	cert *x509.Certificate
	pem  []byte
	key  crypto.Signer // nil if the directory has only the certificate
	pool *x509.CertPool
}

func openAuthority(base, commonName string, now time.Time) (*Authority, error) {
	a := &Authority{base: base}
	key, keyErr := readKey(base + ".key")
	cert, pem, certErr := readCertificate(base + ".crt")
	noKey, noCert := errors.Is(keyErr, fs.ErrNotExist), errors.Is(certErr, fs.ErrNotExist)
	switch {
	case keyErr != nil && !noKey:
		return nil, keyErr
	case certErr != nil && !noCert:
		return nil, certErr
	case noKey && !noCert:
		a.set(cert, pem, nil)
		return a, nil
	case !noKey && !noCert && !sameKey(cert, key):
		return nil, fmt.Errorf("%s.key does not belong to %s.crt: put the matching pair there, or remove both to create a new one", base, base)
	case !noCert:
		a.set(cert, pem, key)
		_, err := a.renew(now)
		return a, err
	}
	if noKey {
		var err error
		if key, err = newKey(base+".key", true); err != nil {
			return nil, err
		}
	}
	return a, a.selfSign(pkix.Name{CommonName: commonName}, key, now)
}

func (a *Authority) set(cert *x509.Certificate, pem []byte, key crypto.Signer) {
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	a.current.Store(&authorityState{cert: cert, pem: pem, key: key, pool: pool})
}

func (a *Authority) selfSign(subject pkix.Name, key crypto.Signer, now time.Time) error {
	serial, err := newSerial()
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               subject,
		DNSNames:              []string{subject.CommonName},
		NotBefore:             now.Add(-backdate).UTC(),
		NotAfter:              now.Add(authorityLifetime).UTC(),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("signing %s.crt: %w", a.base, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	pem := encodeCertificate(der)
	if err := sharedfile.Replace(a.base+".crt", sharedfile.Content{Data: pem, Mode: 0o644, Durable: true}); err != nil {
		return err
	}
	a.set(cert, pem, key)
	return nil
}

// renew signs the authority's own certificate again if it is due, with the same
// key and subject. Certificates it has signed stay valid. It reports whether the
// certificate was due.
func (a *Authority) renew(now time.Time) (bool, error) {
	s := a.current.Load()
	if s.key == nil || !due(s.cert, now) {
		return false, nil
	}
	return true, a.selfSign(s.cert.Subject, s.key, now)
}

// Certificate returns the authority's own certificate.
func (a *Authority) Certificate() *x509.Certificate { return a.current.Load().cert }

// PEM returns the authority's own certificate, as written to ca.crt.
func (a *Authority) PEM() []byte { return a.current.Load().pem }

// Pool returns a pool of the authority's own certificate. It must not be
// changed.
func (a *Authority) Pool() *x509.CertPool { return a.current.Load().pool }

// VerifyOptions returns the options to verify client certificates of this
// authority. Its second result is always true.
func (a *Authority) VerifyOptions() (x509.VerifyOptions, bool) {
	return x509.VerifyOptions{Roots: a.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
}

// Sign signs a certificate for the public key after the template, with a new
// serial number. The certificate does not outlive the authority's own.
func (a *Authority) Sign(template *x509.Certificate, public crypto.PublicKey) (der []byte, err error) {
	s := a.current.Load()
	if s.key == nil {
		return nil, fmt.Errorf("%s.key is missing: certificates cannot be signed without it", a.base)
	}
	t := *template
	if t.SerialNumber, err = newSerial(); err != nil {
		return nil, err
	}
	if t.NotAfter.After(s.cert.NotAfter) {
		t.NotAfter = s.cert.NotAfter
	}
	return x509.CreateCertificate(rand.Reader, &t, s.cert, public, s.key)
}

func newSerial() (*big.Int, error) {
	limit := new(big.Int).Lsh(big.NewInt(1), 127)
	n, err := rand.Int(rand.Reader, limit)
	if err != nil {
		return nil, err
	}
	return n.Add(n, big.NewInt(1)), nil
}
