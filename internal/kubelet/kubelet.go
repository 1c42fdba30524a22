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
//
// There is one configuration, Config.Configuration. New sets its defaults and
// validates it; nothing changes it afterwards. A part that uses more than two of
// its settings takes a pointer to all of it, named Configuration in structs. A
// part that uses one or two takes their values. No part takes copies of settings
// beside the configuration, and what follows from several settings has one
// function, such as allocatable.Reserved.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/coracle-io/coracle/internal/eventrecorder"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/health"
	"github.com/coracle-io/coracle/internal/kubelet/admit"
	"github.com/coracle-io/coracle/internal/kubelet/certificate"
	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/csi"
	"github.com/coracle-io/coracle/internal/kubelet/eviction"
	"github.com/coracle-io/coracle/internal/kubelet/gc"
	"github.com/coracle-io/coracle/internal/kubelet/hostpath"
	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/logs"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/kubelet/object"
	"github.com/coracle-io/coracle/internal/kubelet/pleg"
	"github.com/coracle-io/coracle/internal/kubelet/pluginwatcher"
	pods "github.com/coracle-io/coracle/internal/kubelet/pod"
	"github.com/coracle-io/coracle/internal/kubelet/podsapi"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/server"
	"github.com/coracle-io/coracle/internal/kubelet/shutdown"
	"github.com/coracle-io/coracle/internal/kubelet/source"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/kubelet/stats"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	"github.com/coracle-io/coracle/internal/kubelet/userns"
	"github.com/coracle-io/coracle/internal/kubelet/volume"
	"github.com/coracle-io/coracle/internal/nodeaddress"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/version"
)

// Kubelet is the agent of one node.
type Kubelet struct {
	config   Config
	recorder *eventrecorder.Recorder
	runtime  *cri.Client
	sources  []source.Source
	pods     *pods.Workers
	pleg     *pleg.Generator
	probes   *probe.Manager
	images   *image.Manager
	volumes  *volume.Manager
	plugins  *pluginwatcher.Watcher
	cgroups  *cgroup.Pods
	logs     *logs.Rotator // nil: logs grow without bound
	eviction *eviction.Manager
	node     *node.Reporter
	ips      *nodeaddress.List // of the node
	place    *placement
	shutdown *shutdown.Manager    // nil: the machine's shutdown does not wait for pods
	server   *server.Config       // nil: no server
	usage    *stats.Volumes       // nil: no server
	serving  *certificate.Renewed // nil: the certificate is not requested
	podsAPI  *podsapi.Server      // nil: not served

	// Nil without an API server.
	objects  *object.Store
	services *serviceView
	status   *status.Manager
	mirrors  *source.Mirror
}

