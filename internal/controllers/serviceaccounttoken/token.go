package serviceaccounttoken

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
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
)

// issuer is that of all tokens that are kept in secrets.
const issuer = "kubernetes/serviceaccount"

// claims are what such a token says. It never expires: it holds while the
// secret has it and the account lives.
type claims struct {
	jwt.Claims
	Namespace  string `json:"kubernetes.io/serviceaccount/namespace"`
	SecretName string `json:"kubernetes.io/serviceaccount/secret.name"`
	Name       string `json:"kubernetes.io/serviceaccount/service-account.name"`
	UID        string `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

// sign makes the token of an account that is kept in a secret, with the
// private key (PEM, RSA or ECDSA) of a file.
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
	algorithm, err := algorithmOf(private.Public())
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
		Claims:    jwt.Claims{Issuer: issuer, Subject: serviceaccount.MakeUsername(account.Namespace, account.Name)},
		Namespace: account.Namespace, SecretName: secret.Name, Name: account.Name, UID: string(account.UID),
	}).Serialize()
}

func algorithmOf(public crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch key := public.(type) {
	case *rsa.PublicKey:
		return jose.RS256, nil
	case *ecdsa.PublicKey:
		switch key.Curve.Params().BitSize {
		case 256:
			return jose.ES256, nil
		case 384:
			return jose.ES384, nil
		case 521:
			return jose.ES512, nil
		}
	}
	return "", fmt.Errorf("must be RSA or ECDSA (P-256, P-384, P-521), is %T", public)
}
