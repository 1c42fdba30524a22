package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// TestMetrics checks the metrics of syncs and changes, with kube-proxy's names and labels.
func TestMetrics(t *testing.T) {
	backend := &refusing{}
	p := New(Config{NodeName: "n1", Backend: backend, Families: []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}})
	shows := func(when string, want ...string) {
		t.Helper()
		w := httptest.NewRecorder()
		p.config.Metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
		for _, line := range want {
			if !strings.Contains(w.Body.String(), "\nkubeproxy_"+line+"\n") {
				t.Errorf("%s: missing: %s", when, line)
			}
		}
		if t.Failed() {
			t.Log(w.Body)
		}
	}
	apply := func() { _ = p.apply(context.Background(), func(Rules) {}) }
	web := service(func(s *v1.ServiceSpec) { s.InternalTrafficPolicy = ptr.To(v1.ServiceInternalTrafficPolicyLocal) })
	of := slice("http", "10.0.0.1 rs @n2")
	of.Namespace, of.Name, of.Labels = "default", "web-1", map[string]string{discoveryv1.LabelServiceName: "web"}
	p.state.setService(web)
	p.state.setService(web)
	p.state.setSlice(of)
	shows("before the first sync",
		"sync_proxy_rules_service_changes_pending 1", "sync_proxy_rules_service_changes_total 2",
		"sync_proxy_rules_endpoint_changes_pending 1", "sync_proxy_rules_endpoint_changes_total 1")
	backend.err = errors.New("the kernel is busy")
	apply()
	backend.err = nil
	apply()
	apply()
	shows("after syncs",
		"sync_proxy_rules_service_changes_pending 0", "sync_proxy_rules_endpoint_changes_pending 0",
		`sync_proxy_rules_duration_seconds_count{ip_family="IPv4"} 3`, `sync_proxy_rules_duration_seconds_count{ip_family="IPv6"} 3`,
		`sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"} 2`, `sync_partial_proxy_rules_duration_seconds_count{ip_family="IPv4"} 1`,
		`sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="internal"} 1`,
		`sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="external"} 0`,
		`sync_proxy_rules_no_local_endpoints_total{ip_family="IPv6",traffic_policy="internal"} 0`)
	for _, name := range []string{"sync_proxy_rules_last_queued_timestamp_seconds", "sync_proxy_rules_last_timestamp_seconds"} {
		for _, family := range []string{"IPv4", "IPv6"} {
			w := httptest.NewRecorder()
			p.config.Metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
			if line := "\nkubeproxy_" + name + `{ip_family="` + family + `"} `; !strings.Contains(w.Body.String(), line) || strings.Contains(w.Body.String(), line+"0\n") {
				t.Errorf("%s of %s is not told", name, family)
			}
		}
	}
	for range 2 {
		answerOf(counted(p.metrics.healthz, p.health.healthz).ServeHTTP)
	}
	p.health.setEligible(false)
	answerOf(counted(p.metrics.healthz, p.health.healthz).ServeHTTP)
	answerOf(counted(p.metrics.livez, p.health.livez).ServeHTTP)
	shows("after checks", `proxy_healthz_total{code="200"} 2`, `proxy_healthz_total{code="503"} 1`, `proxy_livez_total{code="200"} 1`)
}
