package certificates

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// serve lets the fake API server serve the kinds of the controllers.
func serve(c *controllertest.Cluster) {
	c.Fake.Resources = []*metav1.APIResourceList{{
		GroupVersion: certificatesv1.SchemeGroupVersion.String(),
		APIResources: []metav1.APIResource{{Name: "clustertrustbundles"}, {Name: "podcertificaterequests"}},
	}}
}

// There is one bundle of the API servers' signer, with the authority of the cluster. Bundles of others
// stay.
func TestTrustBundleOfAPIServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bundle := func(name, signer, content string) *certificatesv1.ClusterTrustBundle {
			return &certificatesv1.ClusterTrustBundle{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: content},
			}
		}
		own := bundleName(servingSigner, "PEM")
		c := controllertest.New(t, bundle("kubernetes.io:kube-apiserver-serving:former", servingSigner, "OLD"), bundle("example.com:a:b", "example.com/a", "B"))
		serve(c)
		c.Env.RootCA = []byte("PEM")
		c.Run(Publishing())
		stored := func() string {
			synctest.Wait()
			list, err := c.Fake.CertificatesV1().ClusterTrustBundles().List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, b := range list.Items {
				all = append(all, fmt.Sprint(b.Name, " ", b.Spec.SignerName, " ", b.Spec.TrustBundle))
			}
			slices.Sort(all)
			return strings.Join(all, "\n")
		}
		want := "example.com:a:b example.com/a B\n" + own + " kubernetes.io/kube-apiserver-serving PEM"
		if got := stored(); got != want {
			t.Errorf("bundles:\n%s\nwant:\n%s", got, want)
		}
		if _, err := c.Fake.CertificatesV1().ClusterTrustBundles().Update(t.Context(), bundle(own, servingSigner, "FORGED"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := stored(); got != want {
			t.Errorf("after a change:\n%s\nwant:\n%s", got, want)
		}
		if err := c.Fake.CertificatesV1().ClusterTrustBundles().Delete(t.Context(), own, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := stored(); got != want {
			t.Errorf("after a deletion:\n%s\nwant:\n%s", got, want)
		}
	})
}

// A PodCertificateRequest is deleted 15 minutes after its creation, whatever became of it.
func TestOldPodCertificateRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		request := func(name string, age time.Duration) *certificatesv1.PodCertificateRequest {
			return &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-age)),
			}}
		}
		c := controllertest.New(t, request("old", 15*time.Minute), request("new", 0))
		serve(c)
		c.Run(PodCleaning())
		left := func() string {
			synctest.Wait()
			list, err := c.Fake.CertificatesV1().PodCertificateRequests("").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, r := range list.Items {
				names = append(names, r.Name)
			}
			return strings.Join(names, " ")
		}
		if got := left(); got != "new" {
			t.Errorf("left %q, want new", got)
		}
		time.Sleep(14 * time.Minute)
		if got := left(); got != "new" {
			t.Errorf("after 14 minutes: left %q, want new", got)
		}
		time.Sleep(2 * time.Minute)
		if got := left(); got != "" {
			t.Errorf("after 16 minutes: left %q", got)
		}
	})
}
