package inmemory

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ExitError is the error of a command that exits with a code other than 0.
type ExitError struct {
	Code   int
	Output string
}

// Error implements error.
func (e *ExitError) Error() string {
	return fmt.Sprintf("command exited with %d: %s", e.Code, e.Output)
}

// String returns the message.
func (e *ExitError) String() string { return e.Error() }

// Exited returns true, because the command ran.
func (e *ExitError) Exited() bool { return true }

// ExitStatus returns the exit code.
func (e *ExitError) ExitStatus() int { return e.Code }

func clone[T proto.Message](m T) T { return proto.Clone(m).(T) }

// CreateContainer implements the CRI. As in containerd, the name and attempt of
// a container are reserved within its pod until the container is removed.
func (r *Runtime) CreateContainer(_ context.Context, sandboxID string, config *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes.byID[sandboxID]
	if s == nil {
		return "", notFound("sandbox", sandboxID)
	}
	for _, other := range r.sandboxes.byPod[s.uid()] {
		for _, c := range other.containers {
			if proto.Equal(c.config.GetMetadata(), config.GetMetadata()) {
				return "", status.Errorf(codes.AlreadyExists, "failed to reserve container name: %q is reserved", config.GetMetadata().GetName())
			}
		}
	}
	id := r.id("container")
	c := &container{config: config, sandbox: sandboxID, finished: make(chan struct{}), status: &runtimeapi.ContainerStatus{
		Id: id, Metadata: config.GetMetadata(), State: runtimeapi.ContainerState_CONTAINER_CREATED,
		CreatedAt: time.Now().UnixNano(), Image: config.GetImage(), ImageRef: config.GetImage().GetImage(),
		Labels: config.GetLabels(), Annotations: config.GetAnnotations(), Mounts: config.GetMounts(), LogPath: config.GetLogPath(),
		Resources: &runtimeapi.ContainerResources{Linux: config.GetLinux().GetResources()},
	}}
	if r.Behave != nil {
		c.behave = r.Behave(config)
	}
	r.containers[id], s.containers[id] = c, c
	r.send(id, sandboxID, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return id, nil
}

// StartContainer implements the CRI.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	if err := r.awaitStart(ctx, id); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return notFound("container", id)
	}
	c.status = clone(c.status)
	if c.behave.StartError != nil {
		c.status.State, c.status.ExitCode, c.status.Reason = runtimeapi.ContainerState_CONTAINER_EXITED, 128, "StartError"
		c.status.Message, c.status.FinishedAt = c.behave.StartError.Error(), time.Now().UnixNano()
		close(c.finished)
		return c.behave.StartError
	}
	c.status.State, c.status.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	r.send(id, c.sandbox, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	if c.behave.RunFor > 0 {
		c.exit = time.AfterFunc(c.behave.RunFor, func() { r.Exit(id, c.behave.ExitCode) })
	}
	return nil
}

