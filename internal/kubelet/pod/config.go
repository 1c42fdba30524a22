package pod

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/admit"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/kubelet/volume"
)

// Config configures the workers.
type Config struct {
	// Sources are the names of the sources of pods. No pod counts as an orphan
	// until every source has sent all of its pods.
	Sources []string

	Node       spec.Node
	NodeStatus NodeStatus
	Features   *feature.Set // nil: the defaults
	// Admit returns why the node rejects the pod while the others run, nil if
	// it admits the pod. The sync loop calls it, so it must not do I/O.
	Admit func(pod *v1.Pod, running []*v1.Pod) *admit.Rejection
	// Victims returns those of the candidates, which run, that are to be evicted so
	// that the node can admit a pod that it rejected; nil if that does not help.
	Victims func(pod *v1.Pod, rejected *admit.Rejection, running, candidates []*v1.Pod) []*v1.Pod

	// Shortage returns why the kubelet has no memory of its own for more pods; nil
	// if it has.
	Shortage func() error

	Runtime        internalapi.RuntimeService
	RuntimeName    func() string
	Files          files.FS
	CGroups        CGroups
	UserNamespaces UserNamespaces
	Placement      Placement
	Volumes        Volumes
	Images         Images
	Probes         Probes
	Handlers       *probe.Runner // runs the handlers of lifecycle hooks
	// NetworkPolicies is nil if the CNI network enforces policies itself.
	NetworkPolicies NetworkPolicies
	API             *API // nil: static pods only
	Recorder        record.EventRecorder
	Metrics         prometheus.Registerer
	Tracer          trace.Tracer // makes spans of syncs; nil makes none
}

// API is the part of the API server that workers need.
type API struct {
	Status  Status
	Objects Objects
	Mirrors Mirrors
	// Services returns the Services that are known of a namespace, and the Service
	// kubernetes. With wait it blocks until they have been listed.
	Services func(ctx context.Context, namespace string, wait bool) ([]*v1.Service, error)
	// RuntimeHandler returns the handler of a RuntimeClass.
	RuntimeHandler func(ctx context.Context, class string) (string, error)
	// Account returns the service account of a pod, or nil.
	Account func(pod *v1.Pod) *image.Account
}

// NodeStatus provides the Node object.
type NodeStatus interface {
	// Node returns nil before the Node object exists.
	Node() *v1.Node
	Allocatable() v1.ResourceList
	// NetworkNotReady returns why the runtime has no network for pods, "" if it has.
	NetworkNotReady() string
}

// CGroups manages the control groups of pods.
type CGroups interface {
	Parent(pod *v1.Pod) string
	Apply(pod *v1.Pod) error
	ApplyClasses(running []*v1.Pod) error
	Remove(uid types.UID) error
	// End kills what is left in the pod's group, and removes the group.
	End(uid types.UID) error
}

// NetworkPolicies isolates pods by the cluster's NetworkPolicies.
type NetworkPolicies interface {
	// Admit returns nil once a pod whose sandbox has these addresses is isolated.
	// It takes a bounded time. Calls for a pod that is isolated return at once.
	Admit(ctx context.Context, pod *v1.Pod, static bool, ips []string) error
}

// UserNamespaces assigns ranges of user ids.
type UserNamespaces interface {
	Mapping(pod *v1.Pod) (*runtimeapi.UserNamespace, error)
}

// Placement gives containers devices, CPUs and memory: upstream's topology
// manager and the managers that it asks.
type Placement interface {
	// Admit allocates what the containers of a pod need. Calls for a pod that
	// has it have no effect. running reports which containers run.
	Admit(ctx context.Context, pod *v1.Pod, running func(container string) bool) *admit.Rejection
	// Configure adds what a container has to its configuration, before the
	// container is created.
	Configure(ctx context.Context, pod *v1.Pod, c *v1.Container, config *runtimeapi.ContainerConfig) error
	// Prepare has drivers prepare the devices of the pod's resource claims, before
	// the sandbox is created.
	Prepare(ctx context.Context, pod *v1.Pod) error
	// Prepared reports whether it is known what was prepared for the pod, if
	// need be by an earlier kubelet.
	Prepared(pod *v1.Pod) bool
	// Unprepare undoes Prepare once the containers of the pod have ended.
	Unprepare(ctx context.Context, uid types.UID) error
	// DevicesStatus returns the health of a container's devices, nil if it is
	// not shown.
	DevicesStatus(pod *v1.Pod, c *v1.Container) []v1.ResourceStatus
	// ResizeInfeasible returns why a pod cannot be resized in place from its allocated
	// resources, as the label of a metric and for users. It returns "" if it can.
	ResizeInfeasible(desired, allocated *v1.Pod) (detail, message string)
	// Release frees what the pod has.
	Release(uid types.UID)
}

// Volumes mounts the volumes of pods: upstream's volume manager.
type Volumes interface {
	PodDir(uid types.UID) string
	SetUp(ctx context.Context, pod *v1.Pod, facts volume.Facts) (paths map[string]string, outdated []error, err error)
	Mounts(pod *v1.Pod, c *v1.Container, paths map[string]string, env []spec.Variable) ([]*runtimeapi.Mount, error)
	Devices(pod *v1.Pod, c *v1.Container, paths map[string]string) ([]*runtimeapi.Device, error)
	Groups(pod *v1.Pod) []int64
	TearDown(ctx context.Context, uid types.UID) error
}

// Images pulls images: upstream's image manager.
type Images interface {
	Ensure(ctx context.Context, c *v1.Container, backoffKey string, logins image.Logins, sandbox *runtimeapi.PodSandboxConfig, event image.Event) (*runtimeapi.Image, error)
	// Retry returns when to retry a failed pull of the image.
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
}
