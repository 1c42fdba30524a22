package rootca_test

import (
	"os"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/controllers/rootca"
	"github.com/coracle-io/coracle/internal/controllers/serviceaccount"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func TestNamespacesGetRootCAAndServiceAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		going := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "going"}, Status: v1.NamespaceStatus{Phase: v1.NamespaceTerminating}}
		c := controllertest.New(t, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, going)
		c.Env.RootCA = []byte("PEM")
		registry := prometheus.NewRegistry()
		c.Env.Metrics = registry
		c.Run(rootca.Descriptor())
		synctest.Wait()
		c.Run(serviceaccount.Descriptor())
		synctest.Wait()
		state := func(namespace string) func() string {
			return func() string {
				out := ""
				if m, err := c.Fake.CoreV1().ConfigMaps(namespace).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{}); err == nil {
					out += m.Data["ca.crt"]
				}
				if _, err := c.Fake.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{}); err == nil {
					out += " default"
				}
				return out
			}
		}
		controllertest.Eventually(t, state("one"), "PEM default")
		if _, err := c.Fake.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "two"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, state("two"), "PEM default")
		changed := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "one", Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": "forged"}}
		if _, err := c.Fake.CoreV1().ConfigMaps("one").Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Fake.CoreV1().ServiceAccounts("one").Delete(t.Context(), "default", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, state("one"), "PEM default")
		if got := state("going")(); got != "" {
			t.Errorf("a terminating namespace got %q", got)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			code := f.GetMetric()[0].GetLabel()[0]
			if len(f.GetMetric()) != 1 || code.GetName() != "code" || code.GetValue() != "200" || f.GetMetric()[0].GetCounter().GetValue()+float64(f.GetMetric()[0].GetHistogram().GetSampleCount()) < 3 {
				t.Errorf("%s: %v", f.GetName(), f.GetMetric())
			}
		}
		if len(families) != 2 {
			t.Errorf("%d metrics, want 2", len(families))
		}
	})
}
