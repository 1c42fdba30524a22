// Package kubelet runs the pods of one node on a CRI runtime.
//
//	API server ─┐                      ┌─ container events, slow relist (pleg)
//	manifests  ─┼─► sync loop (pod) ◄──┼─ probe results (probe)
//	URL        ─┘      │               └─ changed config maps and secrets (object)
//	 (source)          ▼ one worker a pod
//	         observe ─► plan ─► act ─► status ─► API server
//
// The parts are packages of their own, each with a loop that Run starts. The
// comment of each names the manager of upstream's kubelet that it stands for.
package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/admit"
	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/eviction"
	"github.com/coracle-io/coracle/internal/kubelet/gc"
	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/logs"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/kubelet/object"
	"github.com/coracle-io/coracle/internal/kubelet/pleg"
	pods "github.com/coracle-io/coracle/internal/kubelet/pod"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/server"
	"github.com/coracle-io/coracle/internal/kubelet/source"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/kubelet/stats"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	"github.com/coracle-io/coracle/internal/kubelet/userns"
	"github.com/coracle-io/coracle/internal/kubelet/volume"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Version is what the node says that its kubelet is.
const Version = "v1.37.2"

// Kubelet is the agent of one node.
type Kubelet struct {
	config   Config
	recorder *recorder
	runtime  *cri.Client
	sources  []source.Source
	pods     *pods.Workers
	pleg     *pleg.Generator
	probes   *probe.Manager
	images   *image.Manager
	volumes  *volume.Manager
	cgroups  *cgroup.Pods
	logs     *logs.Rotator // nil: logs grow without bound
	eviction *eviction.Manager
	node     *node.Reporter
	server   *server.Config // nil: no server

	// Nil without an API server.
	objects *object.Store
	status  *status.Manager
	mirrors *source.Mirror
}

// New checks the configuration, fills in defaults and builds a kubelet.
func New(config Config) (*Kubelet, error) {
	if err := config.Default(); err != nil {
		return nil, err
	}
	facts, err := config.facts()
	if err != nil {
		return nil, err
	}
	c := &config.Configuration
	k := &Kubelet{
		config: config, recorder: &recorder{}, sources: source.All(c, config.Client, config.Files, config.NodeName),
		runtime: cri.NewClient(config.Runtime, config.Images, config.Metrics),
		volumes: &volume.Manager{Root: config.RootDirectory, FS: config.Files, Mounter: config.Mounter},
		cgroups: &cgroup.Pods{
			Groups: config.Groups, Root: c.CgroupRoot, PerQOS: *c.CgroupsPerQOS, PIDsLimit: *c.PodPidsLimit, CFSQuota: *c.CPUCFSQuota,
			Allocatable: config.enforced(),
		},
	}
	runtime := k.runtime.Runtime()
	handlers := &probe.Runner{Exec: func(ctx context.Context, containerID string, command []string, timeout time.Duration) ([]byte, error) {
		return cri.Exec(ctx, runtime, containerID, command, timeout)
	}}
	k.probes = probe.New(handlers, k.recorder, pods.ContainerReference, func(uid types.UID) { k.pods.Wake(uid) })
	k.images = image.New(image.Config{
		Configuration: c, RootDirectory: config.RootDirectory, NodeName: config.NodeName, Runtime: runtime, Images: k.runtime.Images(),
		Files: config.Files, Machine: config.Machine, Recorder: k.recorder, Active: func() []*v1.Pod { return k.pods.Active() },
	})
	if k.node, err = k.newNode(facts); err != nil {
		return nil, err
	}
	k.pods = k.newPods(facts, handlers)
	k.pleg = pleg.New(runtime, k.pods, k.node.RuntimeAnswered, config.Metrics)
	k.eviction, err = eviction.New(eviction.Config{
		Configuration: c, NodeName: config.NodeName, Machine: config.Machine, Pods: k.pods, FreeImages: k.images.Free,
		Sources: eviction.Sources{Runtime: runtime, Files: config.Files, Volumes: k.volumes, CGroups: k.cgroups, PodLogsDir: c.PodLogsDir},
		Changed: k.node.Update, Recorder: k.recorder, Metrics: config.Metrics,
	})
	if err != nil {
		return nil, err
	}
	if limit := resource.MustParse(c.ContainerLogMaxSize); limit.Sign() >= 0 { // Default has checked it
		k.logs = &logs.Rotator{MaxBytes: limit.Value(), MaxFiles: int(*c.ContainerLogMaxFiles), Reopen: runtime.ReopenContainerLog}
	}
	if *c.EnableServer {
		k.server, err = k.newServer()
	}
	return k, err
}