// awaitStart waits for Behaviour.StartAfter.
func (r *Runtime) awaitStart(ctx context.Context, id string) error {
	r.mu.Lock()
	c := r.containers[id]
	r.mu.Unlock()
	if c == nil || c.behave.StartAfter <= 0 {
		return nil
	}
	timer := time.NewTimer(c.behave.StartAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Exit ends the process of a container with the given code, as if the process
// exited by itself.
func (r *Runtime) Exit(id string, code int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(id, code)
}

func (r *Runtime) end(id string, code int32) {
	c := r.containers[id]
	if c == nil || c.status.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	if c.exit != nil {
		c.exit.Stop()
	}
	c.status = clone(c.status)
	c.status.State, c.status.ExitCode, c.status.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, code, time.Now().UnixNano()
	c.status.Reason = "Completed"
	if code != 0 {
		c.status.Reason = "Error"
	}
	close(c.finished)
	r.send(id, c.sandbox, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// StopContainer implements the CRI. It kills a process that ignores the stop
// signal after timeout seconds.
func (r *Runtime) StopContainer(ctx context.Context, id string, timeout int64) error {
	r.mu.Lock()
	c := r.containers[id]
	if c == nil {
		r.mu.Unlock()
		return notFound("container", id)
	}
	if !c.behave.IgnoreStop {
		r.end(id, 0)
	}
	running := c.status.State == runtimeapi.ContainerState_CONTAINER_RUNNING
	r.mu.Unlock()
	if !running {
		return nil
	}
	timer := time.NewTimer(time.Duration(timeout) * time.Second)
	defer timer.Stop()
	select {
	case <-c.finished:
	case <-timer.C:
		r.Exit(id, 137)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// RemoveContainer implements the CRI.
func (r *Runtime) RemoveContainer(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		r.end(id, 137)
		delete(r.containers, id)
		delete(r.sandboxes.byID[c.sandbox].containers, id)
		r.send(id, c.sandbox, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	}
	return nil
}

// ListContainers implements the CRI.
func (r *Runtime) ListContainers(_ context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*runtimeapi.Container
	for _, s := range r.sandboxes.selectable(filter.GetLabelSelector()) {
		for id, c := range s.containers {
			if filter.GetState() != nil && filter.GetState().GetState() != c.status.State {
				continue
			}
			if matches(filter.GetLabelSelector(), c.status.Labels) {
				out = append(out, &runtimeapi.Container{
					Id: id, PodSandboxId: c.sandbox, Metadata: c.status.Metadata, Image: c.status.Image, ImageRef: c.status.ImageRef,
					State: c.status.State, CreatedAt: c.status.CreatedAt, Labels: c.status.Labels, Annotations: c.status.Annotations,
				})
			}
		}
	}
	return out, nil
}

// ContainerStatus implements the CRI.
func (r *Runtime) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return nil, notFound("container", id)
	}
	return &runtimeapi.ContainerStatusResponse{Status: c.status}, nil
}

// UpdateContainerResources implements the CRI.
func (r *Runtime) UpdateContainerResources(_ context.Context, id string, resources *runtimeapi.ContainerResources) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return notFound("container", id)
	}
	c.status = clone(c.status)
	c.status.Resources = resources
	return nil
}

// ExecSync implements the CRI.
func (r *Runtime) ExecSync(_ context.Context, id string, command []string, _ time.Duration) (stdout, stderr []byte, err error) {
	r.mu.Lock()
	c := r.containers[id]
	r.mu.Unlock()
	if c == nil {
		return nil, nil, notFound("container", id)
	}
	if c.behave.Exec == nil {
		return nil, nil, nil
	}
	output, code := c.behave.Exec(command)
	if code != 0 {
		return []byte(output), nil, &ExitError{Code: int(code), Output: output}
	}
	return []byte(output), nil, nil
}

// Exec implements the CRI. It is not supported.
func (r *Runtime) Exec(context.Context, *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return nil, unimplemented("exec")
}

// Attach implements the CRI. It is not supported.
func (r *Runtime) Attach(context.Context, *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return nil, unimplemented("attach")
}

// ReopenContainerLog implements the CRI.
func (r *Runtime) ReopenContainerLog(context.Context, string) error { return nil }

// CheckpointContainer implements the CRI. It is not supported.
func (r *Runtime) CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) error {
	return unimplemented("checkpoints of containers")
}

// ListContainerStats implements the CRI. It ignores the filter. Containers whose
// Behaviour has no Usage have no statistics.
func (r *Runtime) ListContainerStats(context.Context, *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*runtimeapi.ContainerStats
	for _, c := range r.containers {
		if st := c.stats(); st != nil {
			out = append(out, st)
		}
	}
	return out, nil
}

// ContainerStats implements the CRI.
func (r *Runtime) ContainerStats(_ context.Context, id string) (*runtimeapi.ContainerStats, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		if st := c.stats(); st != nil {
			return st, nil
		}
	}
	return nil, notFound("statistics of container", id)
}

// stats returns what a container uses, nil if it does not run or is not measured.
func (c *container) stats() *runtimeapi.ContainerStats {
	if c.behave.Usage == nil || c.status.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil
	}
	now := time.Now().UnixNano()
	cpu, memory := c.behave.Usage()
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{Id: c.status.Id, Metadata: c.status.Metadata, Labels: c.status.Labels, Annotations: c.status.Annotations},
		Cpu:        &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: cpu}},
		Memory:     &runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: &runtimeapi.UInt64Value{Value: memory}},
	}
}

// PodSandboxStats implements the CRI. It is not supported.
func (r *Runtime) PodSandboxStats(context.Context, string) (*runtimeapi.PodSandboxStats, error) {
	return nil, unimplemented("statistics of sandboxes")
}

// ListMetricDescriptors implements the CRI. It is not supported.
func (r *Runtime) ListMetricDescriptors(context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	return nil, unimplemented("metrics")
}

// ListPodSandboxMetrics implements the CRI. It is not supported.
func (r *Runtime) ListPodSandboxMetrics(context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	return nil, unimplemented("metrics")
}

// ListPodSandboxStats implements the CRI. Sandboxes are not measured.
func (r *Runtime) ListPodSandboxStats(context.Context, *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	return nil, nil
}
