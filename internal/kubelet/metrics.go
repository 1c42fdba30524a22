package kubelet

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	registry "github.com/coracle-io/coracle/internal/metrics"
)

// metrics is what the kubelet counts of its own work, by upstream's names.
type metrics struct {
	registry *registry.Registry

	podStart          prometheus.Histogram
	podWorker         *prometheus.HistogramVec // by operation_type
	relist            prometheus.Histogram
	relistInterval    prometheus.Histogram
	evictions         *prometheus.CounterVec // by eviction_signal
	startedPods       prometheus.Counter
	startedContainers *prometheus.CounterVec // by container_type
	operations        *prometheus.CounterVec // by operation_type
	operationErrors   *prometheus.CounterVec
	operationTime     *prometheus.HistogramVec
}

func newMetrics(r *registry.Registry) *metrics {
	counter := func(name, help string) prometheus.CounterOpts { return prometheus.CounterOpts{Name: name, Help: help} }
	histogram := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	}
	m := &metrics{
		registry: r,
		podStart: prometheus.NewHistogram(histogram("kubelet_pod_start_duration_seconds", "[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
			[]float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600})),
		podWorker:      prometheus.NewHistogramVec(histogram("kubelet_pod_worker_duration_seconds", "[ALPHA] Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync", prometheus.DefBuckets), []string{"operation_type"}),
		relist:         prometheus.NewHistogram(histogram("kubelet_pleg_relist_duration_seconds", "[ALPHA] Duration in seconds for relisting pods in PLEG.", prometheus.DefBuckets)),
		relistInterval: prometheus.NewHistogram(histogram("kubelet_pleg_relist_interval_seconds", "[ALPHA] Interval in seconds between relisting in PLEG.", prometheus.DefBuckets)),
		evictions:      prometheus.NewCounterVec(counter("kubelet_evictions", "[ALPHA] Cumulative number of pod evictions by eviction signal"), []string{"eviction_signal"}),
		startedPods:    prometheus.NewCounter(counter("kubelet_started_pods_total", "[ALPHA] Cumulative number of pods started")),
		startedContainers: prometheus.NewCounterVec(counter("kubelet_started_containers_total", "[ALPHA] Cumulative number of containers started"),
			[]string{"container_type"}),
		operations:      prometheus.NewCounterVec(counter("kubelet_runtime_operations_total", "[ALPHA] Cumulative number of runtime operations by operation type."), []string{"operation_type"}),
		operationErrors: prometheus.NewCounterVec(counter("kubelet_runtime_operations_errors_total", "[ALPHA] Cumulative number of runtime operation errors by operation type."), []string{"operation_type"}),
		operationTime: prometheus.NewHistogramVec(histogram("kubelet_runtime_operations_duration_seconds", "[ALPHA] Duration in seconds of runtime operations. Broken down by operation type.",
			prometheus.ExponentialBuckets(0.005, 2.5, 14)), []string{"operation_type"}),
	}
	m.registry.MustRegister(m.podStart, m.podWorker, m.relist, m.relistInterval, m.evictions, m.startedPods, m.startedContainers, m.operations, m.operationErrors, m.operationTime)
	return m
}

// operation counts one question to the runtime, which began then.
func (m *metrics) operation(name string, began time.Time, err error) {
	m.operations.WithLabelValues(name).Inc()
	m.operationTime.WithLabelValues(name).Observe(time.Since(began).Seconds())
	if err != nil {
		m.operationErrors.WithLabelValues(name).Inc()
	}
}

// measured is a runtime whose work is counted.
type measured struct {
	internalapi.RuntimeService
	m *metrics
}

func (r measured) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (id string, err error) {
	defer func(began time.Time) { r.m.operation("run_podsandbox", began, err) }(time.Now())
	return r.RuntimeService.RunPodSandbox(ctx, config, handler)
}

func (r measured) StopPodSandbox(ctx context.Context, id string) (err error) {
	defer func(began time.Time) { r.m.operation("stop_podsandbox", began, err) }(time.Now())
	return r.RuntimeService.StopPodSandbox(ctx, id)
}

func (r measured) RemovePodSandbox(ctx context.Context, id string) (err error) {
	defer func(began time.Time) { r.m.operation("remove_podsandbox", began, err) }(time.Now())
	return r.RuntimeService.RemovePodSandbox(ctx, id)
}

func (r measured) PodSandboxStatus(ctx context.Context, id string, verbose bool) (answer *runtimeapi.PodSandboxStatusResponse, err error) {
	defer func(began time.Time) { r.m.operation("podsandbox_status", began, err) }(time.Now())
	return r.RuntimeService.PodSandboxStatus(ctx, id, verbose)
}

func (r measured) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) (list []*runtimeapi.PodSandbox, err error) {
	defer func(began time.Time) { r.m.operation("list_podsandbox", began, err) }(time.Now())
	return r.RuntimeService.ListPodSandbox(ctx, filter)
}

func (r measured) CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (id string, err error) {
	defer func(began time.Time) { r.m.operation("create_container", began, err) }(time.Now())
	return r.RuntimeService.CreateContainer(ctx, sandbox, config, sandboxConfig)
}

func (r measured) StartContainer(ctx context.Context, id string) (err error) {
	defer func(began time.Time) { r.m.operation("start_container", began, err) }(time.Now())
	return r.RuntimeService.StartContainer(ctx, id)
}

func (r measured) StopContainer(ctx context.Context, id string, timeout int64) (err error) {
	defer func(began time.Time) { r.m.operation("stop_container", began, err) }(time.Now())
	return r.RuntimeService.StopContainer(ctx, id, timeout)
}

func (r measured) RemoveContainer(ctx context.Context, id string) (err error) {
	defer func(began time.Time) { r.m.operation("remove_container", began, err) }(time.Now())
	return r.RuntimeService.RemoveContainer(ctx, id)
}

func (r measured) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) (list []*runtimeapi.Container, err error) {
	defer func(began time.Time) { r.m.operation("list_containers", began, err) }(time.Now())
	return r.RuntimeService.ListContainers(ctx, filter)
}

func (r measured) ContainerStatus(ctx context.Context, id string, verbose bool) (answer *runtimeapi.ContainerStatusResponse, err error) {
	defer func(began time.Time) { r.m.operation("container_status", began, err) }(time.Now())
	return r.RuntimeService.ContainerStatus(ctx, id, verbose)
}

func (r measured) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	defer func(began time.Time) { r.m.operation("exec_sync", began, err) }(time.Now())
	return r.RuntimeService.ExecSync(ctx, id, command, timeout)
}

// measuredImages is an image service whose work is counted.
type measuredImages struct {
	internalapi.ImageManagerService
	m *metrics
}

func (i measuredImages) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (ref string, err error) {
	defer func(began time.Time) { i.m.operation("pull_image", began, err) }(time.Now())
	return i.ImageManagerService.PullImage(ctx, image, auth, sandbox)
}

func (i measuredImages) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (answer *runtimeapi.ImageStatusResponse, err error) {
	defer func(began time.Time) { i.m.operation("image_status", began, err) }(time.Now())
	return i.ImageManagerService.ImageStatus(ctx, image, verbose)
}

func (i measuredImages) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) (list []*runtimeapi.Image, err error) {
	defer func(began time.Time) { i.m.operation("list_images", began, err) }(time.Now())
	return i.ImageManagerService.ListImages(ctx, filter)
}

func (i measuredImages) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) (err error) {
	defer func(began time.Time) { i.m.operation("remove_image", began, err) }(time.Now())
	return i.ImageManagerService.RemoveImage(ctx, image)
}
