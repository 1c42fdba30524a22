// Package cri is the kubelet's view of the container runtime: what runs for
// a pod, read back from the runtime's own listing, so that nothing the
// kubelet forgets in a restart is lost. It stands for the read side of upstream's
// kuberuntime manager, with its instrumented services.
//
//	sandbox (pause)   labels: pod's + io.kubernetes.pod.{name,namespace,uid}
//	 └ container      labels: + io.kubernetes.container.name
//	                  annotations: hash, restartCount, how to end it
package cri

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/coracle-io/coracle/internal/supervise"
)

// State is what a container is doing.
type State int

// The states of a container, as the runtime reports them.
const (
	Created State = iota
	Running
	Exited
	Unknown
)

// Sandbox is one pod sandbox, alive or dead.
type Sandbox struct {
	ID        string
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	// IPs are empty for a sandbox in the host's network.
	IPs         []string
	HostNetwork bool
	Handler     string
}

// Container is one instance of a pod's container, alive or dead.
type Container struct {
	ID           string
	Name         string
	SandboxID    string
	State        State
	CreatedAt    time.Time
	StartedAt    time.Time
	FinishedAt   time.Time
	ExitCode     int32
	Reason       string
	Message      string
	Image        string // as the user named it
	ImageRef     string // digest reference, or the image's id
	Hash         string
	RestartCount int
	LogPath      string
	Resources    *runtimeapi.LinuxContainerResources
	User         *runtimeapi.LinuxContainerUser
	Mounts       []*runtimeapi.Mount
	Annotations  map[string]string
	// Round is the round of the pod that the container belongs to: how often all
	// containers had been restarted together when it was made.
	Round int
	// Discarded says that the container is of a round that is over.
	Discarded bool
}

// Pod is everything the runtime has of one pod. Both lists are newest first.
type Pod struct {
	UID        types.UID
	Name       string
	Namespace  string
	Sandboxes  []*Sandbox
	Containers []*Container
	// Round is that of the containers that are made next.
	Round int
}

