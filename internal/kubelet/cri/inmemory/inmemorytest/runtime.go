// Package inmemorytest is the runtime in memory with what tests need: faults and
// delays, and a record of what it was asked for.
package inmemorytest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
)

// Runtime is a runtime in memory.
type Runtime struct {
	*inmemory.Runtime
	// Latency is how long a listing of sandboxes takes.
	Latency time.Duration
	// Listings counts the listings of sandboxes.
	Listings atomic.Int64
	// ResizeSandbox answers UpdatePodSandboxResources; nil accepts all.
	ResizeSandbox func(request *runtimeapi.UpdatePodSandboxResourcesRequest) error

	images *Images

	mu      sync.Mutex                             // guards what follows
	configs map[string]*runtimeapi.ContainerConfig // by container
	shifts  map[string]map[int64]int64             // of times, by sandbox and container
}

// New returns a runtime without pods or images.
func New() *Runtime {
	r := &Runtime{Runtime: inmemory.New(), configs: map[string]*runtimeapi.ContainerConfig{}, shifts: map[string]map[int64]int64{}}
	r.images = &Images{
		Images: r.Runtime.Images(),
		pulls:  map[string]int{}, failures: map[string]error{}, passwords: map[string]string{}, auths: map[string][]*runtimeapi.AuthConfig{},
	}
	return r
}

// Images returns the image service of the runtime.
func (r *Runtime) Images() *Images { return r.images }

// CreateContainer implements the CRI.
func (r *Runtime) CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	id, err := r.Runtime.CreateContainer(ctx, sandboxID, config, sandbox)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.configs[id] = config
	return id, err
}

// UpdatePodSandboxResources implements the CRI.
func (r *Runtime) UpdatePodSandboxResources(ctx context.Context, request *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	if r.ResizeSandbox != nil {
		if err := r.ResizeSandbox(request); err != nil {
			return nil, err
		}
	}
	return r.Runtime.UpdatePodSandboxResources(ctx, request)
}

// Config returns the configuration that the container was created with, or nil.
func (r *Runtime) Config(id string) *runtimeapi.ContainerConfig {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.configs[id]
}

// SetClockBack makes all times that the runtime has recorded later by d, as if
// the machine's clock had been set back since. If d is negative, it was set
// forward.
func (r *Runtime) SetClockBack(ctx context.Context, d time.Duration) error {
	sandboxes, err := r.Runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	containers, err := r.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return err
	}
	for _, s := range sandboxes {
		r.shift(s.GetId(), d, s.GetCreatedAt())
	}
	for _, c := range containers {
		answer, err := r.Runtime.ContainerStatus(ctx, c.GetId(), false)
		if err != nil {
			return err
		}
		st := answer.GetStatus()
		r.shift(c.GetId(), d, st.GetCreatedAt(), st.GetStartedAt(), st.GetFinishedAt())
	}
	return nil
}

// shift shows times of a sandbox or container later by d.
func (r *Runtime) shift(id string, d time.Duration, times ...int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	shifts := map[int64]int64{}
	for _, at := range times {
		if at != 0 {
			shifts[at] = r.shifts[id][at] + int64(d)
		}
	}
	r.shifts[id] = shifts
}

// shown changes times of a sandbox or container to those that are shown.
func (r *Runtime) shown(id string, times ...*int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range times {
		*at += r.shifts[id][*at]
	}
}

// ListPodSandbox implements the CRI.
func (r *Runtime) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	r.Listings.Add(1)
	time.Sleep(r.Latency)
	all, err := r.Runtime.ListPodSandbox(ctx, filter)
	for _, s := range all {
		r.shown(s.GetId(), &s.CreatedAt)
	}
	return all, err
}

// PodSandboxStatus implements the CRI.
func (r *Runtime) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	answer, err := r.Runtime.PodSandboxStatus(ctx, id, verbose)
	if err != nil {
		return nil, err
	}
	answer = proto.CloneOf(answer)
	r.shown(id, &answer.Status.CreatedAt)
	return answer, nil
}

// ListContainers implements the CRI.
func (r *Runtime) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	all, err := r.Runtime.ListContainers(ctx, filter)
	for _, c := range all {
		r.shown(c.GetId(), &c.CreatedAt)
	}
	return all, err
}

// ContainerStatus implements the CRI.
func (r *Runtime) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	answer, err := r.Runtime.ContainerStatus(ctx, id, verbose)
	if err != nil {
		return nil, err
	}
	answer = proto.CloneOf(answer)
	st := answer.GetStatus()
	r.shown(id, &st.CreatedAt, &st.StartedAt, &st.FinishedAt)
	return answer, nil
}