// New validates the configuration, sets defaults and builds a kubelet.
func New(given Config) (*Kubelet, error) {
	k := &Kubelet{config: given, recorder: &eventrecorder.Recorder{}}
	config := &k.config
	if err := config.Complete(); err != nil {
		return nil, err
	}
	facts, err := config.facts()
	if err != nil {
		return nil, err
	}
	k.ips = facts.IPs
	c := &config.Configuration
	gates, err := Features(c)
	if err != nil {
		return nil, err
	}
	k.sources = source.All(c, config.Client, config.Files, config.NodeName)
	k.runtime = cri.NewClient(config.Runtime, config.Images, config.Metrics, config.RuntimeProcess.DeleteTask)
	k.cgroups = &cgroup.Pods{Groups: cgroup.Measure(config.Groups, config.Metrics), Configuration: c, Capacity: config.Machine.Capacity, MaxPIDs: func() (int64, error) {
		free, err := config.Machine.Free()
		return free.PIDsTotal, err
	}}
	if gates.Enabled(feature.MemoryQoS) {
		k.cgroups.Register(config.Metrics)
	}
	k.newVolumes(gates)
	runtime := k.runtime.Runtime()
	handlers := &probe.Runner{Exec: k.runtime.ExecBounded}
	k.probes = probe.New(handlers, k.recorder, pods.ContainerReference, func(uid types.UID) { k.pods.ProbeChanged(uid) })
	k.images = image.New(image.Config{
		Configuration: c, Features: gates, RootDirectory: config.RootDirectory, NodeName: config.NodeName, Runtime: runtime, Images: k.runtime.Images(),
		Files: config.Files, Machine: config.Machine, Recorder: k.recorder, Active: func() []*v1.Pod { return k.pods.Active() }, Known: k.observed,
		Providers: config.CredentialProviders, Metrics: config.Metrics,
	})
	if k.place, err = k.newPlacement(gates); err != nil {
		return nil, err
	}
	k.plugins = pluginwatcher.New(pluginwatcher.Directory(config.RootDirectory), config.Files, config.paths(), map[string]pluginwatcher.Handler{
		registerapi.CSIPlugin: k.volumes.CSI.Drivers(), registerapi.DRAPlugin: k.place.claims.Drivers(),
	})
	if k.node, err = k.newNode(facts, gates); err != nil {
		return nil, err
	}
	k.pods = k.newPods(facts, gates, handlers)
	if gates.Enabled(feature.PodsAPI) && !config.WithoutSockets {
		k.podsAPI = podsapi.New(podsapi.Config{
			Dir: filepath.Join(config.RootDirectory, "pods-api"), Files: config.Files, Pods: k.pods, Metrics: config.Metrics,
		})
	}
	k.shutdown = shutdown.New(shutdown.Config{
		Configuration: c, Connect: config.Logind, Pods: k.pods, Changed: k.node.SetNotReady, Metrics: config.Metrics, Dir: config.RootDirectory, Files: config.Files,
		Event: func(message string) {
			k.recorder.Event(node.Reference(config.NodeName), v1.EventTypeNormal, shutdown.EventReason, message)
		},
	})
	k.pleg = pleg.New(runtime, config.RootDirectory, k.pods, k.node.RuntimeAnswered, config.Metrics)
	k.eviction, err = eviction.New(eviction.Config{
		Configuration: c, NodeName: config.NodeName, Machine: config.Machine, Pods: k.pods, FileSystems: k.images.FileSystems, PodsMemory: k.cgroups.Memory,
		FreeContainers: func(ctx context.Context) int {
			return k.pods.FreeEnded(ctx) + gc.FreeDead(ctx, runtime, k.pods.Observed())
		},
		FreeImages: k.images.Free, EndPulls: k.images.EndPulls,
		Sources: eviction.Sources{Runtime: runtime, Files: config.Files, Volumes: k.volumes, CGroups: k.cgroups},
		Own:     eviction.Own{Limit: config.Memory.Limit(), Shortage: k.shortage, Kept: k.kept},
		Changed: k.node.Update, Recorder: k.recorder, Metrics: config.Metrics,
	})
	if err != nil {
		return nil, err
	}
	if k.logs, err = logs.NewRotator(c, runtime.ReopenContainerLog); err != nil {
		return nil, err
	}
	if *c.EnableServer {
		k.server, err = k.newServer(gates)
	}
	return k, err
}

// observed returns the pods whose workers have synced.
func (k *Kubelet) observed() (all []*v1.Pod) {
	for _, p := range k.pods.Observed() {
		all = append(all, p.Pod)
	}
	return all
}

// newVolumes builds the volume manager and the volumes of CSI drivers.
func (k *Kubelet) newVolumes(gates *feature.Set) {
	c := &k.config
	k.volumes = &volume.Manager{
		Root: c.RootDirectory, Paths: c.paths(), FS: c.Files, Mounter: c.Mounter, Operations: volume.NewOperations(c.Metrics),
		Node: func() *v1.Node { return k.node.Node() }, Recorder: k.recorder, EmptyDirModes: gates.Enabled(feature.EmptyDirVolumeMode),
	}
	config := csi.Config{
		Root: c.RootDirectory, Paths: c.paths(), NodeName: c.NodeName, FS: c.Files, Mounter: c.Mounter, Client: c.Client, Recorder: k.recorder,
		Health: gates.Enabled(feature.CSIVolumeHealth),
		Node:   func() *v1.Node { return k.node.Node() }, Report: func() { k.node.Update() }, Wake: func(uid types.UID) { k.pods.Refresh(uid) },
		Unmounted: k.volumes.Unmounted,
	}
	if c.Client != nil {
		tokens := &volume.TokenCache{Client: c.Client.Kubernetes}
		k.volumes.Tokens, config.Token = tokens, tokens.Expiring
		certificates := volume.NewCertificateCache(c.Client.Kubernetes, func() *v1.Node { return k.node.Node() })
		certificates.Recorder = k.recorder
		k.volumes.Certificates = certificates
		config.Secret = func(ctx context.Context, namespace, name string) (*v1.Secret, error) {
			return k.objects.Secret(ctx, namespace, name)
		}
	}
	k.volumes.CSI = csi.New(config)
}

