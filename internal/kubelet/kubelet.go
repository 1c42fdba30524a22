// Package kubelet runs the pods of one node on a CRI runtime.
//
//	API server ─┐                      ┌─ container events, slow relist
//	manifests  ─┼─► sync loop ◄────────┼─ probe results
//	URL        ─┘      │               └─ changed config maps and secrets
//	                   ▼ one worker a pod
//	         observe ─► plan ─► act ─► status ─► API server
//
// A worker keeps nothing that cannot be read back from the runtime, so that
// a kubelet that is killed adopts its running containers when it comes back.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	internalapi "k8s.io/cri-api/pkg/apis"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/logs"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/kubelet/object"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/source"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	"github.com/coracle-io/coracle/internal/kubelet/userns"
	"github.com/coracle-io/coracle/internal/kubelet/volume"
	registry "github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Kubelet is the agent of one node.
type Kubelet struct {
	config      Config
	cri         *cri.Client
	runtime     internalapi.RuntimeService
	images      internalapi.ImageManagerService
	runtimeName string

	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	writer      *status.Writer
	objects     *object.Store
	volumes     *volume.Volumes
	cgroups     *cgroup.Pods
	userns      *userns.Manager
	puller      *image.Puller
	prober      *probe.Prober
	runner      *probe.Runner
	mirror      *source.Mirror
	node        *node.Reporter
	services    listersv1.ServiceLister
	servicesOK  cache.InformerSynced

	updates chan source.Update // from the sources to the loop
	lost    chan *cri.Summary  // pods that run and that no source knows
	started time.Time

	background supervise.WaitGroup // clean-up beside the workers
	metrics    *metrics

	mu         sync.Mutex // guards what follows
	workers    map[types.UID]*worker
	mirrors    map[string]*v1.Pod // by namespace/name
	facts      spec.Node
	registered bool // the Node object is there
	short      pressures
	cpuTotal   uint64 // nanoseconds of the node at cpuTime
	cpuTime    time.Time
}

// maxHostFile bounds the host's own files that pods get a copy of.
const maxHostFile = 1 << 20

// New checks the configuration, fills in defaults and builds a kubelet.
func New(config Config) (*Kubelet, error) {
	if err := config.Default(); err != nil {
		return nil, err
	}
	if config.Metrics == nil {
		config.Metrics = registry.NewRegistry(nil)
	}
	k := &Kubelet{
		config:  config,
		cri:     cri.NewClient(config.Runtime, config.Images, config.Metrics),
		updates: make(chan source.Update, 64),
		lost:    make(chan *cri.Summary, 64),
		workers: make(map[types.UID]*worker),
		mirrors: make(map[string]*v1.Pod),
		metrics: newMetrics(config.Metrics),
	}
	k.runtime, k.images = k.cri.Runtime(), k.cri.Images()
	capacity, err := config.Machine.Capacity()
	if err != nil {
		return nil, fmt.Errorf("read the machine's capacity: %w", err)
	}
	reserved, err := node.Reserved(&config.Configuration)
	if err != nil {
		return nil, err
	}
	resolv := []byte(nil)
	if path := *config.Configuration.ResolverConfig; path != "" {
		resolv, _ = config.Files.ReadFile(path, maxHostFile)
	}
	k.facts = spec.Node{
		Name: config.NodeName, IPs: config.hostIPs(), Hostname: config.Hostname,
		ClusterDNS: config.Configuration.ClusterDNS, ClusterDomain: config.Configuration.ClusterDomain,
		PodLogsDir: config.Configuration.PodLogsDir, ResolvConf: resolv,
		MemoryCapacity: capacity.Memory().Value(), Allocatable: node.Allocatable(capacity, reserved),
		CFSQuota: *config.Configuration.CPUCFSQuota, SeccompDefault: *config.Configuration.SeccompDefault,
		SeccompRoot: config.SeccompRoot(), DefaultSysctls: config.Configuration.DefaultPodSysctls,
	}
	k.cgroups = &cgroup.Pods{
		Groups: config.Groups, Root: config.Configuration.CgroupRoot, PerQOS: *config.Configuration.CgroupsPerQOS,
		PIDsLimit: *config.Configuration.PodPidsLimit, CFSQuota: *config.Configuration.CPUCFSQuota, Allocatable: config.enforced(),
	}
	k.runner = &probe.Runner{Exec: k.cri.Exec}
	k.volumes = &volume.Volumes{Root: config.RootDirectory, FS: config.Files, Mounter: config.Mounter}
	k.userns = &userns.Manager{Files: config.Files, Folders: k.volumes}
	if config.Client != nil {
		watch := config.Configuration.ConfigMapAndSecretChangeDetectionStrategy == kubeletconfig.WatchChangeDetectionStrategy
		k.objects = object.New(config.Client, watch, k.refresh)
		k.volumes.Objects, k.volumes.Claims, k.volumes.Bundles = k.objects, k.objects, k.objects
		k.volumes.Tokens = &volume.TokenCache{Client: config.Client.Kubernetes}
		k.writer = status.NewWriter(config.Client.Kubernetes, k.podGone)
		k.mirror = &source.Mirror{Client: config.Client.Kubernetes}
	}
	return k, nil
}

// Run works until ctx ends, then stops everything but the containers.
func (k *Kubelet) Run(ctx context.Context) error { return supervise.Run(ctx, k.run) }

