package attack

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestSecretsOfOthersAreRefused checks that secrets of other namespaces cannot
// be read without credentials, or with the credentials of a tenant, a user or a
// node.
func TestSecretsOfOthersAreRefused(t *testing.T) {
	c := controlPlane(t)
	for who, config := range map[string]*rest.Config{
		"anonymous": c.as(func(*rest.Config) {}),
		"tenant":    first(c.tenant(t, "admin")),
		"a user":    c.user(t, "mallory"),
		"a node":    c.kubelet(t, "elsewhere"),
	} {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{})
		checkRefused(t, who+" listing the secrets of kube-system", err, http.StatusForbidden)
		_, err = client.CoreV1().Secrets("").Watch(t.Context(), metav1.ListOptions{})
		checkRefused(t, who+" watching all secrets", err, http.StatusForbidden)
	}
}

func first(config *rest.Config, _ string) *rest.Config { return config }