// shortage returns why the kubelet has no memory of its own for more; nil if it has.
func (k *Kubelet) shortage() error { return k.config.Memory.Shortage(time.Now()) }

// podCost is roughly how many bytes the kubelet keeps for each byte of a pod as
// protocol buffers: the decoded object is several times as large.
const podCost = 8

// kept returns roughly how many bytes the kubelet keeps for a pod.
func (k *Kubelet) kept(pod *v1.Pod) int64 {
	bytes := int64(pod.Size()) * podCost
	if k.objects != nil {
		bytes += k.objects.Kept(pod.UID)
	}
	return bytes
}

// newPods builds the pod workers and, with an API server, the parts of them that
// use it.
func (k *Kubelet) newPods(facts spec.Node, gates *feature.Set, handlers *probe.Runner) *pods.Workers {
	c := &k.config.Configuration
	policy := &admit.Policy{
		AllowedSysctls: c.AllowedUnsafeSysctls, AppArmor: admit.AppArmorEnabled(k.config.hostFile),
		Pressure: func() []v1.NodeConditionType { return k.eviction.Conditions() }, Node: k.node.Node, LatestNode: k.node.Latest,
		Allocatable: func() v1.ResourceList { return k.place.unmanaged(k.node.Allocatable()) },
		Features:    gates, ShuttingDown: func() bool { return k.shutdown.ShuttingDown() },
	}
	config := pods.Config{
		Node: facts, NodeStatus: k.node, Features: gates, Admit: policy.Admit, Victims: policy.Victims, Shortage: k.shortage,
		Runtime: k.runtime.Runtime(), RuntimeName: k.runtime.Name, Files: k.config.Files, CGroups: k.cgroups,
		UserNamespaces: &userns.Manager{Files: k.config.Files, Folders: k.volumes}, Placement: k.place, Volumes: k.volumes, Images: k.images,
		NetworkPolicies: k.config.NetworkPolicies, Probes: k.probes, Handlers: handlers, Recorder: k.recorder, Metrics: k.config.Metrics,
		Tracer: k.config.tracer(),
	}
	for _, s := range k.sources {
		config.Sources = append(config.Sources, s.Name)
	}
	if client := k.config.Client; client != nil {
		watch := c.ConfigMapAndSecretChangeDetectionStrategy == kubeletconfig.WatchChangeDetectionStrategy
		k.objects = object.New(client, watch, object.Memory{Limit: k.config.Memory.Limit(), Shortage: k.shortage}, func(uid types.UID) { k.pods.Refresh(uid) })
		k.volumes.Objects, k.volumes.Claims, k.volumes.Bundles = k.objects, k.objects, k.objects
		k.status = status.NewManager(client.Kubernetes, func(uid types.UID) { k.pods.Removed(uid) })
		k.mirrors = &source.Mirror{Client: client.Kubernetes}
		k.services = newServiceView(client)
		config.API = &pods.API{
			Status: k.status, Objects: k.objects, Mirrors: k.mirrors,
			Services: k.services.list, RuntimeHandler: runtimeHandler(client.Kubernetes), Account: serviceAccount(client.Kubernetes, k.volumes.Tokens),
		}
	}
	return pods.New(config)
}

func (k *Kubelet) newNode(facts spec.Node, gates *feature.Set) (*node.Reporter, error) {
	return node.NewReporter(node.Config{
		Client: k.config.Client, Configuration: &k.config.Configuration, Features: gates, Name: k.config.NodeName, IPs: facts.IPs, Labels: k.config.NodeLabels,
		Machine: k.config.Machine, Runtime: k.runtime.Runtime(), Images: k.runtime.Images(), Recorder: k.recorder,
		Hooks: node.Hooks{
			Versions: func() (runtime, kubelet string) {
				return k.runtime.Name() + "://" + k.runtime.Version(), version.Upstream
			},
			Devices:    k.place.devices.Capacity,
			Pressure:   func() []v1.NodeConditionType { return k.eviction.Conditions() },
			Registered: func() { k.pods.WakeAll() }, VolumesInUse: k.volumes.CSI.InUse, Observed: k.volumes.CSI.NodeChanged,
		},
	})
}

