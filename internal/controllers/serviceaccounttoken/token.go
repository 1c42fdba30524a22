package serviceaccounttoken

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"os"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/util/keyutil"

	"github.com/coracle-io/coracle/internal/legacytoken"
	"github.com/coracle-io/coracle/internal/pki"
)

// claims are the claims of a token in a secret. The token has no expiration time.
// It is valid while the secret and the account exist.
type claims struct {
	jwt.Claims
	Namespace  string `json:"kubernetes.io/serviceaccount/namespace"`
	SecretName string `json:"kubernetes.io/serviceaccount/secret.name"`
	Name       string `json:"kubernetes.io/serviceaccount/service-account.name"`
	UID        string `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

// sign returns a token of an account for a secret. keyFile is a PEM file with an
// RSA or ECDSA private key.
func sign(keyFile string, account *v1.ServiceAccount, secret *v1.Secret) (string, error) {
	content, err := os.ReadFile(keyFile)
	if err != nil {
		return "", fmt.Errorf("--service-account-private-key-file: %w", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(content)
	if err != nil {
		return "", fmt.Errorf("%s: %w", keyFile, err)
	}
	private, ok := key.(crypto.Signer)
	if !ok {
		return "", fmt.Errorf("%s: a %T cannot sign", keyFile, key)
	}
	algorithm, err := pki.TokenAlgorithm(private.Public())
	if err != nil {
		return "", fmt.Errorf("%s: %w", keyFile, err)
	}
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return "", fmt.Errorf("%s: %w", keyFile, err)
	}
	hash := sha256.Sum256(der)
	id := base64.RawURLEncoding.EncodeToString(hash[:])
	signer, err := jose.NewSigner(jose.SigningKey{
		Algorithm: algorithm, Key: jose.JSONWebKey{Key: private, KeyID: id, Algorithm: string(algorithm)},
	}, nil)
	if err != nil {
		return "", fmt.Errorf("%s: %w", keyFile, err)
	}
	return jwt.Signed(signer).Claims(claims{
		Claims:    jwt.Claims{Issuer: legacytoken.Issuer, Subject: serviceaccount.MakeUsername(account.Namespace, account.Name)},
		Namespace: account.Namespace, SecretName: secret.Name, Name: account.Name, UID: string(account.UID),
	}).Serialize()
}
