package apiserver

import (
	"bytes"
	"crypto/x509"
	"slices"
	"sync/atomic"
)

// joined returns a function that returns the union of the sources, which are
// authorities in PEM. It rebuilds the pool only when a source has changed.
func joined(sources ...func() []byte) func() *x509.CertPool {
	type content struct {
		pem  [][]byte
		pool *x509.CertPool
	}
	var last atomic.Pointer[content]
	return func() *x509.CertPool {
		pem := make([][]byte, len(sources))
		for i, source := range sources {
			pem[i] = source()
		}
		if now := last.Load(); now != nil && slices.EqualFunc(now.pem, pem, bytes.Equal) {
			return now.pool
		}
		next := &content{pem, x509.NewCertPool()}
		for _, p := range pem {
			next.pool.AppendCertsFromPEM(p)
		}
		last.Store(next)
		return next.pool
	}
}
