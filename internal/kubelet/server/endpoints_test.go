package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/stats"
	"github.com/coracle-io/coracle/internal/metrics"
)

// onePod provides the pod default/web, whose container is main.
type onePod struct{}

func (onePod) Pods() []*v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid"}}
	p.Spec.Containers = []v1.Container{{Name: "main"}}
	return []*v1.Pod{p}
}

func (o onePod) Pod(namespace, name string, uid types.UID) *v1.Pod {
	if namespace != "default" || name != "web" || uid != "" && uid != "uid" {
		return nil
	}
	return o.Pods()[0]
}

// noStats is a provider whose runtime does not answer.
type noStats struct{}

var errAway = errors.New("the runtime is away")

func (noStats) Summary(context.Context, bool) (*statsapi.Summary, error) { return nil, errAway }
func (noStats) Groups(context.Context) (stats.Machine, []stats.Group, error) {
	return stats.Machine{}, nil, errAway
}

func newTestConfiguration() *kubeletconfig.KubeletConfiguration {
	return &kubeletconfig.KubeletConfiguration{Address: "127.0.0.1", HealthzPort: new(int32), EnableDebuggingHandlers: new(true), EnableProfilingHandler: new(true), EnableSystemLogHandler: new(true), EnableDebugFlagsHandler: new(true)}
}

func newTestServer(t *testing.T) *Server {
	t.Helper()
	return serverOf(Config{
		Pods: onePod{}, Runtime: inmemory.New(), Stats: noStats{}, Healthy: func() error { return errAway }, Metrics: prometheus.NewRegistry(),
		ProbeCounts: func() map[probe.Count]int { return nil }, Files: &files.Memory{}, CheckpointDir: "/checkpoints", Configuration: newTestConfiguration(),
	})
}

// serverOf returns a server without ports.
func serverOf(config Config) *Server { return &Server{config: config, results: metrics.NewChecks()} }

// There are no checkpoints if they are off.
func TestCheckpointsAreOff(t *testing.T) {
	off, err := feature.Parse([]string{"ContainerCheckpoint=false"})
	if err != nil {
		t.Fatal(err)
	}
	s := newTestServer(t)
	for features, want := range map[*feature.Set]string{nil: "container other does not exist", off: "404 page not found"} {
		s.config.Features = features
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/checkpoint/default/web/other", nil))
		if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d %s, want %s", w.Code, w.Body, want)
		}
	}
}

// The results of health checks are counted, also of those on the port of health alone.
func TestResultsOfHealthChecks(t *testing.T) {
	s := newTestServer(t)
	get := func(handler http.Handler, path string) string {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Body.String()
	}
	get(s.Handler(), "/healthz")
	get(s.healthHandler(), "/healthz")
	page := get(s.Handler(), "/metrics/slis")
	for _, want := range []string{
		`kubernetes_healthcheck{name="ping",type="healthz"} 1`,
		`kubernetes_healthcheck{name="syncloop",type="healthz"} 0`,
		`kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 2`,
		`kubernetes_healthchecks_total{name="syncloop",status="error",type="healthz"} 2`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%s is missing in\n%s", want, page)
		}
	}
}

