package apiserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// issuer is an OpenID issuer over HTTPS whose key can be changed.
type issuer struct {
	t      *testing.T
	server *httptest.Server

	mu  sync.Mutex // guards the following
	id  string
	key *ecdsa.PrivateKey
}

func startIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{t: t}
	i.rotate("first")
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		i.answer(w, map[string]any{"issuer": i.server.URL, "jwks_uri": i.server.URL + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: i.id, Algorithm: "ES256", Use: "sig"}}})
	})
	i.server = httptest.NewTLSServer(mux)
	t.Cleanup(i.server.Close)
	return i
}

func (i *issuer) answer(w http.ResponseWriter, document any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(document); err != nil {
		i.t.Error(err)
	}
}

// authority is the PEM of the issuer's certificate.
func (i *issuer) authority() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw}))
}

// rotate replaces the key.
func (i *issuer) rotate(id string) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.id, i.key = id, key
}

// token signs claims for the audience "cluster".
func (i *issuer) token(claims map[string]any) string {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: i.id}}, nil)
	if err != nil {
		i.t.Fatal(err)
	}
	all := map[string]any{"iss": i.server.URL, "aud": "cluster", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	payload, err := json.Marshal(all)
	if err != nil {
		i.t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		i.t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		i.t.Fatal(err)
	}
	return text
}