func (k *Kubelet) newServer(gates *feature.Set) (*server.Config, error) {
	c := &k.config.Configuration
	k.usage = &stats.Volumes{Pods: k.pods.Observed, Machine: k.config.Machine, Usage: k.volumes.Usage, Recorder: k.recorder}
	k.config.Metrics.MustRegister(k.usage, &volume.Counts{Volumes: k.volumes, Pods: k.pods.Active}, &volume.CertificateStates{Volumes: k.volumes, Pods: k.pods.Active})
	config := &server.Config{
		Access: k.config.Access, Configuration: c, Features: gates, Pods: k.pods, Runtime: k.runtime.Runtime(), ProbeCounts: k.probes.Counts, Healthy: k.Healthy,
		Checks: []health.Check{{Name: "device-plugin", Run: func(context.Context) error { return k.place.devices.Registers() }}},
		Stats: &stats.Provider{
			NodeName: k.config.NodeName, Started: time.Now(), Pods: k.pods.Observed, Runtime: k.runtime.Runtime(), Machine: k.config.Machine,
			Count: k.eviction.Count, Volumes: k.volumes, Measured: k.usage, CGroups: k.cgroups, SystemCGroups: k.config.systemCGroups,
			FileSystems: k.images.FileSystems, Used: k.images.Used, PodLogsDir: c.PodLogsDir,
		},
		Files: k.config.Files, CheckpointDir: filepath.Join(k.config.RootDirectory, "checkpoints"),
		NodeName: k.config.NodeName, Metrics: k.config.Metrics, Requests: server.NewRequests(k.config.Metrics), Pages: k.config.Diagnostics.Pages,
		SystemLogs: hostpath.Logs, LogDirectories: k.config.logDirectories(),
		Traces: k.config.Diagnostics.Tracing,
	}
	var client kubernetes.Interface
	if k.config.Client != nil {
		client = k.config.Client.Kubernetes
	}
	if c.ServerTLSBootstrap && config.GetCertificate == nil {
		var err error
		if k.serving, err = k.newServing(client, gates); err != nil {
			return nil, err
		}
		config.GetCertificate = k.serving.GetCertificate
	}
	return config, config.CompleteAccess(client, k.config.Addresses())
}

// newServing returns a serving certificate that the API server issues.
func (k *Kubelet) newServing(api kubernetes.Interface, gates *feature.Set) (*certificate.Renewed, error) {
	c := &k.config.Configuration
	if api == nil {
		return nil, errors.New("serverTLSBootstrap (--rotate-server-certificates) needs an API server that issues the certificate: give --kubeconfig")
	}
	addresses := func() []v1.NodeAddress {
		if n := k.node.Node(); n != nil {
			return n.Status.Addresses
		}
		return nil
	}
	return certificate.Serving(&certificate.ServingOptions{
		Directory: k.config.CertDirectory, CertFile: c.TLSCertFile, KeyFile: c.TLSPrivateKeyFile, NodeName: k.config.NodeName, API: api,
		Addresses: addresses, DNSOnly: gates.Enabled(feature.AllowDNSOnlyNodeCSR), Metrics: k.config.Metrics,
	})
}

// Healthy returns an error while the kubelet does not do its work, as /healthz says.
func (k *Kubelet) Healthy() error { return k.node.RuntimeError() }

// Run works until ctx ends, then stops everything but the containers.
func (k *Kubelet) Run(ctx context.Context) error { return supervise.Run(ctx, k.run) }

