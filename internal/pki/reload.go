package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// reloading is a value that is read from a file, and read again when the file
// has changed. If the file cannot be read, the former value stays.
type reloading[T any] struct {
	path string
	read func() (T, error)

	mu       sync.Mutex // guards the following
	value    T
	modified time.Time
}

func newReloading[T any](path string, read func() (T, error)) (*reloading[T], error) {
	f := &reloading[T]{path: path, read: read}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	f.modified = info.ModTime()
	f.value, err = read()
	return f, err
}

func (f *reloading[T]) get() T {
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

// ReloadingCertificate returns a function for tls.Config.GetCertificate that
// serves the newest certificate and key of files that others renew. The
// certificate's file must be written after the key's.
func ReloadingCertificate(cert, key string) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	f, err := newReloading(cert, func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		return &pair, err
	})
	if err != nil {
		return nil, err
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.get(), nil }, nil
}

// ReloadingAuthority returns a function that returns the newest certificates of
// a file that others renew.
func ReloadingAuthority(path string) (func() *x509.CertPool, error) {
	f, err := newReloading(path, func() (*x509.CertPool, error) {
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
