package pki

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

// Certificate is a certificate with its key, which Directory.Run renews. Its
// methods always return the newest.
type Certificate struct {
	base      string // path without .crt and .key
	authority *Authority
	profile   Profile
	modified  time.Time // of the .crt file when it was read
	changed   []func()
	current   atomic.Pointer[pair]
}

type pair struct {
	tls          tls.Certificate
	certPEM, key []byte
}

// Leaf returns the current certificate.
func (c *Certificate) Leaf() *x509.Certificate { return c.current.Load().tls.Leaf }

// PEM returns the current certificate and key.
func (c *Certificate) PEM() (cert, key []byte) {
	p := c.current.Load()
	return p.certPEM, p.key
}

// Files returns the paths of the certificate and the key.
func (c *Certificate) Files() (cert, key string) { return c.base + ".crt", c.base + ".key" }

// GetCertificate is for the tls.Config of a server.
func (c *Certificate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return &c.current.Load().tls, nil
}

// GetClientCertificate is for the tls.Config of a client.
func (c *Certificate) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return &c.current.Load().tls, nil
}

// ClientConfig returns the configuration of a client that presents c and trusts
// servers of the given authority.
func (c *Certificate) ClientConfig(server *Authority) *tls.Config {
	return &tls.Config{
		MinVersion:           tls.VersionTLS12,
		RootCAs:              server.Pool(),
		GetClientCertificate: c.GetClientCertificate,
	}
}

// ensure issues a new certificate unless the current one matches the profile and
// is not due.
func (c *Certificate) ensure(p Profile, now time.Time) error {
	c.profile = p
	if c.current.Load() == nil {
		// Files that are missing or do not match are replaced.
		_ = c.load()
	}
	current := c.current.Load()
	good := current != nil && p.describes(current.tls.Leaf) && c.verify(now) == nil
	if good && !due(current.tls.Leaf, now) {
		return nil
	}
	err := c.issue(now)
	if err == nil {
		err = c.verify(now)
	}
	if good && c.verify(now) == nil {
		return nil // check retries a renewal that failed, as on a full disk
	}
	return err
}

// check renews a certificate that is due and reloads a replaced file.
func (c *Certificate) check(now time.Time) (changed bool, err error) {
	if info, statErr := os.Stat(c.base + ".crt"); statErr == nil && !info.ModTime().Equal(c.modified) {
		if err := c.load(); err != nil {
			return false, err
		}
		changed = true
	}
	if due(c.Leaf(), now) {
		if err := c.issue(now); err != nil {
			return changed, err
		}
		changed = true
	}
	if changed {
		for _, f := range c.changed {
			f()
		}
	}
	return changed, nil
}

// verify returns why clients that trust the authority would not accept the
// certificate now.
func (c *Certificate) verify(now time.Time) error {
	_, err := c.Leaf().Verify(x509.VerifyOptions{
		Roots: c.authority.Pool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return fmt.Errorf("%s.crt is not valid for clients that trust %s.crt (%w): set this machine's clock, or restore the authority from a copy", c.base, c.authority.base, err)
	}
	return nil
}

func (c *Certificate) load() error {
	certPEM, err := os.ReadFile(c.base + ".crt")
	if err != nil {
		return err
	}
	keyPEM, err := os.ReadFile(c.base + ".key")
	if err != nil {
		return err
	}
	return c.use(certPEM, keyPEM)
}

func (c *Certificate) use(certPEM, keyPEM []byte) error {
	loaded, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("%s.crt and .key: %w", c.base, err)
	}
	c.current.Store(&pair{tls: loaded, certPEM: certPEM, key: keyPEM})
	if info, err := os.Stat(c.base + ".crt"); err == nil {
		c.modified = info.ModTime()
	}
	return nil
}

func (c *Certificate) issue(now time.Time) error {
	p := c.profile
	key, keyPEM, err := generateKey()
	if err != nil {
		return err
	}
	der, err := c.authority.Sign(p.template(now), key.Public())
	if err != nil {
		return fmt.Errorf("issuing %s.crt: %w", c.base, err)
	}
	certPEM := encodeCertificate(der)
	if err := sharedfile.Replace(c.base+".key", sharedfile.Content{Data: keyPEM, Mode: 0o600}); err != nil {
		return err
	}
	if err := sharedfile.Replace(c.base+".crt", sharedfile.Content{Data: certPEM, Mode: 0o644}); err != nil {
		return err
	}
	return c.use(certPEM, keyPEM)
}

// template returns an unsigned certificate of the profile that is valid from now on.
func (p Profile) template(now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: p.CommonName, Organization: p.Organization},
		DNSNames:              p.DNSNames,
		IPAddresses:           p.IPs,
		NotBefore:             now.Add(-backdate).UTC(),
		NotAfter:              now.Add(p.lifetime()).UTC(),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:           p.usages(),
		BasicConstraintsValid: true,
	}
}

// ClientConfig returns the configuration of a client that presents a new certificate
// of a profile and trusts servers of its authority, of which certificate and key are
// given in PEM. It stores nothing, and nothing renews the certificate.
func ClientConfig(certificate, key []byte, p Profile, now time.Time) (*tls.Config, error) {
	cert, err := parseCertificate(p.Authority+".crt", certificate)
	if err != nil {
		return nil, err
	}
	signer, err := parseKey(p.Authority+".key", key)
	if err != nil {
		return nil, err
	}
	authority := &Authority{base: p.Authority}
	authority.set(cert, certificate, signer)
	own, ownPEM, err := generateKey()
	if err != nil {
		return nil, err
	}
	der, err := authority.Sign(p.template(now), own.Public())
	if err != nil {
		return nil, fmt.Errorf("issuing %s.crt: %w", p.Name, err)
	}
	pair, err := tls.X509KeyPair(encodeCertificate(der), ownPEM)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authority.Pool(), Certificates: []tls.Certificate{pair}}, nil
}
