package core_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
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

// TestKeysThatTakeLong checks that a Secret cannot keep the server busy with its key.
// The numbers here are large enough to be left alone, and small enough to be read.
func TestKeysThatTakeLong(t *testing.T) {
	certificate, _ := newKeyPair(t)
	odd := func(bits uint) *big.Int {
		n := new(big.Int).Lsh(big.NewInt(1), bits-1)
		return n.Add(n, big.NewInt(1))
	}
	encode := func(v any) []byte {
		t.Helper()
		encoded, err := asn1.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return encoded
	}
	rsaKey := func(p, q uint) []byte {
		return encode(struct {
			Version int
			N       *big.Int
			E       int
			D, P, Q *big.Int
		}{N: odd(2048), E: 3, D: big.NewInt(3), P: odd(p), Q: odd(q)})
	}
	wrapped := encode(struct {
		Version   int
		Algorithm pkix.AlgorithmIdentifier
		Key       []byte
	}{Algorithm: pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}, Parameters: asn1.NullRawValue}, Key: rsaKey(4100, 8)})
	for name, test := range map[string]struct {
		kind    string
		key     []byte
		warning bool
	}{
		"first prime":     {"RSA PRIVATE KEY", rsaKey(4100, 8), false},
		"second prime":    {"RSA PRIVATE KEY", rsaKey(8, 4100), false},
		"in PKCS #8":      {"PRIVATE KEY", wrapped, false},
		"many bytes":      {"PRIVATE KEY", make([]byte, 9<<10), false},
		"wrong but small": {"RSA PRIVATE KEY", rsaKey(1024, 1024), true},
	} {
		s := &corev1.Secret{Type: corev1.SecretTypeTLS, Data: map[string][]byte{
			corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: test.kind, Bytes: test.key}),
		}}
		if got := core.Secrets().Strategy.Warnings(&resource.RequestContext{}, s, nil); (len(got) > 0) != test.warning {
			t.Errorf("%s: %q", name, got)
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
