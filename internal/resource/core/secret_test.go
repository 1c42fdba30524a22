package core_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
)

// TestSecretWarnings checks the warnings about pairs of certificate and key.
func TestSecretWarnings(t *testing.T) {
	certificate, key := newKeyPair(t)
	_, otherKey := newKeyPair(t)
	for name, test := range map[string]struct {
		kind             corev1.SecretType
		certificate, key []byte
		want             []string
	}{
		"pair":       {kind: corev1.SecretTypeTLS, certificate: certificate, key: key},
		"other key":  {kind: corev1.SecretTypeTLS, certificate: certificate, key: otherKey, want: []string{"tls: private key does not match public key"}},
		"no pair":    {kind: corev1.SecretTypeTLS, want: []string{"tls: failed to find any PEM data in certificate input"}},
		"other type": {kind: corev1.SecretTypeOpaque, certificate: certificate, key: otherKey},
	} {
		s := &corev1.Secret{Type: test.kind, Data: map[string][]byte{corev1.TLSCertKey: test.certificate, corev1.TLSPrivateKeyKey: test.key}}
		got := core.Secrets().Strategy.Warnings(&resource.RequestContext{}, s, nil)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// newKeyPair returns a certificate and its key, PEM encoded.
func newKeyPair(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}
