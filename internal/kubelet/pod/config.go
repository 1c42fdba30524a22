package pod

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/admit"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/kubelet/volume"
)

// Config is what the workers are made from.
type Config struct {
	// Sources are the names of those that tell of pods. Until each of them has
	// told all it knows, no pod counts as one that no source has.
	Sources       []string
	SyncFrequency time.Duration // how often each worker looks at its pod at least
	MaxBackOff    time.Duration // of the restarts of containers

	Node       spec.Node // Allocatable is NodeStatus's
	NodeStatus NodeStatus
	// Admit returns why the node refuses the pod beside those that run; nil
	// if it takes it. The sync loop calls it: it must not do I/O.
	Admit func(pod *v1.Pod, running []*v1.Pod) *admit.Rejection
	// ReservedPorts are ports of the node on which the cluster itself serves.
	ReservedPorts []int

	Runtime        internalapi.RuntimeService
	RuntimeName    func() string
	Files          files.FS
	CGroups        CGroups
	UserNamespaces UserNamespaces
	Volumes        Volumes
	Images         Images
	Probes         Probes
	Handlers       *probe.Runner // runs the handlers of lifecycle hooks
	API            *API          // nil: static pods only
	Recorder       record.EventRecorder
	Metrics        prometheus.Registerer
}

// API is what workers need of an API server.
type API struct {
	Status  Status
	Objects Objects
	Mirrors Mirrors
	// Services returns the cluster's Services once they have been read.
	Services func(ctx context.Context) ([]*v1.Service, error)
	// RuntimeHandler returns the handler of a RuntimeClass.
	RuntimeHandler func(ctx context.Context, class string) (string, error)
}

// NodeStatus knows the Node object.
type NodeStatus interface {
	// Node is nil before there is one.
	Node() *v1.Node
	Allocatable() v1.ResourceList
}

// CGroups keeps the control groups of pods.
type CGroups interface {
	Parent(pod *v1.Pod) string
	Apply(pod *v1.Pod) error
	ApplyClasses(running []*v1.Pod) error
	Remove(uid types.UID) error
}

// UserNamespaces hands out ranges of ids.
type UserNamespaces interface {
	Mapping(pod *v1.Pod) (*runtimeapi.UserNamespace, error)
}

// Volumes mounts the volumes of pods: upstream's volume manager.
type Volumes interface {
	PodDir(uid types.UID) string
	SetUp(ctx context.Context, pod *v1.Pod, facts volume.Facts) (paths map[string]string, outdated []error, err error)
	Mounts(pod *v1.Pod, c *v1.Container, paths map[string]string, env []spec.Variable) ([]*runtimeapi.Mount, error)
	TearDown(uid types.UID) error
}

// Images pulls images: upstream's image manager.
type Images interface {
	Ensure(ctx context.Context, c *v1.Container, backoffKey string, credentials func(image string) []image.Credential, sandbox *runtimeapi.PodSandboxConfig, event image.Event) (*runtimeapi.Image, error)
	// Retry is when an image that could not be pulled is tried again.
	Retry(c *v1.Container, backoffKey string) (time.Time, bool)
	Forget(backoffKey string)
}

// Probes probes containers: upstream's probe manager.
type Probes interface {
	Sync(pod *v1.Pod, ip string, running []probe.Instance, before func(container string) (started, ready bool))
	Result(uid types.UID, containerID string, kind probe.Kind) plan.Result
	StopKind(uid types.UID, kinds ...probe.Kind)
	Forget(uid types.UID)
}

// Status writes the statuses of pods to the API server: upstream's status
// manager.
type Status interface {
	Known(pod *v1.Pod)
	Last(uid types.UID) (v1.PodStatus, bool)
	Set(ctx context.Context, pod *v1.Pod, status v1.PodStatus, remove bool)
	Removing(uid types.UID) bool
	Forget(uid types.UID)
}

// Objects reads the config maps and secrets that pods refer to.
type Objects interface {
	spec.Objects
	Register(pod *v1.Pod)
	Forget(uid types.UID)
}

// Mirrors writes the mirror pods of static pods.
type Mirrors interface {
	Ensure(ctx context.Context, pod, mirror *v1.Pod, node *v1.Node) error
	Delete(ctx context.Context, mirror *v1.Pod) error
}

// node is what is known of the node now.
func (c *Config) node() *spec.Node {
	node := c.Node
	node.Allocatable = c.NodeStatus.Allocatable()
	return &node
}
