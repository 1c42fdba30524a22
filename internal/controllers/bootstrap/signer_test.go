package bootstrap

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/bootstraptoken"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// signingToken returns the secret of a token that signs.
func signingToken(id string, change ...func(*v1.Secret)) *v1.Secret {
	s := &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id}, Type: v1.SecretTypeBootstrapToken,
		Data: map[string][]byte{"token-id": []byte(id), "token-secret": []byte("f395accd246ae52d"), "usage-bootstrap-signing": []byte("true")},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

// cluster-info has one signature for each token that signs, of its current content.
func TestClusterInfoIsSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		info := &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "cluster-info"},
			Data:       map[string]string{"kubeconfig": "kind: Config", "jws-kubeconfig-former": "x", "other": "y"},
		}
		c := controllertest.New(t, info,
			signingToken("aaaaaa"),
			signingToken("hourly", func(s *v1.Secret) {
				s.Data["expiration"] = []byte(time.Now().Add(time.Hour).Format(time.RFC3339))
			}),
			signingToken("bygone", func(s *v1.Secret) { s.Data["expiration"] = []byte("2000-01-01T00:00:00Z") }),
			signingToken("unused", func(s *v1.Secret) { delete(s.Data, "usage-bootstrap-signing") }),
			signingToken("opaque", func(s *v1.Secret) { s.Type = v1.SecretTypeOpaque }),
			signingToken("hidden", func(s *v1.Secret) { s.Namespace = "default" }),
			signingToken("misled", func(s *v1.Secret) { s.Name = "bootstrap-token-another" }),
			signingToken("secret", func(s *v1.Secret) { delete(s.Data, "token-secret") }),
		)
		c.Run(Signer())
		stored := func() *v1.ConfigMap {
			synctest.Wait()
			m, err := c.Fake.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(t.Context(), "cluster-info", metav1.GetOptions{})
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
		m.Data["kubeconfig"] = "kind: Config\nusers: []"
		if _, err := c.Fake.CoreV1().ConfigMaps(metav1.NamespacePublic).Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		want := bootstraptoken.Token{ID: "aaaaaa", Secret: "f395accd246ae52d"}.Sign("kind: Config\nusers: []")
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
