package endpointslice

import (
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// A Service gets a slice, and the library's metrics are among the controller's.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec: v1.ServiceSpec{
				ClusterIP: "10.0.0.1", IPFamilies: []v1.IPFamily{v1.IPv4Protocol},
				Selector: map[string]string{"app": "web"}, Ports: []v1.ServicePort{{Port: 80}},
			},
		})
		registry := prometheus.NewRegistry()
		c.Env.Metrics = registry
		c.Run(Descriptor())
		controllertest.Eventually(t, func() int {
			list, err := c.Fake.DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return len(list.Items)
		}, 1)
		synctest.Wait()
		for _, name := range []string{"changes", "num_endpoint_slices", "endpoints_desired"} {
			if n, err := testutil.GatherAndCount(registry, "endpoint_slice_controller_"+name); err != nil || n == 0 {
				t.Errorf("%d series of %s, %v", n, name, err)
			}
		}
	})
}
