package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

func TestTokenAlgorithm(t *testing.T) {
	for _, test := range []struct {
		key  crypto.PublicKey
		want jose.SignatureAlgorithm // "": none
	}{
		{&rsa.PublicKey{}, jose.RS256},
		{&ecdsa.PublicKey{Curve: elliptic.P256()}, jose.ES256},
		{&ecdsa.PublicKey{Curve: elliptic.P384()}, jose.ES384},
		{&ecdsa.PublicKey{Curve: elliptic.P521()}, jose.ES512},
		{&ecdsa.PublicKey{Curve: elliptic.P224()}, ""},
		{ed25519.PublicKey{}, ""},
	} {
		got, err := TokenAlgorithm(test.key)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%T: %q, error %v, want %q", test.key, got, err, test.want)
		}
	}
}
