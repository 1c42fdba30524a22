package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// followed is what a file holds, read again when the file changes. A file that
// cannot be used leaves what was read before.
type followed[T any] struct {
	path string
	read func() (T, error)

	mu       sync.Mutex // guards the following
	value    T
	modified time.Time
}

func follow[T any](path string, read func() (T, error)) (*followed[T], error) {
	f := &followed[T]{path: path, read: read}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	f.modified = info.ModTime()
	f.value, err = read()
	return f, err
}

func (f *followed[T]) get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil || info.ModTime().Equal(f.modified) {
		return f.value
	}
	if value, err := f.read(); err == nil {
		f.value, f.modified = value, info.ModTime()
	}
	return f.value
}

// FollowCertificate serves with a certificate and key in files that others
// renew: the certificate's file is written last.
func FollowCertificate(cert, key string) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	f, err := follow(cert, func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		return &pair, err
	})
	if err != nil {
		return nil, err
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.get(), nil }, nil
}

// FollowAuthority trusts the certificates in a file that others renew.
func FollowAuthority(path string) (func() *x509.CertPool, error) {
	f, err := follow(path, func() (*x509.CertPool, error) {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(content) {
			return nil, fmt.Errorf("%s holds no certificate", path)
		}
		return pool, nil
	})
	if err != nil {
		return nil, err
	}
	return f.get, nil
}
