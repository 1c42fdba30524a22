package scheduler

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// /metrics/resources has what pods request and may use at most, whether they wait
// or are on a node, until they end.
func TestPodResources(t *testing.T) {
	limited := pod("waits", requests("9", "1Gi"), func(p *v1.Pod) {
		p.Spec.Priority = new(int32(7))
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("9500m"), "example.com/gpu": resource.MustParse("2")}
	})
	ended := running(pod("ended", requests("1", "1Gi")), "a")
	ended.Status.Phase = v1.PodSucceeded
	bytes := running(pod("bytes", requests("250m", "1Gi")), "a")
	bytes.Spec.SchedulerName = "\xff" // a client that writes protobuf can
	simulate(t, func(s *simulation) { s.metrics = NewMetrics(prometheus.NewRegistry()) }, func(s *simulation) {
		s.add(limited)
		s.add(pod("placed", requests("500m", "1Gi")))
		advance(time.Second)
		answer := httptest.NewRecorder()
		s.scheduler.metrics.ResourcesHandler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics/resources", nil))
		var got []string
		for line := range strings.Lines(answer.Body.String()) {
			if !strings.HasPrefix(line, "#") {
				got = append(got, strings.TrimSpace(line))
			}
		}
		want := []string{
			`kube_pod_resource_limit{namespace="default",node="",pod="waits",priority="7",resource="cpu",scheduler="default-scheduler",unit="cores"} 9.5`,
			`kube_pod_resource_limit{namespace="default",node="",pod="waits",priority="7",resource="example.com/gpu",scheduler="default-scheduler",unit="integer"} 2`,
			`kube_pod_resource_request{namespace="default",node="",pod="waits",priority="7",resource="cpu",scheduler="default-scheduler",unit="cores"} 9`,
			`kube_pod_resource_request{namespace="default",node="",pod="waits",priority="7",resource="memory",scheduler="default-scheduler",unit="bytes"} 1.073741824e+09`,
			`kube_pod_resource_request{namespace="default",node="a",pod="bytes",priority="",resource="cpu",scheduler="` + "\uFFFD" + `",unit="cores"} 0.25`,
			`kube_pod_resource_request{namespace="default",node="a",pod="bytes",priority="",resource="memory",scheduler="` + "\uFFFD" + `",unit="bytes"} 1.073741824e+09`,
			`kube_pod_resource_request{namespace="default",node="a",pod="placed",priority="",resource="cpu",scheduler="default-scheduler",unit="cores"} 0.5`,
			`kube_pod_resource_request{namespace="default",node="a",pod="placed",priority="",resource="memory",scheduler="default-scheduler",unit="bytes"} 1.073741824e+09`,
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}, node("a"), ended, bytes)
}
