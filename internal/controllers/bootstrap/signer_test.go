package bootstrap

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// signingToken returns the secret of a token that signs.
func signingToken(id string, change ...func(*v1.Secret)) *v1.Secret {
	s := &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: tokenPrefix + id}, Type: v1.SecretTypeBootstrapToken,
		Data: map[string][]byte{idKey: []byte(id), secretKey: []byte("f395accd246ae52d"), signingKey: []byte("true")},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

// The signature of a token has the form that kubeadm expects: the header with the token's ID, no
// payload, and the HMAC.
func TestSignature(t *testing.T) {
	const want = "eyJhbGciOiJIUzI1NiIsImtpZCI6IjA3NDAxYiJ9..JnSALe4tLEKPxCVc8fNoTukM_oSUtMcAUL2Uh-EY7nU"
	if got := sign("kind: Config", "07401b", []byte("f395accd246ae52d")); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// cluster-info has one signature for each token that signs, of its current content.
func TestClusterInfoIsSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		info := &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: infoNamespace, Name: infoName},
			Data:       map[string]string{infoKey: "kind: Config", "jws-kubeconfig-former": "x", "other": "y"},
		}
		c := controllertest.New(t, info,
			signingToken("aaaaaa"),
			signingToken("hourly", func(s *v1.Secret) {
				s.Data[expirationKey] = []byte(time.Now().Add(time.Hour).Format(time.RFC3339))
			}),
			signingToken("bygone", func(s *v1.Secret) { s.Data[expirationKey] = []byte("2000-01-01T00:00:00Z") }),
			signingToken("unused", func(s *v1.Secret) { delete(s.Data, signingKey) }),
			signingToken("opaque", func(s *v1.Secret) { s.Type = v1.SecretTypeOpaque }),
			signingToken("hidden", func(s *v1.Secret) { s.Namespace = "default" }),
			signingToken("misled", func(s *v1.Secret) { s.Name = "bootstrap-token-another" }),
			signingToken("secret", func(s *v1.Secret) { delete(s.Data, secretKey) }),
		)
		c.Run(Signer())
		stored := func() *v1.ConfigMap {
			synctest.Wait()
			m, err := c.Fake.CoreV1().ConfigMaps(infoNamespace).Get(t.Context(), infoName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		keys := func() string {
			var all []string
			for key := range stored().Data {
				all = append(all, key)
			}
			slices.Sort(all)
			return strings.Join(all, " ")
		}
		if want := "jws-kubeconfig-aaaaaa jws-kubeconfig-hourly kubeconfig other"; keys() != want {
			t.Errorf("keys %s, want %s", keys(), want)
		}
		m := stored()
		m.Data[infoKey] = "kind: Config\nusers: []"
		if _, err := c.Fake.CoreV1().ConfigMaps(infoNamespace).Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		want := sign("kind: Config\nusers: []", "aaaaaa", []byte("f395accd246ae52d"))
		if got := stored().Data["jws-kubeconfig-aaaaaa"]; got != want {
			t.Errorf("after a change: %s, want %s", got, want)
		}
		time.Sleep(time.Hour)
		if want := "jws-kubeconfig-aaaaaa kubeconfig other"; keys() != want {
			t.Errorf("after an hour: %s, want %s", keys(), want)
		}
		if err := c.Fake.CoreV1().Secrets(metav1.NamespaceSystem).Delete(t.Context(), "bootstrap-token-aaaaaa", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if want := "kubeconfig other"; keys() != want {
			t.Errorf("without tokens: %s, want %s", keys(), want)
		}
	})
}