// Find returns the newest instance of the named container, or nil.
func (p *Pod) Find(name string) *Container {
	for _, c := range p.Containers {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Dead returns the newest instance of the named container that has ended, or nil.
func (p *Pod) Dead(name string) *Container {
	for _, c := range p.Containers {
		if c.Name == name && c.State == Exited {
			return c
		}
	}
	return nil
}

// Previous returns the newest dead instance of the named container that is
// older than the given one, or nil.
func (p *Pod) Previous(c *Container) *Container {
	for _, o := range p.Containers {
		if o.Name == c.Name && o.ID != c.ID && o.State == Exited && !o.CreatedAt.After(c.CreatedAt) {
			return o
		}
	}
	return nil
}

// FindID returns the container with that id, or nil.
func (p *Pod) FindID(id string) *Container {
	for _, c := range p.Containers {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// Running returns the containers that have a process.
func (p *Pod) Running() []*Container {
	var out []*Container
	for _, c := range p.Containers {
		if c.State == Running || c.State == Unknown {
			out = append(out, c)
		}
	}
	return out
}

// ReadySandbox returns the newest sandbox if it is ready, else nil.
func (p *Pod) ReadySandbox() *Sandbox {
	if len(p.Sandboxes) > 0 && p.Sandboxes[0].Ready {
		return p.Sandboxes[0]
	}
	return nil
}

// Observe asks the runtime for everything it has of one pod.
func Observe(ctx context.Context, runtime internalapi.RuntimeService, uid types.UID) (*Pod, error) {
	selector := map[string]string{kubelettypes.KubernetesPodUIDLabel: string(uid)}
	var sandboxes []*runtimeapi.PodSandbox
	var containers []*runtimeapi.Container
	lists, lctx := supervise.Together(ctx)
	lists.Go(func() (err error) {
		sandboxes, err = runtime.ListPodSandbox(lctx, &runtimeapi.PodSandboxFilter{LabelSelector: selector})
		return err
	})
	lists.Go(func() (err error) {
		containers, err = runtime.ListContainers(lctx, &runtimeapi.ContainerFilter{LabelSelector: selector})
		return err
	})
	if err := lists.Wait(); err != nil {
		return nil, fmt.Errorf("list the containers of pod %s: %w", uid, err)
	}
	return describe(ctx, runtime, uid, sandboxes, containers)
}

func describe(ctx context.Context, runtime internalapi.RuntimeService, uid types.UID, sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) (*Pod, error) {
	pod := &Pod{UID: uid}
	sandboxStatus := make([]*Sandbox, len(sandboxes))
	containerStatus := make([]*Container, len(containers))
	details, dctx := supervise.Together(ctx)
	details.SetLimit(4)
	for i, s := range sandboxes {
		pod.Name, pod.Namespace = s.GetMetadata().GetName(), s.GetMetadata().GetNamespace()
		details.Go(func() error {
			response, err := runtime.PodSandboxStatus(dctx, s.GetId(), false)
			if IsNotFound(err) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("status of sandbox %s: %w", s.GetId(), err)
			}
			sandboxStatus[i] = newSandbox(response.GetStatus())
			return nil
		})
	}
	for i, c := range containers {
		pod.Name = c.GetLabels()[kubelettypes.KubernetesPodNameLabel]
		pod.Namespace = c.GetLabels()[kubelettypes.KubernetesPodNamespaceLabel]
		details.Go(func() error {
			response, err := runtime.ContainerStatus(dctx, c.GetId(), false)
			if IsNotFound(err) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("status of container %s: %w", c.GetId(), err)
			}
			containerStatus[i] = newContainer(response.GetStatus(), c.GetPodSandboxId())
			return nil
		})
	}
	if err := details.Wait(); err != nil {
		return nil, err
	}
	for _, s := range sandboxStatus {
		if s != nil {
			pod.Sandboxes = append(pod.Sandboxes, s)
		}
	}
	for _, c := range containerStatus {
		if c != nil {
			pod.Containers = append(pod.Containers, c)
		}
	}
	slices.SortFunc(pod.Sandboxes, func(a, b *Sandbox) int { return b.CreatedAt.Compare(a.CreatedAt) })
	slices.SortFunc(pod.Containers, func(a, b *Container) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return pod, nil
}

// Summary is one pod in a listing of the whole node: enough to see that
// something changed.
type Summary struct {
	UID       types.UID
	Name      string
	Namespace string
	// States maps the id of each container and sandbox to its state.
	States map[string]State
}

// Running says whether the pod has a live container or sandbox.
func (s *Summary) Running() bool {
	for _, state := range s.States {
		if state == Running {
			return true
		}
	}
	return false
}

// List returns what the runtime has of every pod.
func List(ctx context.Context, runtime internalapi.RuntimeService) (map[types.UID]*Summary, error) {
	sandboxes, err := runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list pod sandboxes: %w", err)
	}
	containers, err := runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	pods := make(map[types.UID]*Summary)
	of := func(labels map[string]string) *Summary {
		uid := types.UID(labels[kubelettypes.KubernetesPodUIDLabel])
		if uid == "" {
			return nil
		}
		s := pods[uid]
		if s == nil {
			s = &Summary{
				UID: uid, Name: labels[kubelettypes.KubernetesPodNameLabel],
				Namespace: labels[kubelettypes.KubernetesPodNamespaceLabel], States: map[string]State{},
			}
			pods[uid] = s
		}
		return s
	}
	for _, sandbox := range sandboxes {
		if s := of(sandbox.GetLabels()); s != nil {
			state := Exited
			if sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
				state = Running
			}
			s.States[sandbox.GetId()] = state
		}
	}
	for _, container := range containers {
		if s := of(container.GetLabels()); s != nil {
			s.States[container.GetId()] = stateOf(container.GetState())
		}
	}
	return pods, nil
}

func stateOf(s runtimeapi.ContainerState) State {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return Created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return Running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return Exited
	}
	return Unknown
}

func newSandbox(s *runtimeapi.PodSandboxStatus) *Sandbox {
	out := &Sandbox{
		ID:          s.GetId(),
		Attempt:     s.GetMetadata().GetAttempt(),
		Ready:       s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt:   time.Unix(0, s.GetCreatedAt()),
		HostNetwork: s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE,
		Handler:     s.GetRuntimeHandler(),
	}
	if ip := s.GetNetwork().GetIp(); ip != "" {
		out.IPs = append(out.IPs, ip)
		for _, more := range s.GetNetwork().GetAdditionalIps() {
			out.IPs = append(out.IPs, more.GetIp())
		}
	}
	return out
}

func newContainer(s *runtimeapi.ContainerStatus, sandboxID string) *Container {
	out := &Container{
		ID:           s.GetId(),
		Name:         s.GetLabels()[kubelettypes.KubernetesContainerNameLabel],
		SandboxID:    sandboxID,
		State:        stateOf(s.GetState()),
		CreatedAt:    time.Unix(0, s.GetCreatedAt()),
		StartedAt:    timeOf(s.GetStartedAt()),
		FinishedAt:   timeOf(s.GetFinishedAt()),
		ExitCode:     s.GetExitCode(),
		Reason:       s.GetReason(),
		Message:      s.GetMessage(),
		Image:        s.GetImage().GetImage(),
		ImageRef:     s.GetImageRef(),
		Hash:         s.GetAnnotations()[annotationHash],
		RestartCount: restartCountOf(s),
		Round:        roundOf(s.GetAnnotations()),
		LogPath:      s.GetLogPath(),
		Resources:    s.GetResources().GetLinux(),
		User:         s.GetUser().GetLinux(),
		Mounts:       s.GetMounts(),
		Annotations:  s.GetAnnotations(),
	}
	return out
}

func timeOf(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}

// IsNotFound says whether the runtime does not know the id it was asked about.
func IsNotFound(err error) bool {
	return status.Code(err) == codes.NotFound
}