// newPods builds the pod workers, and what they need of an API server.
func (k *Kubelet) newPods(facts spec.Node, handlers *probe.Runner) *pods.Workers {
	c := &k.config.Configuration
	policy := &admit.Policy{
		AllowedSysctls: c.AllowedUnsafeSysctls, AppArmor: admit.AppArmorEnabled(k.config.hostFile),
		Pressure: func() []v1.NodeConditionType { return k.eviction.Conditions() }, Node: k.node.Node, Allocatable: k.node.Allocatable,
	}
	config := pods.Config{
		SyncFrequency: c.SyncFrequency.Duration, MaxBackOff: c.CrashLoopBackOff.MaxContainerRestartPeriod.Duration,
		Node: facts, NodeStatus: k.node, Admit: policy.Admit, ReservedPorts: k.config.ReservedPorts,
		Runtime: k.runtime.Runtime(), RuntimeName: k.runtime.Name, Files: k.config.Files, CGroups: k.cgroups,
		UserNamespaces: &userns.Manager{Files: k.config.Files, Folders: k.volumes}, Volumes: k.volumes, Images: k.images,
		Probes: k.probes, Handlers: handlers, Recorder: k.recorder, Metrics: k.config.Metrics,
	}
	for _, s := range k.sources {
		config.Sources = append(config.Sources, s.Name)
	}
	if client := k.config.Client; client != nil {
		watch := c.ConfigMapAndSecretChangeDetectionStrategy == kubeletconfig.WatchChangeDetectionStrategy
		k.objects = object.New(client, watch, func(uid types.UID) { k.pods.Refresh(uid) })
		k.volumes.Objects, k.volumes.Claims, k.volumes.Bundles = k.objects, k.objects, k.objects
		k.volumes.Tokens = &volume.TokenCache{Client: client.Kubernetes}
		k.status = status.NewManager(client.Kubernetes, func(uid types.UID) { k.pods.Removed(uid) })
		k.mirrors = &source.Mirror{Client: client.Kubernetes}
		config.API = &pods.API{
			Status: k.status, Objects: k.objects, Mirrors: k.mirrors,
			Services: services(client), RuntimeHandler: runtimeHandler(client.Kubernetes),
		}
	}
	return pods.New(config)
}

func (k *Kubelet) newNode(facts spec.Node) (*node.Reporter, error) {
	c := &k.config.Configuration
	reserved, err := node.Reserved(c)
	if err != nil {
		return nil, err
	}
	return node.NewReporter(node.Config{
		Client: k.config.Client, Name: k.config.NodeName, Hostname: k.config.Hostname, IPs: facts.IPs,
		Labels: k.config.NodeLabels, Taints: c.RegisterWithTaints, Register: *c.RegisterNode, ProviderID: c.ProviderID,
		Machine: k.config.Machine, Reserved: reserved, Allocatable: facts.Allocatable, MaxPods: c.MaxPods, MaxImages: int(*c.NodeStatusMaxImages),
		Port: c.Port, PodCIDR: c.PodCIDR, LeaseDuration: c.NodeLeaseDurationSeconds,
		UpdateFrequency: c.NodeStatusUpdateFrequency.Duration, ReportFrequency: c.NodeStatusReportFrequency.Duration,
		Runtime: k.runtime.Runtime(), Images: k.runtime.Images(), KubeletVersion: Version, Recorder: k.recorder,
		RuntimeVersion: func() string { return k.runtime.Name() + "://" + k.runtime.Version() },
		Pressure:       func() []v1.NodeConditionType { return k.eviction.Conditions() },
		Registered:     func() { k.pods.WakeAll() },
	}), nil
}

