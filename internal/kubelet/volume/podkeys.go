package volume

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/compute"
	"github.com/coracle-io/coracle/internal/supervise"
)

// keyMaker makes the private keys of pods. An RSA key takes a processor for seconds,
// and any pod may ask for some, so that one key is made at a time, and namespaces share
// the time of the processor. A pod waits for one key at a time. What was made for it is
// kept until it is used: a pod whose requests fail again and again costs no more.
type keyMaker struct {
	generate func(kind string) (keyPair, error) // newKey; tests replace it
	line     *compute.Queue

	mu     sync.Mutex // guards what follows
	making certificateKey
	made   map[certificateKey]keyPair
}

// keyPair is a private key in PEM, and an empty PKCS#10 request that is signed with it.
type keyPair struct {
	private, stub []byte
}

func newKeyMaker() *keyMaker {
	return &keyMaker{generate: newKey, line: compute.NewQueue(1, 1, 0), made: map[certificateKey]keyPair{}}
}

// get returns the key for the next certificate of a source, of a type of the API. It
// returns early once ctx is over: a key that is not yet being made then leaves the
// line. One that is being made cannot be interrupted; the next call gets it.
func (m *keyMaker) get(ctx context.Context, namespace string, at certificateKey, kind string) (keyPair, error) {
	if known, ok := m.known(at); ok {
		return known, nil
	}
	turn, err := m.line.Acquire(ctx, namespace)
	if err != nil {
		return keyPair{}, fmt.Errorf("waiting until its private key can be made: %w", err)
	}
	if known, ok := m.known(at); ok { // by an earlier call
		turn.Release()
		return known, nil
	}
	m.begin(at)
	var pair keyPair
	var failed error
	done := make(chan struct{})
	supervise.Go(ctx, func() {
		defer turn.Release()
		defer close(done)
		pair, failed = m.generate(kind)
		m.end(at, pair, failed)
	})
	select {
	case <-done:
		return pair, failed
	case <-ctx.Done():
		return keyPair{}, fmt.Errorf("making its private key: %w", ctx.Err())
	}
}

func (m *keyMaker) known(at certificateKey) (pair keyPair, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pair, ok = m.made[at]
	return pair, ok
}

// begin records which key is made now.
func (m *keyMaker) begin(at certificateKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.making = at
}

// end keeps the key that was made, unless its pod was forgotten meanwhile.
func (m *keyMaker) end(at certificateKey, pair keyPair, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && m.making == at {
		m.made[at] = pair
	}
	m.making = certificateKey{}
}

// used drops a key for which a certificate was requested.
func (m *keyMaker) used(at certificateKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.made, at)
}

// forget drops the keys of a pod, also the one that is being made.
func (m *keyMaker) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := range m.made {
		if at.pod == uid {
			delete(m.made, at)
		}
	}
	if m.making.pod == uid {
		m.making = certificateKey{}
	}
}

// newKey makes a private key of a type of the API.
func newKey(kind string) (keyPair, error) {
	var private crypto.Signer
	var err error
	switch kind {
	case "RSA3072":
		private, err = rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		private, err = rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		private, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		private, err = ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, private, err = ed25519.GenerateKey(rand.Reader)
	default:
		err = fmt.Errorf("unknown key type %q", kind)
	}
	if err != nil {
		return keyPair{}, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return keyPair{}, err
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, private)
	if err != nil {
		return keyPair{}, err
	}
	return keyPair{private: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), stub: stub}, nil
}
