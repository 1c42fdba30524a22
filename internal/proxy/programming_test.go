package proxy

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	_ "github.com/coracle-io/coracle/internal/bubble"
)

// refusing is a backend that fails with an error, if it has one.
type refusing struct{ err error }

func (r *refusing) Apply(Rules) error   { return r.err }
func (*refusing) Intact() (bool, error) { return true, nil }
func (*refusing) Remove() error         { return nil }

// The metric of network programming has the time from the change of a pod until the
// kernel has its endpoints, once for each change of a Service that the proxy handles.
func TestNetworkProgramming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &refusing{}
		p := New(Config{NodeName: "n1", Backend: backend})
		apply := func() { _ = p.apply(t.Context(), func(Rules) {}) }
		shown := func(want ...string) {
			t.Helper()
			w := httptest.NewRecorder()
			promhttp.HandlerFor(p.config.Metrics.Registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
			for _, line := range want {
				if line = "kubeproxy_network_programming_duration_seconds_" + line; !strings.Contains(w.Body.String(), "\n"+line+"\n") {
					t.Errorf("missing: %s\nthere is:\n%s", line, w.Body)
				}
			}
		}
		changed := func(name, service string, at time.Time) *discoveryv1.EndpointSlice {
			s := slice("http", "10.0.0.1 rs")
			s.Namespace, s.Name = "default", name
			s.Labels = map[string]string{discoveryv1.LabelServiceName: service}
			s.Annotations = map[string]string{v1.EndpointsLastChangeTriggerTime: at.Format(time.RFC3339Nano)}
			return s
		}
		p.state.setService(service(func(*v1.ServiceSpec) {}))
		p.state.setSlice(changed("web-old", "web", time.Now().Add(-time.Hour)))
		time.Sleep(time.Second)
		p.state.setSlice(changed("web-1", "web", time.Now()))
		p.state.setSlice(changed("other", "headless", time.Now()))
		backend.err = errors.New("the kernel is busy")
		apply()
		time.Sleep(3500 * time.Millisecond)
		p.state.setSlice(changed("web-1", "web", time.Now())) // the first change waits still
		backend.err = nil
		apply()
		apply()
		shown(`count{ip_family="IPv4"} 1`, `sum{ip_family="IPv4"} 3.5`, `bucket{ip_family="IPv4",le="3"} 0`, `bucket{ip_family="IPv4",le="4"} 1`)
		time.Sleep(time.Second)
		same := p.state.slices[serviceOf(changed("web-1", "web", time.Time{}))]["web-1"].DeepCopy()
		same.Labels["touched"] = "true"
		p.state.setSlice(same)
		apply()
		shown(`count{ip_family="IPv4"} 1`)
		p.state.setSlice(changed("web-2", "web", time.Now().Add(time.Hour)))
		apply()
		shown(`count{ip_family="IPv4"} 2`, `sum{ip_family="IPv4"} 3.5`)
	})
}
