// Package cri is the kubelet's view of the container runtime: the sandboxes and
// containers of each pod, read back from the runtime's own listings. No state is
// lost when the kubelet restarts. It stands for the read side of upstream's
// kuberuntime manager and for its instrumented services.
//
//	sandbox (pause)   labels: pod's + io.kubernetes.pod.{name,namespace,uid}
//	 └ container      labels: + io.kubernetes.container.name
//	                  annotations: hash, restartCount, how to stop it
package cri

import (
	"cmp"
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

// State is the state of a container.
type State int

// The states of a container, as the runtime reports them.
const (
	Created State = iota
	Running
	Exited
	Unknown
)

// Sandbox is one pod sandbox, ready or not.
type Sandbox struct {
	ID        string
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	// IPs is empty for a sandbox in the host network.
	IPs         []string
	HostNetwork bool
	Handler     string
	// Root is the root directory of the kubelet that made the sandbox, "" if it
	// is not known.
	Root string
}

// Container is one instance of a pod's container, running or not.
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
	ImageRef     string // digest reference, or image id
	Hash         string
	RestartCount int
	LogPath      string
	Resources    *runtimeapi.LinuxContainerResources
	User         *runtimeapi.LinuxContainerUser
	Mounts       []*runtimeapi.Mount
	Annotations  map[string]string
	// Round is how often all containers of the pod had been restarted together
	// (KEP-5532) when the container was created.
	Round int
	// Discarded reports whether the container belongs to an earlier round.
	Discarded bool
}

// Pod is everything that the runtime has of one pod. Both lists are newest
// first. Their order follows the attempts and restart counts, not the clock:
// creation times break ties only, because the clock may be set back.
type Pod struct {
	UID        types.UID
	Name       string
	Namespace  string
	Sandboxes  []*Sandbox
	Containers []*Container
	// Round is the round of containers that are created next.
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

// Dead returns the newest exited instance of the named container, or nil.
func (p *Pod) Dead(name string) *Container {
	for _, c := range p.Containers {
		if c.Name == name && c.State == Exited {
			return c
		}
	}
	return nil
}

// Previous returns the newest exited instance of the same container that is
// older than c, or nil.
func (p *Pod) Previous(c *Container) *Container {
	seen := false
	for _, o := range p.Containers {
		switch {
		case o.ID == c.ID:
			seen = true
		case seen && o.Name == c.Name && o.State == Exited:
			return o
		}
	}
	return nil
}

// FindID returns the container with the given id, or nil.
func (p *Pod) FindID(id string) *Container {
	for _, c := range p.Containers {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// Running returns the containers that have, or may have, a process.
func (p *Pod) Running() []*Container {
	var out []*Container
	for _, c := range p.Containers {
		if c.State == Running || c.State == Unknown {
			out = append(out, c)
		}
	}
	return out
}

// ReadySandbox returns the newest sandbox if it is ready, otherwise nil.
func (p *Pod) ReadySandbox() *Sandbox {
	if len(p.Sandboxes) > 0 && p.Sandboxes[0].Ready {
		return p.Sandboxes[0]
	}
	return nil
}

// Observe reads everything that the runtime has of one pod. Sandboxes and
// containers that are removed while it reads are left out.
func Observe(ctx context.Context, runtime internalapi.RuntimeService, uid types.UID) (*Pod, error) {
	selector := map[string]string{kubelettypes.KubernetesPodUIDLabel: string(uid)}
	var sandboxes []*runtimeapi.PodSandbox
	var containers []*runtimeapi.Container
	lists, lctx := supervise.WithContext(ctx)
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

// ObserveContainer reads what the runtime has of one container of a pod, which may have
// hundreds of others. The pod that it returns has no sandboxes.
func ObserveContainer(ctx context.Context, runtime internalapi.RuntimeService, uid types.UID, name string) (*Pod, error) {
	containers, err := runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: map[string]string{
		kubelettypes.KubernetesPodUIDLabel: string(uid), kubelettypes.KubernetesContainerNameLabel: name,
	}})
	if err != nil {
		return nil, fmt.Errorf("list container %s of pod %s: %w", name, uid, err)
	}
	return describe(ctx, runtime, uid, nil, containers)
}

// ObserveSandboxes reads what the runtime has of a pod's sandboxes. The pod that it
// returns has no containers.
func ObserveSandboxes(ctx context.Context, runtime internalapi.RuntimeService, uid types.UID) (*Pod, error) {
	sandboxes, err := runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{
		kubelettypes.KubernetesPodUIDLabel: string(uid),
	}})
	if err != nil {
		return nil, fmt.Errorf("list the sandboxes of pod %s: %w", uid, err)
	}
	return describe(ctx, runtime, uid, sandboxes, nil)
}

func describe(ctx context.Context, runtime internalapi.RuntimeService, uid types.UID, sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) (*Pod, error) {
	pod := &Pod{UID: uid}
	sandboxStatus := make([]*Sandbox, len(sandboxes))
	containerStatus := make([]*Container, len(containers))
	details, dctx := supervise.WithContext(ctx)
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
	sortNewestFirst(pod)
	return pod, nil
}

// sortNewestFirst sorts sandboxes by attempt, and the containers of each name by
// restart count. Creation times break ties.
func sortNewestFirst(pod *Pod) {
	slices.SortFunc(pod.Sandboxes, func(a, b *Sandbox) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt))
	})
	slices.SortFunc(pod.Containers, func(a, b *Container) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.RestartCount, a.RestartCount), b.CreatedAt.Compare(a.CreatedAt))
	})
}

// Summary is one pod in a listing of the whole node. It has enough to see that
// something changed.
type Summary struct {
	UID       types.UID
	Name      string
	Namespace string
	// States maps the ids of containers and sandboxes to their states.
	States map[string]State
	// Root is the Root of the pod's sandboxes.
	Root string
}

// Running reports whether the pod has a running container or a ready sandbox.
func (s *Summary) Running() bool {
	for _, state := range s.States {
		if state == Running {
			return true
		}
	}
	return false
}

// List returns a summary of every pod that the runtime has. It ignores
// sandboxes and containers without a pod UID label.
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
			s.States[sandbox.GetId()], s.Root = state, sandbox.GetAnnotations()[annotationRoot]
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
		Root:        s.GetAnnotations()[annotationRoot],
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
		User:         userOf(s),
		Mounts:       s.GetMounts(),
		Annotations:  s.GetAnnotations(),
	}
	return out
}

// maxGroups is how many supplementary groups of a user are kept. An image may put its user
// into as many as the kernel takes, 65,536.
const maxGroups = 4096

// userOf returns the user of a container, nil if the runtime does not say it.
func userOf(s *runtimeapi.ContainerStatus) *runtimeapi.LinuxContainerUser {
	u := s.GetUser().GetLinux()
	if groups := u.GetSupplementalGroups(); len(groups) > maxGroups {
		return &runtimeapi.LinuxContainerUser{Uid: u.GetUid(), Gid: u.GetGid(), SupplementalGroups: slices.Clone(groups[:maxGroups])}
	}
	return u
}

func timeOf(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}

// IsNotFound reports whether err means that the runtime does not know an id.
func IsNotFound(err error) bool {
	return status.Code(err) == codes.NotFound
}
