// Package inmemory is a container runtime in memory. It implements the Go
// interfaces of the CRI, runs no processes and uses package time, so that a
// kubelet can run on it under testing/synctest. Simulated nodes run on it.
// inmemorytest adds what tests need: faults, and what the runtime was asked for.
package inmemory

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"
)

// unimplemented is the error of the methods whose work a node without processes
// cannot do, as of a real runtime that does not have them.
func unimplemented(what string) error {
	return status.Errorf(codes.Unimplemented, "the runtime in memory does not support %s", what)
}

// Behaviour describes one container's process. The zero value runs until it is
// stopped and exits at once on the stop signal.
type Behaviour struct {
	// StartAfter is how long StartContainer takes.
	StartAfter time.Duration
	// RunFor, if above 0, is how long the process runs before it exits by
	// itself.
	RunFor   time.Duration
	ExitCode int32
	// IgnoreStop makes the process run until it is killed.
	IgnoreStop bool
	// StartError, if not nil, is returned by StartContainer.
	StartError error
	// Exec runs commands. If it is nil, all commands succeed.
	Exec func(command []string) (output string, exitCode int32)
	// Usage returns what the process has used: CPU since it started, and memory
	// now. If it is nil, the runtime has no statistics of the container.
	Usage func() (cpuNanoseconds, memoryBytes uint64)
}

// Runtime is the container runtime of one node. Its methods may be called from
// any goroutine.
type Runtime struct {
	// Behave returns the behaviour of each new container. Nil means the zero
	// Behaviour for all.
	Behave func(config *runtimeapi.ContainerConfig) Behaviour

	mu         sync.Mutex // guards what follows
	next       int
	podCIDR    string
	sandboxes  sandboxes
	containers map[string]*container
	streams    map[chan *runtimeapi.ContainerEventResponse]struct{}
	images     map[string]*runtimeapi.Image
	addresses  addresses
}

type container struct {
	config   *runtimeapi.ContainerConfig
	status   *runtimeapi.ContainerStatus
	sandbox  string
	behave   Behaviour
	exit     *time.Timer
	finished chan struct{} // closed when the process has ended
}

// New returns a runtime without pods or images.
func New() *Runtime {
	return &Runtime{
		sandboxes:  sandboxes{byID: make(map[string]*sandbox), byPod: make(map[string]map[string]*sandbox)},
		containers: make(map[string]*container),
		streams:    make(map[chan *runtimeapi.ContainerEventResponse]struct{}),
		images:     make(map[string]*runtimeapi.Image),
		addresses:  addresses{used: make(map[netip.Addr]bool), last: make(map[netip.Prefix]netip.Addr)},
	}
}

func notFound(kind, id string) error {
	return status.Errorf(codes.NotFound, "%s %q: not found", kind, id)
}

func (r *Runtime) id(kind string) string {
	r.next++
	return fmt.Sprintf("%s-%08x", kind, r.next)
}

// Version implements the CRI.
func (r *Runtime) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "simulated", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

// Status implements the CRI. Runtime and network are always ready, and pods may ask for
// all that a runtime can do.
func (r *Runtime) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
		}},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: true}}},
		Features:        &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}, nil
}

// RuntimeConfig implements the CRI.
func (r *Runtime) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{}, nil
}

// UpdateRuntimeConfig implements the CRI.
func (r *Runtime) UpdateRuntimeConfig(_ context.Context, config *runtimeapi.RuntimeConfig) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.podCIDR = config.GetNetworkConfig().GetPodCidr()
	return nil
}

