package serviceaccount

import (
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/legacytoken"
	"github.com/coracle-io/coracle/internal/pki"
)

// legacyToken returns the token of the service account web/default that is
// stored in the secret web/s.
func (f *fixture) legacyToken(t *testing.T) string {
	t.Helper()
	keys := f.keys.Current()
	algorithm, err := pki.TokenAlgorithm(keys.Signing.Public())
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: keys.Signing}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).
		Claims(jwt.Claims{Issuer: legacytoken.Issuer, Subject: "system:serviceaccount:web:default"}).
		Claims(legacyClaims{Namespace: "web", SecretName: "s", Name: "default", UID: "sa-uid"}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// A token that is stored in a secret is valid as long as the secret exists.
func TestSecretToken(t *testing.T) {
	f := newFixture(t, t.TempDir())
	token := f.legacyToken(t)
	f.refused(t, token, "secret s is gone")
	f.objects.Put(objects.Secrets, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "s"}, Data: map[string][]byte{"token": []byte(token)},
	})
	if r := f.accepted(t, token); r.User.GetName() != "system:serviceaccount:web:default" || r.User.GetUID() != "sa-uid" || len(r.User.GetExtra()) != 0 {
		t.Errorf("%+v", r.User)
	}
	f.objects.Put(objects.Secrets, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "s", Labels: map[string]string{"kubernetes.io/legacy-token-invalid-since": "2026-11-01"}},
		Data:       map[string][]byte{"token": []byte(token)},
	})
	f.refused(t, token, "the token in secret web/s for service account web/default has been marked invalid")
	f.objects.Delete(objects.Secrets, "web", "s")
	f.refused(t, token, "secret s is gone")

	o := f.auth.o
	o.LegacyUnchecked = true
	if _, ok, err := NewAuthenticator(o).AuthenticateToken(t.Context(), token); !ok {
		t.Errorf("without lookup: %v", err)
	}
}