func (k *Kubelet) run(ctx context.Context) error {
	supervise.Report(ctx, "ContainerRuntime", fmt.Errorf("waiting for the container runtime at %s", k.config.Configuration.ContainerRuntimeEndpoint))
	err := k.runtime.Connect(ctx, &k.config.Configuration, k.config.traces())
	supervise.Report(ctx, "ContainerRuntime", nil)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer k.runtime.Close(ctx)
	if err := k.checkCgroupDriver(ctx); err != nil {
		return err
	}
	if err := k.config.makeDirectories(); err != nil {
		return err
	}
	k.images.Recover(ctx)
	if err := k.place.recover(ctx); err != nil {
		return err
	}
	if err := k.cgroups.ApplyClasses(nil); err != nil {
		return fmt.Errorf("set up the control groups of pods: %w", err)
	}
	if err := k.config.limitReserved(); err != nil {
		return err
	}
	defer startEvents(ctx, k.recorder, &k.config)()
	k.recorder.Event(node.Reference(k.config.NodeName), v1.EventTypeNormal, "Starting", "Starting kubelet.")
	if c := &k.config.Configuration; *c.CgroupsPerQOS && slices.Contains(c.EnforceNodeAllocatable, "pods") { // see Pods.ApplyClasses above
		eventType, reason, message := v1.EventTypeNormal, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods"
		if !k.cgroups.Enforced() {
			eventType, reason = v1.EventTypeWarning, "FailedNodeAllocatableEnforcement"
			message = "Failed to update Node Allocatable Limits: all pods together use more memory than that, will try again as they are evicted"
		}
		k.recorder.Event(node.Reference(k.config.NodeName), eventType, reason, message)
	}
	if k.shutdown != nil {
		if err := k.shutdown.Start(ctx); err != nil {
			return err
		}
		defer k.shutdown.Close()
	}
	loops, err := k.loops()
	if err != nil {
		return err
	}
	tasks, ctx := supervise.WithContext(ctx)
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

// moved reports the other addresses of the node, and has the workers report those of
// pods in its network. A serving certificate that was requested is then requested for
// them, too.
func (k *Kubelet) moved() {
	k.node.Update()
	k.pods.WakeAll()
}

// checkCgroupDriver returns an error if the container runtime uses a cgroup
// driver that this kubelet does not have. If the runtime does not say which it
// uses, the configured driver counts (KEP-4033).
func (k *Kubelet) checkCgroupDriver(ctx context.Context) error {
	driver, from := k.config.Configuration.CgroupDriver, "cgroupDriver (--cgroup-driver)"
	said, err := k.runtime.Runtime().RuntimeConfig(ctx)
	if err != nil && grpcstatus.Code(err) != codes.Unimplemented {
		return fmt.Errorf("ask the container runtime for its cgroup driver: %w", err)
	}
	if linux := said.GetLinux(); linux != nil {
		from = "the container runtime"
		driver = strings.ToLower(linux.GetCgroupDriver().String())
	}
	if driver != "cgroupfs" {
		return fmt.Errorf("the cgroup driver %s, which %s asks for, is not supported on this node: pods get their control groups from the kubelet directly; "+
			"use cgroupfs in the container runtime (containerd: SystemdCgroup = false)", driver, from)
	}
	return nil
}

// loops returns the parts that run concurrently. It opens the ports of the server.
func (k *Kubelet) loops() ([]func(ctx context.Context), error) {
	loops := []func(ctx context.Context){
		k.pods.Run, k.pleg.Run, k.eviction.Run, k.images.Run, k.volumes.CSI.Run,
		func(ctx context.Context) { k.ips.Each(ctx, k.moved) },
		func(ctx context.Context) { k.cgroups.Run(ctx, k.pods.Active) },
		func(ctx context.Context) { gc.Containers(ctx, k.runtime.Runtime(), k.pods.Observed) },
		func(ctx context.Context) { gc.Sandboxes(ctx, k.runtime.Runtime(), k.pods.Observed) },
		func(ctx context.Context) { gc.Volumes(ctx, k.volumes.Known, k.pods) },
		func(ctx context.Context) { gc.CGroups(ctx, k.cgroups, k.pods) },
		func(ctx context.Context) { gc.Logs(ctx, k.config.Files, k.config.Configuration.PodLogsDir, k.pods) },
		func(ctx context.Context) {
			gc.LogLinks(ctx, k.config.Files, spec.LogLinkDirectory(k.config.Configuration.PodLogsDir))
		},
	}
	for _, s := range k.sources {
		loops = append(loops, func(ctx context.Context) { s.Run(ctx, k.pods.Updates()) })
	}
	if k.logs != nil {
		loops = append(loops, func(ctx context.Context) { k.logs.Run(ctx, k.pods.Containers) })
	}
	if k.config.Client != nil {
		loops = append(loops, k.status.Run, k.node.Run, k.services.informer.RunWithContext, func(ctx context.Context) { gc.Mirrors(ctx, k.pods.OrphanedMirrors, k.mirrors.Delete) })
	}
	if !k.config.WithoutSockets {
		loops = append(loops, k.plugins.Run)
	}
	loops = append(loops, k.place.loops(!k.config.WithoutSockets)...)
	if k.server != nil {
		s, err := server.Listen(*k.server)
		if err != nil {
			return nil, err
		}
		loops = append(loops, s.Run, k.usage.Run)
	}
	if k.shutdown != nil {
		loops = append(loops, k.shutdown.Run)
	}
	if machine, ok := k.config.Machine.(node.KernelLogger); ok {
		loops = append(loops, func(ctx context.Context) { k.watchOOM(ctx, machine) })
	}
	if k.podsAPI != nil {
		loops = append(loops, k.podsAPI.Run)
	}
	if k.serving != nil {
		loops = append(loops, k.serving.Run)
	}
	return loops, nil
}
