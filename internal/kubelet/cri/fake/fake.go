// Package fake is a container runtime in memory: it speaks the CRI's Go
// interfaces, runs no process, and keeps time by package time, so that a
// kubelet on it runs under testing/synctest.
package fake

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Behaviour says how one container's process acts. The zero value runs until
// it is stopped and ends at once on the stop signal.
type Behaviour struct {
	// RunFor above zero ends the process by itself after that time.
	RunFor   time.Duration
	ExitCode int32
	// IgnoreStop makes the process live until it is killed.
	IgnoreStop bool
	// StartError is what StartContainer answers, if not nil.
	StartError error
	// Exec answers commands; nil lets all of them succeed.
	Exec func(command []string) (output string, exitCode int32)
}

// Runtime is the runtime of one node. All methods may be called from any
// goroutine.
type Runtime struct {
	internalapi.RuntimeService // answers what a node in memory has no use for; always nil

	// Behave is asked for each container that is started; nil is the zero
	// Behaviour for all.
	Behave func(config *runtimeapi.ContainerConfig) Behaviour
	// SandboxError is asked before each sandbox is made; nil never fails.
	SandboxError func(config *runtimeapi.PodSandboxConfig) error
	// Latency is how long a listing of sandboxes takes.
	Latency time.Duration
	// Listings counts them.
	Listings atomic.Int64

	mu         sync.Mutex // guards what follows
	next       int
	podCIDR    string
	sandboxes  map[string]*sandbox
	containers map[string]*container
	streams    map[chan *runtimeapi.ContainerEventResponse]struct{}
	images     map[string]*runtimeapi.Image
	pulls      map[string]int
	pullError  map[string]error
	passwords  map[string]string // that images are pulled with
	auths      map[string][]*runtimeapi.AuthConfig
}

type sandbox struct {
	config  *runtimeapi.PodSandboxConfig
	status  *runtimeapi.PodSandboxStatus
	handler string
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
		sandboxes:  make(map[string]*sandbox),
		containers: make(map[string]*container),
		streams:    make(map[chan *runtimeapi.ContainerEventResponse]struct{}),
		images:     make(map[string]*runtimeapi.Image),
		pulls:      make(map[string]int),
		pullError:  make(map[string]error),
		passwords:  make(map[string]string),
		auths:      make(map[string][]*runtimeapi.AuthConfig),
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
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

// Status implements the CRI: always ready.
func (r *Runtime) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
	}}}, nil
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

// PodCIDR is what UpdateRuntimeConfig was last told.
func (r *Runtime) PodCIDR() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.podCIDR
}

// RunPodSandbox implements the CRI.
func (r *Runtime) RunPodSandbox(_ context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	if r.SandboxError != nil {
		if err := r.SandboxError(config); err != nil {
			return "", err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.id("sandbox")
	s := &sandbox{config: config, handler: handler, status: &runtimeapi.PodSandboxStatus{
		Id: id, Metadata: config.GetMetadata(), State: runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt: time.Now().UnixNano(), Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
		RuntimeHandler: handler,
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: config.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
	}}
	if s.status.GetLinux().GetNamespaces().GetOptions().GetNetwork() != runtimeapi.NamespaceMode_NODE {
		s.status.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: fmt.Sprintf("10.99.%d.%d", r.next/250%250, r.next%250+1)}
	}
	r.sandboxes[id] = s
	r.send(id, id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return id, nil
}

// StopPodSandbox implements the CRI: kills what still runs in it.
func (r *Runtime) StopPodSandbox(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil {
		return nil
	}
	for cid, c := range r.containers {
		if c.sandbox == id {
			r.end(cid, 137)
		}
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
	for cid, c := range r.containers {
		if c.sandbox == id {
			delete(r.containers, cid)
		}
	}
	if r.sandboxes[id] != nil {
		r.send(id, id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
		delete(r.sandboxes, id)
	}
	return nil
}

// PodSandboxStatus implements the CRI.
func (r *Runtime) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil {
		return nil, notFound("sandbox", id)
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: s.status}, nil
}

// ListPodSandbox implements the CRI.
func (r *Runtime) ListPodSandbox(_ context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	r.Listings.Add(1)
	time.Sleep(r.Latency)
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*runtimeapi.PodSandbox
	for id, s := range r.sandboxes {
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

// PortForward implements the CRI: there is nothing to forward to.
func (r *Runtime) PortForward(context.Context, *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return nil, errors.New("a runtime in memory has no ports")
}

// Close implements the CRI.
func (r *Runtime) Close(context.Context) error { return nil }

func matches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

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

// send is called with the lock held. A stream that does not keep up loses
// events, as with a real runtime.
func (r *Runtime) send(containerID, sandboxID string, kind runtimeapi.ContainerEventType) {
	event := &runtimeapi.ContainerEventResponse{ContainerId: containerID, ContainerEventType: kind, CreatedAt: time.Now().UnixNano()}
	if s := r.sandboxes[sandboxID]; s != nil {
		event.PodSandboxStatus = s.status
	}
	for stream := range r.streams {
		select {
		case stream <- event:
		default:
		}
	}
}
