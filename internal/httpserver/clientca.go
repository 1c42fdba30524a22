package httpserver

import (
	"crypto/tls"
	"crypto/x509"
	"sync/atomic"
)

// AdvertiseClientCAs makes TLS handshakes list the authorities of accepted
// client certificates. Browsers and some other clients choose a certificate by
// that list. authorities is called at each handshake and should return the same
// pool until it changes. The handshake verifies nothing: authenticators check
// the certificates. The caller must not change c afterwards.
func AdvertiseClientCAs(c *tls.Config, authorities func() *x509.CertPool) {
	type configured struct {
		pool   *x509.CertPool
		config *tls.Config
	}
	var last atomic.Pointer[configured]
	base := c.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool := authorities()
		now := last.Load()
		if now == nil || now.pool != pool {
			now = &configured{pool, base.Clone()}
			now.config.ClientCAs = pool
			last.Store(now)
		}
		return now.config, nil
	}
}
