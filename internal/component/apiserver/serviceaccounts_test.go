package apiserver_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func keyFile(t *testing.T, name, kind string, der []byte, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return file(t, name, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
}

// Tokens are signed with the signing key that the flags name and verified with
// every key that they name. The keys in --cert-dir are not used.
func TestServiceAccountKeyFiles(t *testing.T) {
	signing, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	former, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(former.Public())
	s := startWhole(t,
		"--service-account-signing-key-file="+keyFile(t, "sa.key", "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(signing), nil),
		"--service-account-key-file="+keyFile(t, "former.pub", "PUBLIC KEY", public, err),
		"--service-account-issuer=https://one.example", "--external-hostname=cluster.example",
	)
	admin := s.clientset(s.admin())
	account, err := admin.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	request, err := admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jwt.ParseSigned(request.Status.Token, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		t.Fatalf("not signed with the RSA key: %v", err)
	}
	var claims map[string]any
	if err := parsed.Claims(signing.Public(), &claims); err != nil {
		t.Errorf("not signed with the key of the flag: %v", err)
	}
	sign := func(key crypto.Signer) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
		if err != nil {
			t.Fatal(err)
		}
		token, err := jwt.Signed(signer).Claims(jwt.Claims{
			Issuer: "https://one.example", Subject: "system:serviceaccount:default:robot", Audience: jwt.Audience{"https://one.example"},
			Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour)),
		}).Claims(map[string]any{"kubernetes.io": map[string]any{
			"namespace": "default", "serviceaccount": map[string]any{"name": "robot", "uid": account.UID},
		}}).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	for name, test := range map[string]struct {
		token string
		want  int
	}{
		"new":            {request.Status.Token, http.StatusOK},
		"former key":     {sign(former), http.StatusOK},
		"key of the dir": {sign(s.keys.TokenKeys().Current().Signing), http.StatusUnauthorized},
	} {
		if code, body := s.do(s.withToken(test.token), "GET", "/api", ""); code != test.want {
			t.Errorf("%s: %d %s, want %d", name, code, body, test.want)
		}
	}
	var keys jose.JSONWebKeySet
	if _, body := s.do(s.admin(), "GET", "/openid/v1/jwks", ""); json.Unmarshal([]byte(body), &keys) != nil || len(keys.Keys) != 2 {
		t.Errorf("not both keys are published: %s", body)
	}
	if _, body := s.do(s.admin(), "GET", "/.well-known/openid-configuration", ""); !strings.Contains(body, `"https://cluster.example:6443/openid/v1/jwks"`) {
		t.Errorf("the keys are said to be elsewhere: %s", body)
	}
}

func TestServiceAccountFlags(t *testing.T) {
	s := startWhole(t, "--service-account-jwks-uri=https://keys.example/all")
	if _, body := s.do(s.admin(), "GET", "/.well-known/openid-configuration", ""); !strings.Contains(body, `"https://keys.example/all"`) {
		t.Errorf("--service-account-jwks-uri is not published: %s", body)
	}
	garbage := file(t, "garbage", "none")
	for flag, want := range map[string]string{
		"--service-account-jwks-uri=http://keys.example":      "service-account-jwks-uri requires https scheme",
		"--service-account-issuer=":                           "should not be an empty string",
		"--service-account-issuer=:x":                         `service-account-issuer ":x" contained a ':' but was not a valid URL`,
		"--service-account-max-token-expiration=10m":          "must be between 1 hour and 2^32 seconds",
		"--service-account-key-file=" + garbage:               garbage,
		"--service-account-signing-key-file=" + garbage:       garbage,
		"--service-account-signing-key-file=/nowhere/at/all":  "/nowhere/at/all",
		"--service-account-key-file=/nowhere/to/be/found.pub": "/nowhere/to/be/found.pub",
	} {
		if got := refusal(t, commandLine(t, flag)); !strings.Contains(got, want) {
			t.Errorf("%s: %s", flag, got)
		}
	}
}

// The server still knows which flags were given after /flagz has read the
// flags.
func TestFlagsGivenAfterFlagz(t *testing.T) {
	f := commandLine(t, "--oidc-username-claim=name")
	f.AddFlags(pflag.NewFlagSet("flagz", pflag.ContinueOnError))
	if err := f.Validate(); err == nil || !strings.Contains(err.Error(), "oidc-issuer-url and oidc-client-id must be specified together") {
		t.Errorf("got %v", err)
	}
}
