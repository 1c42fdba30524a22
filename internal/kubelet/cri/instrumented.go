package cri

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/nativehistogram"
)

// metrics counts CRI calls under upstream's names.
type metrics struct {
	operations *prometheus.CounterVec // all by operation_type
	errors     *prometheus.CounterVec
	durations  *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	label := []string{"operation_type"}
	m := &metrics{
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_runtime_operations_total", Help: "[ALPHA] Cumulative number of runtime operations by operation type."}, label),
		errors:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_runtime_operations_errors_total", Help: "[ALPHA] Cumulative number of runtime operation errors by operation type."}, label),
		durations: nativehistogram.NewVec(prometheus.HistogramOpts{Name: "kubelet_runtime_operations_duration_seconds", Help: "[ALPHA] Duration in seconds of runtime operations. Broken down by operation type.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2.5, 14)}, label),
	}
	r.MustRegister(m.operations, m.errors, m.durations)
	return m
}

// observe counts one CRI call that began at the given time.
func (m *metrics) observe(name string, began time.Time, err error) {
	m.operations.WithLabelValues(name).Inc()
	m.durations.WithLabelValues(name).Observe(time.Since(began).Seconds())
	if err != nil {
		m.errors.WithLabelValues(name).Inc()
	}
}

// instrumentedRuntime counts the calls of a runtime service. Calls that change
// what the runtime has are not canceled half-way: the runtime may be left with a
// container or a network that it cannot remove. The service bounds their time.
// StopContainer is canceled, because a shorter grace period may replace a longer
// one.
type instrumentedRuntime struct {
	internalapi.RuntimeService
	metrics    *metrics
	deleteTask func(ctx context.Context, containerID string) error // may be nil
}

func (r *instrumentedRuntime) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (id string, err error) {
	defer func(began time.Time) { r.metrics.observe("run_podsandbox", began, err) }(time.Now())
	return r.RuntimeService.RunPodSandbox(context.WithoutCancel(ctx), config, handler)
}

func (r *instrumentedRuntime) StopPodSandbox(ctx context.Context, id string) (err error) {
	defer func(began time.Time) { r.metrics.observe("stop_podsandbox", began, err) }(time.Now())
	return r.RuntimeService.StopPodSandbox(context.WithoutCancel(ctx), id)
}

func (r *instrumentedRuntime) RemovePodSandbox(ctx context.Context, id string) (err error) {
	defer func(began time.Time) { r.metrics.observe("remove_podsandbox", began, err) }(time.Now())
	return r.RuntimeService.RemovePodSandbox(context.WithoutCancel(ctx), id)
}

func (r *instrumentedRuntime) PodSandboxStatus(ctx context.Context, id string, verbose bool) (answer *runtimeapi.PodSandboxStatusResponse, err error) {
	defer func(began time.Time) { r.metrics.observe("podsandbox_status", began, err) }(time.Now())
	return r.RuntimeService.PodSandboxStatus(ctx, id, verbose)
}

func (r *instrumentedRuntime) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) (list []*runtimeapi.PodSandbox, err error) {
	defer func(began time.Time) { r.metrics.observe("list_podsandbox", began, err) }(time.Now())
	return r.RuntimeService.ListPodSandbox(ctx, filter)
}

func (r *instrumentedRuntime) CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (id string, err error) {
	defer func(began time.Time) { r.metrics.observe("create_container", began, err) }(time.Now())
	return r.RuntimeService.CreateContainer(context.WithoutCancel(ctx), sandbox, config, sandboxConfig)
}

func (r *instrumentedRuntime) StartContainer(ctx context.Context, id string) (err error) {
	defer func(began time.Time) { r.metrics.observe("start_container", began, err) }(time.Now())
	return r.RuntimeService.StartContainer(context.WithoutCancel(ctx), id)
}

func (r *instrumentedRuntime) StopContainer(ctx context.Context, id string, timeout int64) (err error) {
	defer func(began time.Time) { r.metrics.observe("stop_container", began, err) }(time.Now())
	return r.RuntimeService.StopContainer(ctx, id, timeout)
}

// RemoveContainer removes a container. containerd takes a container for exited
// if its start was interrupted, and does not remove it if its task exists all
// the same.
func (r *instrumentedRuntime) RemoveContainer(ctx context.Context, id string) (err error) {
	defer func(began time.Time) { r.metrics.observe("remove_container", began, err) }(time.Now())
	ctx = context.WithoutCancel(ctx)
	err = r.RuntimeService.RemoveContainer(ctx, id)
	if grpcstatus.Code(err) != codes.FailedPrecondition || r.deleteTask == nil {
		return err
	}
	if failed := r.deleteTask(ctx, id); failed != nil {
		return errors.Join(err, failed)
	}
	return r.RuntimeService.RemoveContainer(ctx, id)
}

func (r *instrumentedRuntime) UpdateContainerResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) (err error) {
	defer func(began time.Time) { r.metrics.observe("update_container", began, err) }(time.Now())
	return r.RuntimeService.UpdateContainerResources(context.WithoutCancel(ctx), id, resources)
}

func (r *instrumentedRuntime) UpdatePodSandboxResources(ctx context.Context, request *runtimeapi.UpdatePodSandboxResourcesRequest) (answer *runtimeapi.UpdatePodSandboxResourcesResponse, err error) {
	defer func(began time.Time) { r.metrics.observe("update_podsandbox_resources", began, err) }(time.Now())
	return r.RuntimeService.UpdatePodSandboxResources(context.WithoutCancel(ctx), request)
}

func (r *instrumentedRuntime) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) (list []*runtimeapi.Container, err error) {
	defer func(began time.Time) { r.metrics.observe("list_containers", began, err) }(time.Now())
	return r.RuntimeService.ListContainers(ctx, filter)
}

func (r *instrumentedRuntime) ContainerStatus(ctx context.Context, id string, verbose bool) (answer *runtimeapi.ContainerStatusResponse, err error) {
	defer func(began time.Time) { r.metrics.observe("container_status", began, err) }(time.Now())
	return r.RuntimeService.ContainerStatus(ctx, id, verbose)
}

func (r *instrumentedRuntime) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	defer func(began time.Time) { r.metrics.observe("exec_sync", began, err) }(time.Now())
	return r.RuntimeService.ExecSync(ctx, id, command, timeout)
}

// instrumentedImages counts the calls of an image service.
type instrumentedImages struct {
	internalapi.ImageManagerService
	metrics *metrics
}

func (i *instrumentedImages) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (ref string, err error) {
	defer func(began time.Time) { i.metrics.observe("pull_image", began, err) }(time.Now())
	return i.ImageManagerService.PullImage(ctx, image, auth, sandbox)
}

func (i *instrumentedImages) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (answer *runtimeapi.ImageStatusResponse, err error) {
	defer func(began time.Time) { i.metrics.observe("image_status", began, err) }(time.Now())
	return i.ImageManagerService.ImageStatus(ctx, image, verbose)
}

func (i *instrumentedImages) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) (list []*runtimeapi.Image, err error) {
	defer func(began time.Time) { i.metrics.observe("list_images", began, err) }(time.Now())
	return i.ImageManagerService.ListImages(ctx, filter)
}

func (i *instrumentedImages) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) (err error) {
	defer func(began time.Time) { i.metrics.observe("remove_image", began, err) }(time.Now())
	return i.ImageManagerService.RemoveImage(ctx, image)
}