// Every endpoint reports bad requests and a failing runtime with a status code
// and a message.
func TestEndpointErrors(t *testing.T) {
	handler := newTestServer(t).Handler()
	for request, want := range map[string]struct {
		code int
		text string
	}{
		"GET /healthz":                                       {http.StatusInternalServerError, "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed"},
		"GET /healthz?exclude=syncloop&verbose":              {http.StatusOK, "[+]syncloop excluded: ok\nhealthz check passed"},
		"GET /healthz/ping":                                  {http.StatusOK, "ok"},
		"GET /healthz/syncloop":                              {http.StatusInternalServerError, "the runtime is away"},
		"GET /healthz/nothing":                               {http.StatusNotFound, ""},
		"GET /stats/summary":                                 {http.StatusInternalServerError, "the runtime is away"},
		"GET /metrics/resource":                              {http.StatusOK, "resource_scrape_error 1"},
		"GET /metrics/cadvisor":                              {http.StatusInternalServerError, "the runtime is away"},
		"GET /metrics/probes":                                {http.StatusOK, ""},
		"GET /metrics":                                       {http.StatusOK, `kubelet_metrics_provider{provider="cri"} 1`},
		"GET /pods":                                          {http.StatusOK, `"kind":"PodList"`},
		"POST /pods":                                         {http.StatusMethodNotAllowed, ""},
		"GET /runningpods/":                                  {http.StatusOK, `"items":[]`},
		"GET /configz":                                       {http.StatusOK, `"cgroupDriver":"cgroupfs"`},
		"GET /containerLogs/default/other/main":              {http.StatusNotFound, `pod "other_default" not found`},
		"GET /containerLogs/default/web/other":               {http.StatusNotFound, `container "other" in pod "web" is not available`},
		"GET /containerLogs/default/web/main":                {http.StatusBadRequest, "is waiting to start"},
		"GET /containerLogs/default/web/main?tailLines=-1":   {http.StatusUnprocessableEntity, "tailLines: Invalid value: -1: must be greater than or equal to 0"},
		"GET /containerLogs/default/web/main?tail=-1":        {http.StatusUnprocessableEntity, "tailLines"},
		"GET /containerLogs/default/web/main?tail=some":      {http.StatusBadRequest, "tailLines"},
		"GET /containerLogs/default/web/main?limitBytes=0":   {http.StatusUnprocessableEntity, "limitBytes: Invalid value: 0: must be greater than 0"},
		"GET /containerLogs/default/web/main?sinceSeconds=0": {http.StatusUnprocessableEntity, "sinceSeconds: Invalid value: 0: must be greater than 0"},
		"GET /containerLogs/default/web/main?sinceSeconds=1&sinceTime=2026-11-21T07:00:00Z": {http.StatusUnprocessableEntity,
			"at most one of `sinceTime` or `sinceSeconds` may be specified"},
		"GET /containerLogs/default/web/main?sinceSeconds=x":      {http.StatusBadRequest, "sinceSeconds"},
		"GET /containerLogs/default/web/main?sinceTime=yesterday": {http.StatusBadRequest, "sinceTime"},
		"GET /containerLogs/default/web/main?stream=bogus": {http.StatusUnprocessableEntity,
			`stream: Unsupported value: "bogus": supported values: "All", "Stdout", "Stderr"`},
		"GET /containerLogs/default/web/main?stream=Stdout&tailLines=1": {http.StatusUnprocessableEntity, "mutually exclusive"},
		"GET /containerLogs/default/web/main?stream=Stdout":             {http.StatusBadRequest, "is waiting to start"},
		"GET /containerLogs/default/web/main?stream=All&tailLines=1":    {http.StatusBadRequest, "is waiting to start"},
		"GET /containerLogs/default/web/main?follow=maybe":              {http.StatusBadRequest, "follow"},
		"POST /exec/default/web/other-uid/main?stdout=1&command=x":      {http.StatusNotFound, `pod "web_default" not found`},
		"POST /exec/default/web/main?stdout=1&command=x":                {http.StatusNotFound, `container not found ("main")`},
		"POST /attach/default/web/uid/main?stdout=1":                    {http.StatusNotFound, `container not found ("main")`},
		"POST /run/default/web/main?cmd=x":                              {http.StatusNotFound, `container not found ("main")`},
		"GET /run/default/web/main?cmd=x":                               {http.StatusMethodNotAllowed, ""},
		"POST /portForward/default/web?port=80":                         {http.StatusNotFound, "failed to find sandbox"},
		"POST /checkpoint/default/web/other":                            {http.StatusNotFound, "container other does not exist"},
		"POST /checkpoint/default/web/main?timeout=soon":                {http.StatusNotFound, "cannot parse value of timeout parameter"},
		"POST /checkpoint/default/web/main":                             {http.StatusInternalServerError, "checkpointing of default/web/main failed"},
		"GET /nothing":                                                  {http.StatusNotFound, ""},
	} {
		method, path, _ := strings.Cut(request, " ")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		if w.Code != want.code || !strings.Contains(w.Body.String(), want.text) {
			t.Errorf("%s: %d %.200q, want %d %q", request, w.Code, w.Body.String(), want.code, want.text)
		}
	}
}

// waitingGroups are two groups, of which one has waited for resources.
type waitingGroups struct{ noStats }

func (waitingGroups) Groups(context.Context) (stats.Machine, []stats.Group, error) {
	return stats.Machine{}, []stats.Group{
		{ID: "/a", Usage: cgroup.Usage{Pressures: cgroup.Pressures{CPUPressure: &cgroup.Pressure{Some: cgroup.Stall{Nanoseconds: 2e9}, Full: cgroup.Stall{Nanoseconds: 5e8}}}}},
		{ID: "/b"},
	}, nil
}

func TestCadvisorMetricsOfPressure(t *testing.T) {
	s := newTestServer(t)
	s.config.Stats = waitingGroups{}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/cadvisor", nil))
	var got []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "container_pressure_") {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
			name, _, _ = strings.Cut(name, "{")
			got = append(got, name+" "+value)
		}
	}
	want := []string{"container_pressure_cpu_stalled_seconds_total 0.5", "container_pressure_cpu_waiting_seconds_total 2"}
	if !slices.Equal(got, want) {
		t.Errorf("the metrics are %q, want %q", got, want)
	}
}

// partialStats are the stats of a pod with a container that was not measured.
type partialStats struct{ noStats }

func (partialStats) Summary(context.Context, bool) (*statsapi.Summary, error) {
	cpu, memory, swap, left := uint64(5e9), uint64(7), uint64(3), uint64(4)
	return &statsapi.Summary{Pods: []statsapi.PodStats{{
		PodRef: statsapi.PodReference{Name: "web", Namespace: "default"}, CPU: &statsapi.CPUStats{}, Memory: &statsapi.MemoryStats{},
		Containers: []statsapi.ContainerStats{
			{Name: "new", CPU: &statsapi.CPUStats{}, Memory: &statsapi.MemoryStats{WorkingSetBytes: &memory}, Swap: &statsapi.SwapStats{SwapUsageBytes: &swap}},
			{Name: "old", CPU: &statsapi.CPUStats{UsageCoreNanoSeconds: &cpu}, Memory: &statsapi.MemoryStats{}, Swap: &statsapi.SwapStats{SwapUsageBytes: &swap, SwapAvailableBytes: &left}},
		},
	}}}, nil
}

// Values that were not measured are left out, and not reported as 0.
func TestResourceMetricsHaveWhatWasMeasured(t *testing.T) {
	s := newTestServer(t)
	s.config.Stats = partialStats{}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/resource", nil))
	var got []string
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	want := []string{
		`container_cpu_usage_seconds_total{container="old",namespace="default",pod="web"} 5`,
		`container_swap_usage_bytes{container="new",namespace="default",pod="web"} 3`,
		`container_swap_usage_bytes{container="old",namespace="default",pod="web"} 3`,
		`container_swap_limit_bytes{container="old",namespace="default",pod="web"} 7`,
		`container_memory_working_set_bytes{container="new",namespace="default",pod="web"} 7`,
		"resource_scrape_error 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the metrics are %q, want %q", got, want)
	}
}