func (k *Kubelet) newServer() (*server.Config, error) {
	c := &k.config.Configuration
	config := &server.Config{
		Pods: k.pods, Runtime: k.runtime.Runtime(), ProbeCounts: k.probes.Counts, Healthy: k.node.RuntimeError,
		Stats: &stats.Provider{
			NodeName: k.config.NodeName, Started: time.Now(), Pods: k.pods.Observed, Runtime: k.runtime.Runtime(), Machine: k.config.Machine,
			Files: k.config.Files, Volumes: k.volumes, CGroups: k.cgroups,
		},
		Configuration: *c, Files: k.config.Files, CheckpointDir: filepath.Join(k.config.RootDirectory, "checkpoints"),
		NodeName: k.config.NodeName, Address: c.Address, Port: c.Port, HealthzAddress: c.HealthzBindAddress, HealthzPort: *c.HealthzPort,
		GetCertificate: k.config.GetCertificate, ClientCAs: k.config.ClientCAs, StreamIdle: c.StreamingConnectionIdleTimeout.Duration,
		Metrics: k.config.Metrics, Authenticator: k.config.Authenticator, Authorizer: k.config.Authorizer,
		Debugging: *c.EnableDebuggingHandlers, Profiling: *c.EnableProfilingHandler,
	}
	if *c.EnableSystemLogHandler {
		config.SystemLogs = "/var/log"
	}
	var client kubernetes.Interface
	if k.config.Client != nil {
		client = k.config.Client.Kubernetes
	}
	return config, config.Default(c, client, k.config.Hostname, k.config.NodeIPs)
}

// Run works until ctx ends, then stops everything but the containers.
func (k *Kubelet) Run(ctx context.Context) error { return supervise.Run(ctx, k.run) }

func (k *Kubelet) run(ctx context.Context) error {
	c := &k.config.Configuration
	if err := k.runtime.Connect(ctx, c.ContainerRuntimeEndpoint, c.ImageServiceEndpoint, c.RuntimeRequestTimeout.Duration); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer k.runtime.Close(ctx)
	if err := k.config.Files.MkdirAll(k.config.RootDirectory, 0o750); err != nil {
		return fmt.Errorf("make the kubelet's folder: %w", err)
	}
	k.images.Recover(ctx)
	if err := k.cgroups.ApplyClasses(nil); err != nil {
		return fmt.Errorf("set up the control groups of pods: %w", err)
	}
	defer k.recorder.start(ctx, &k.config)()
	k.recorder.Event(node.Reference(k.config.NodeName), v1.EventTypeNormal, "Starting", "Starting kubelet.")
	loops, err := k.loops()
	if err != nil {
		return err
	}
	tasks, ctx := supervise.Together(ctx)
	k.probes.Start(ctx)
	if k.objects != nil {
		k.objects.Start(ctx)
	}
	for _, loop := range loops {
		tasks.Go(func() error { loop(ctx); return nil })
	}
	klog.FromContext(ctx).Info("Started kubelet", "node", k.config.NodeName, "runtime", k.runtime.Name(), "runtimeVersion", k.runtime.Version())
	err = tasks.Wait()
	k.probes.Wait()
	return err
}

// loops are the parts that work beside each other. The ports of the server are
// open when it returns.
func (k *Kubelet) loops() ([]func(ctx context.Context), error) {
	loops := []func(ctx context.Context){
		k.pods.Run, k.pleg.Run, k.eviction.Run, k.images.Run,
		func(ctx context.Context) { k.cgroups.Run(ctx, k.pods.Active) },
		func(ctx context.Context) { gc.Sandboxes(ctx, k.runtime.Runtime(), k.pods.Observed) },
		func(ctx context.Context) { gc.Volumes(ctx, k.volumes.Known, k.pods) },
	}
	for _, s := range k.sources {
		loops = append(loops, func(ctx context.Context) { s.Run(ctx, k.pods.Updates()) })
	}
	if k.logs != nil {
		period := k.config.Configuration.ContainerLogMonitorInterval.Duration
		loops = append(loops, func(ctx context.Context) { k.logs.Run(ctx, period, k.pods.Containers) })
	}
	if k.config.Client != nil {
		loops = append(loops, k.status.Run, k.node.Run, func(ctx context.Context) { gc.Mirrors(ctx, k.pods.OrphanedMirrors, k.mirrors.Delete) })
	}
	if k.server != nil {
		s, err := server.Listen(*k.server)
		if err != nil {
			return nil, err
		}
		loops = append(loops, s.Run)
	}
	return loops, nil
}