func (k *Kubelet) run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &k.config.Configuration
	if err := k.cri.Connect(ctx, c.ContainerRuntimeEndpoint, c.ImageServiceEndpoint, c.RuntimeRequestTimeout.Duration); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer k.cri.Close(ctx)
	k.runtimeName = k.cri.Name()
	k.started = time.Now()
	k.puller = image.NewPuller(k.images, k.parallelPulls())
	if qps := *k.config.Configuration.RegistryPullQPS; qps > 0 {
		k.puller.Limit = flowcontrol.NewTokenBucketRateLimiter(float32(qps), int(k.config.Configuration.RegistryBurst))
	}
	if err := k.config.Files.MkdirAll(k.config.RootDirectory, 0o750); err != nil {
		return fmt.Errorf("make the kubelet's folder: %w", err)
	}
	k.puller.Records = k.imageRecords(ctx)

	if err := k.cgroups.ApplyClasses(k.active()); err != nil {
		return fmt.Errorf("set up the control groups of pods: %w", err)
	}

	k.broadcaster = record.NewBroadcaster(record.WithContext(ctx))
	defer k.broadcaster.Shutdown()
	if k.config.Client != nil {
		k.broadcaster.StartRecordingToSink(newEventSink(ctx, k.config.Client.Kubernetes.CoreV1().Events(""), *c.EventRecordQPS, c.EventBurst))
	}
	k.recorder = k.broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: "kubelet", Host: k.config.NodeName})
	k.recorder.Event(node.Reference(k.config.NodeName), v1.EventTypeNormal, "Starting", "Starting kubelet.")
	k.prober = probe.New(k.runner, k.recorder, containerReference, k.wake)
	k.prober.Start(ctx)
	k.node = node.NewReporter(k.nodeConfig(k.cri.Version()))

	tasks, ctx := supervise.Together(ctx)
	run := func(f func(ctx context.Context)) {
		tasks.Go(func() error { f(ctx); return nil })
	}
	if k.config.Client != nil {
		k.objects.Start(ctx)
		services := k.config.Client.Informers.Core().V1().Services()
		k.services, k.servicesOK = services.Lister(), services.Informer().HasSynced
		run(k.writer.Run)
		run(k.node.Run)
	}
	var failed error
	if *k.config.Configuration.EnableServer {
		server, err := k.newServer(ctx)
		if err != nil {
			failed = err
			cancel()
		} else {
			run(server.Run)
		}
	}
	if failed == nil {
		run(k.watchRuntime)
		run(k.collectGarbage)
		run(k.guardResources)
		run(k.guardStorage)
		if limit := resource.MustParse(c.ContainerLogMaxSize); limit.Sign() >= 0 { // Validate has checked it
			rotator := &logs.Rotator{MaxBytes: limit.Value(), MaxFiles: int(*c.ContainerLogMaxFiles), Reopen: k.runtime.ReopenContainerLog}
			run(func(ctx context.Context) { rotator.Run(ctx, c.ContainerLogMonitorInterval.Duration, k.running) })
		}
		for _, s := range k.sources() {
			run(s)
		}
		log.Info("Started kubelet", "node", k.config.NodeName, "runtime", k.runtimeName, "runtimeVersion", k.cri.Version())
		k.loop(ctx)
	}
	failed = errors.Join(failed, tasks.Wait())
	k.background.Wait()
	k.prober.Wait()
	return failed
}

func (k *Kubelet) parallelPulls() int {
	c := &k.config.Configuration
	switch {
	case c.MaxParallelImagePulls != nil:
		return int(*c.MaxParallelImagePulls)
	case *c.SerializeImagePulls:
		return 1
	}
	return 0
}

// sources are the functions that feed the loop.
func (k *Kubelet) sources() []func(ctx context.Context) {
	c := &k.config.Configuration
	var out []func(ctx context.Context)
	if k.config.Client != nil {
		out = append(out, func(ctx context.Context) { source.API(ctx, k.config.Client, k.config.NodeName, k.updates) })
	}
	if c.StaticPodPath != "" {
		out = append(out, func(ctx context.Context) {
			source.Folder(ctx, k.config.Files, c.StaticPodPath, k.config.NodeName, c.FileCheckFrequency.Duration, k.updates)
		})
	}
	if c.StaticPodURL != "" {
		out = append(out, func(ctx context.Context) {
			source.URL(ctx, c.StaticPodURL, c.StaticPodURLHeader, k.config.NodeName, c.HTTPCheckFrequency.Duration, k.updates)
		})
	}
	return out
}

// wake makes the pod's worker look again. It may be called from anywhere.
func (k *Kubelet) wake(uid types.UID) {
	k.mu.Lock()
	w := k.workers[uid]
	k.mu.Unlock()
	if w != nil {
		w.nudge()
	}
}

// refresh makes the pod's worker take up a change of what the pod is made of.
func (k *Kubelet) refresh(uid types.UID) {
	if w := k.worker(uid); w != nil {
		w.refresh()
	}
}

// podGone is told by the status writer that the API server has no such pod.
func (k *Kubelet) podGone(uid types.UID) {
	if w := k.worker(uid); w != nil {
		w.forget()
	}
}

// wakeAll makes every worker look again.
func (k *Kubelet) wakeAll() {
	for _, w := range k.list() {
		w.nudge()
	}
}

func (k *Kubelet) list() []*worker {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]*worker, 0, len(k.workers))
	for _, w := range k.workers {
		out = append(out, w)
	}
	return out
}

// running are the containers that run in pods of the node.
func (k *Kubelet) running() (containers []*cri.Container) {
	for _, w := range k.list() {
		if observed := w.seen(); observed != nil {
			containers = append(containers, observed.Running()...)
		}
	}
	return containers
}

func (k *Kubelet) nodeFacts() *spec.Node {
	k.mu.Lock()
	defer k.mu.Unlock()
	facts := k.facts
	return &facts
}