// RunPodSandbox implements the CRI. As in containerd, the name and attempt of a sandbox
// are reserved until the sandbox is removed.
func (r *Runtime) RunPodSandbox(_ context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.sandboxes.byPod[config.GetLabels()[kubelettypes.KubernetesPodUIDLabel]] {
		if proto.Equal(other.config.GetMetadata(), config.GetMetadata()) {
			return "", status.Errorf(codes.AlreadyExists, "failed to reserve sandbox name: %q is reserved", config.GetMetadata().GetName())
		}
	}
	id := r.id("sandbox")
	s := &sandbox{config: config, handler: handler, containers: make(map[string]*container), status: &runtimeapi.PodSandboxStatus{
		Id: id, Metadata: config.GetMetadata(), State: runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt: time.Now().UnixNano(), Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
		RuntimeHandler: handler,
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: config.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
	}}
	if s.status.GetLinux().GetNamespaces().GetOptions().GetNetwork() != runtimeapi.NamespaceMode_NODE {
		var err error
		if s.status.Network, err = r.addresses.take(r.podCIDR); err != nil {
			return "", err
		}
	}
	r.sandboxes.add(s)
	r.send(id, id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return id, nil
}

// StopPodSandbox implements the CRI. It kills the containers that run in the
// sandbox.
func (r *Runtime) StopPodSandbox(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes.byID[id]
	if s == nil {
		return nil
	}
	for cid := range s.containers {
		r.end(cid, 137)
	}
	if s.status.State == runtimeapi.PodSandboxState_SANDBOX_READY {
		s.status = clone(s.status)
		s.status.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		r.send(id, id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
	return nil
}

// RemovePodSandbox implements the CRI.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	if err := r.StopPodSandbox(ctx, id); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes.byID[id]; s != nil {
		for cid := range s.containers {
			delete(r.containers, cid)
		}
		r.addresses.free(s.status.GetNetwork())
		r.send(id, id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
		r.sandboxes.remove(s)
	}
	return nil
}

// PodSandboxStatus implements the CRI.
func (r *Runtime) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes.byID[id]
	if s == nil {
		return nil, notFound("sandbox", id)
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: s.status}, nil
}

// ListPodSandbox implements the CRI.
func (r *Runtime) ListPodSandbox(_ context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*runtimeapi.PodSandbox
	for id, s := range r.sandboxes.selectable(filter.GetLabelSelector()) {
		if matches(filter.GetLabelSelector(), s.status.Labels) {
			out = append(out, &runtimeapi.PodSandbox{
				Id: id, Metadata: s.status.Metadata, State: s.status.State, CreatedAt: s.status.CreatedAt,
				Labels: s.status.Labels, Annotations: s.status.Annotations, RuntimeHandler: s.handler,
			})
		}
	}
	return out, nil
}

// UpdatePodSandboxResources implements the CRI.
func (r *Runtime) UpdatePodSandboxResources(context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

// PortForward implements the CRI. It is not supported.
func (r *Runtime) PortForward(context.Context, *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return nil, unimplemented("port forwarding")
}

// CheckpointPod implements the CRI. It is not supported.
func (r *Runtime) CheckpointPod(context.Context, *runtimeapi.CheckpointPodRequest) error {
	return unimplemented("checkpoints of pods")
}

// RestorePod implements the CRI. It is not supported.
func (r *Runtime) RestorePod(context.Context, *runtimeapi.RestorePodRequest) (*runtimeapi.RestorePodResponse, error) {
	return nil, unimplemented("checkpoints of pods")
}

// Close implements the CRI.
func (r *Runtime) Close(context.Context) error { return nil }

// GetContainerEvents implements the CRI.
func (r *Runtime) GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, connected func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	stream := make(chan *runtimeapi.ContainerEventResponse, 1024)
	r.mu.Lock()
	r.streams[stream] = struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.streams, stream)
		r.mu.Unlock()
	}()
	if connected != nil {
		connected(nil)
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event := <-stream:
			select {
			case events <- event:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// send sends an event to all streams. Like a real runtime, it drops events for
// a stream that does not keep up. r.mu is held.
func (r *Runtime) send(containerID, sandboxID string, kind runtimeapi.ContainerEventType) {
	event := &runtimeapi.ContainerEventResponse{ContainerId: containerID, ContainerEventType: kind, CreatedAt: time.Now().UnixNano()}
	if s := r.sandboxes.byID[sandboxID]; s != nil {
		event.PodSandboxStatus = s.status
	}
	for stream := range r.streams {
		select {
		case stream <- event:
		default:
		}
	}
}
