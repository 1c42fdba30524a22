package serviceaccounttoken

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/legacytoken"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func keyFile(t *testing.T) (string, *ecdsa.PrivateKey) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sa.key")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, k
}

func TestSecretsGetTokensAndAreDeletedWithTheirAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := func(name, account string) *v1.Secret {
			return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{v1.ServiceAccountNameKey: account}},
				Type: v1.SecretTypeServiceAccountToken}
		}
		c := controllertest.New(t, &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "till", UID: "u1"}},
			secret("token", "till"), secret("stray", "nobody"))
		file, key := keyFile(t)
		c.Env.RootCA = []byte("PEM")
		c.Run(Descriptor(new(DefaultOptions())), "--service-account-private-key-file="+file)
		synctest.Wait()
		ctx := context.Background()
		api := c.Fake.CoreV1().Secrets("shop")
		var got *v1.Secret
		controllertest.Eventually(t, func() bool {
			var err error
			if got, err = api.Get(ctx, "token", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			_, stray := api.Get(ctx, "stray", metav1.GetOptions{})
			return len(got.Data["token"]) > 0 && apierrors.IsNotFound(stray)
		}, true)
		if got.Annotations[v1.ServiceAccountUIDKey] != "u1" || string(got.Data["namespace"]) != "shop" || string(got.Data["ca.crt"]) != "PEM" {
			t.Errorf("%v %q", got.Annotations, got.Data)
		}
		parsed, err := jwt.ParseSigned(string(got.Data["token"]), []jose.SignatureAlgorithm{jose.ES256})
		if err != nil {
			t.Fatal(err)
		}
		var said claims
		if err := parsed.Claims(key.Public(), &said); err != nil {
			t.Fatal(err)
		}
		if said.Subject != "system:serviceaccount:shop:till" || said.Issuer != legacytoken.Issuer || said.Namespace != "shop" || said.SecretName != "token" || said.Name != "till" || said.UID != "u1" {
			t.Errorf("%+v", said)
		}
		if err := c.Fake.CoreV1().ServiceAccounts("shop").Delete(ctx, "till", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() bool {
			_, err := api.Get(ctx, "token", metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}, true)
	})
}

// A service account does not list a token secret that was deleted.
func TestDeletedSecretsLeaveTheirAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := func(name, uid string) *v1.ServiceAccount {
			return &v1.ServiceAccount{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid)},
				Secrets:    []v1.ObjectReference{{Name: "token"}, {Name: "registry"}},
			}
		}
		secret := func(name, account, uid string) *v1.Secret {
			return &v1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{
					v1.ServiceAccountNameKey: account, v1.ServiceAccountUIDKey: uid,
				}},
				Type: v1.SecretTypeServiceAccountToken,
			}
		}
		plain := secret("registry", "till", "u1")
		plain.Type = v1.SecretTypeOpaque
		c := controllertest.New(t, account("till", "u1"), account("cash", "u2"), plain,
			secret("token", "till", "u1"))
		file, _ := keyFile(t)
		c.Run(Descriptor(new(DefaultOptions())), "--service-account-private-key-file="+file)
		synctest.Wait()
		for _, name := range []string{"token", "registry"} {
			if err := c.Fake.CoreV1().Secrets("shop").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		for name, want := range map[string]string{"till": "registry", "cash": "token registry"} {
			got, err := c.Fake.CoreV1().ServiceAccounts("shop").Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var listed []string
			for _, s := range got.Secrets {
				listed = append(listed, s.Name)
			}
			if strings.Join(listed, " ") != want {
				t.Errorf("%s lists %v, want %s", name, listed, want)
			}
		}
	})
}
