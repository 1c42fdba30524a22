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

func TestExpiredTokensAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token := func(name, namespace, expiration string) *v1.Secret {
			s := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: v1.SecretTypeBootstrapToken}
			if expiration != "" {
				s.Data = map[string][]byte{"expiration": []byte(expiration)}
			}
			return s
		}
		in := func(d time.Duration) string { return time.Now().Add(d).Format(time.RFC3339) }
		c := controllertest.New(t, token("past", "kube-system", in(-time.Hour)), token("soon", "kube-system", in(time.Hour)),
			token("never", "kube-system", ""), token("wrong", "kube-system", "tomorrow"), token("elsewhere", "default", in(-time.Hour)))
		c.Run(TokenCleaner())
		left := func() string {
			synctest.Wait()
			list, err := c.Fake.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, s := range list.Items {
				names = append(names, s.Name)
			}
			slices.Sort(names)
			return strings.Join(names, " ")
		}
		if got := left(); got != "elsewhere never soon" {
			t.Error(got)
		}
		time.Sleep(2 * time.Hour)
		if got := left(); got != "elsewhere never" {
			t.Error(got)
		}
	})
}
