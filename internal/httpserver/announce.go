package httpserver

import (
	"crypto/tls"
	"crypto/x509"
	"sync/atomic"
)

// Announce makes handshakes name the authorities whose client certificates
// count, by which browsers and some other clients choose what to show. It asks
// for them at each handshake, so that new ones are named at once; what clients
// show is the authenticator's to check. c must not be changed afterwards.
func Announce(c *tls.Config, authorities func() *x509.CertPool) {
	type naming struct {
		pool   *x509.CertPool
		config *tls.Config
	}
	var last atomic.Pointer[naming]
	base := c.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool := authorities()
		now := last.Load()
		if now == nil || now.pool != pool {
			now = &naming{pool, base.Clone()}
			now.config.ClientCAs = pool
			last.Store(now)
		}
		return now.config, nil
	}
}
