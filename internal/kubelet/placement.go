package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/admit"
	"github.com/coracle-io/coracle/internal/kubelet/allocatable"
	"github.com/coracle-io/coracle/internal/kubelet/cpumanager"
	"github.com/coracle-io/coracle/internal/kubelet/devicemanager"
	"github.com/coracle-io/coracle/internal/kubelet/dra"
	"github.com/coracle-io/coracle/internal/kubelet/memorymanager"
	"github.com/coracle-io/coracle/internal/kubelet/podresources"
	"github.com/coracle-io/coracle/internal/kubelet/topology"
	"github.com/coracle-io/coracle/internal/kubelet/topologymanager"
	"github.com/coracle-io/coracle/internal/podquery"
)

// placement gives the containers of pods devices, CPUs and memory.
type placement struct {
	topology *topologymanager.Manager
	devices  *devicemanager.Manager
	claims   *dra.Manager
	cpus     *cpumanager.Manager
	memory   *memorymanager.Manager
	shown    *podresources.Server
	health   bool // the health of devices is in the status of pods
	fixed    []fixedResource
}

// fixedResource is a resource that a guaranteed pod cannot be resized in: a manager
// has given the containers what they have of it.
type fixedResource struct {
	name            v1.ResourceName
	manager, policy string
}

// fixedResources returns the resources that guaranteed pods cannot be resized in.
func fixedResources(c *kubeletconfig.KubeletConfiguration) (all []fixedResource) {
	if c.CPUManagerPolicy == cpumanager.Static {
		all = append(all, fixedResource{v1.ResourceCPU, "CPU Manager", cpumanager.Static})
	}
	if c.MemoryManagerPolicy == memorymanager.Static {
		all = append(all, fixedResource{v1.ResourceMemory, "Memory Manager", memorymanager.Static})
	}
	return all
}

// differs reports whether a container of two specifications of a pod has more or less
// of the resource in one of them. Limits of a guaranteed pod are as its requests.
func (f fixedResource) differs(a, b *v1.Pod) bool {
	for c := range podquery.Containers(&a.Spec) {
		request, other := c.Resources.Requests[f.name], podquery.Container(&b.Spec, c.Name)
		if other != nil && request.Cmp(other.Resources.Requests[f.name]) != 0 {
			return true
		}
	}
	return false
}

// machineTopology reads the topology of the machine if one of the policies needs
// it, nil otherwise.
func (c *Config) machineTopology() (*topology.Machine, error) {
	k := &c.Configuration
	if k.CPUManagerPolicy == cpumanager.None && k.MemoryManagerPolicy == memorymanager.None && k.TopologyManagerPolicy == topologymanager.None {
		return nil, nil
	}
	machine, err := topology.Read(c.Files, "/sys")
	if err != nil {
		return nil, fmt.Errorf("read the topology of the machine: %w", err)
	}
	return machine, nil
}

// newPlacement builds the topology manager and the managers that it asks.
func (k *Kubelet) newPlacement(gates *feature.Set) (*placement, error) {
	config, c := &k.config, &k.config.Configuration
	machine, err := config.machineTopology()
	if err != nil {
		return nil, err
	}
	p := &placement{health: gates.Enabled(feature.ResourceHealthStatus), fixed: fixedResources(c)}
	occupying, ready := func() []*v1.Pod { return k.pods.Occupying() }, func() bool { return k.pods.Ready() }
	devices := devicemanager.Config{
		Dir: filepath.Join(config.RootDirectory, "device-plugins"), Files: config.Files, Paths: config.paths(), Metrics: config.Metrics,
		Changed: func() { k.node.Update() }, Wake: func(uid types.UID) { k.pods.Wake(uid) }, SourcesReady: ready, Active: occupying,
	}
	if machine != nil && len(machine.Nodes) <= maxHintNodes {
		devices.Nodes = machine.NodeIDs()
	}
	p.devices = devicemanager.New(devices)
	claims := dra.Config{
		Root: config.RootDirectory, NodeName: config.NodeName, Files: config.Files, Features: gates, Metrics: config.Metrics,
		Node: func() *v1.Node { return k.node.Node() }, Wake: func(uid types.UID) { k.pods.Wake(uid) }, Refresh: func(uid types.UID) { k.pods.Refresh(uid) },
		SourcesReady: ready, Active: occupying,
	}
	if config.Client != nil {
		claims.Client = config.Client.Kubernetes
	}
	p.claims = dra.New(claims)
	p.cpus, err = cpumanager.New(cpumanager.Config{
		Configuration: c, Features: gates, Machine: machine, StateFile: filepath.Join(config.RootDirectory, "cpu_manager_state"), Files: config.Files,
		Update: k.updateCPUs, Containers: k.runningContainers, SourcesReady: ready, Active: occupying, Metrics: config.Metrics,
	})
	if err != nil {
		return nil, err
	}
	capacity, err := config.Machine.Capacity()
	if err != nil {
		return nil, fmt.Errorf("read the machine's capacity: %w", err)
	}
	if err := allocatable.Check(c, capacity); err != nil {
		return nil, err
	}
	p.memory, err = memorymanager.New(memorymanager.Config{
		Configuration: c, Machine: machine, Capacity: capacity, StateFile: filepath.Join(config.RootDirectory, "memory_manager_state"), Files: config.Files,
		SourcesReady: ready, Active: occupying, Metrics: config.Metrics,
	})
	if err != nil {
		return nil, err
	}
	p.shown = podresources.New(podresources.Config{
		Dir: filepath.Join(config.RootDirectory, "pod-resources"), Files: config.Files, Active: func() []*v1.Pod { return k.pods.Active() },
		Devices: p.devices, Claims: p.claims, CPUs: p.cpus, Memory: p.memory, Metrics: config.Metrics,
	})
	p.topology, err = topologymanager.New(c, machine, config.Metrics, p.devices, p.cpus, p.memory)
	return p, err
}

// maxHintNodes is the number of NUMA nodes up to which devices have hints
// where the topology manager does not bound it.
const maxHintNodes = 16

// updateCPUs changes the CPUs of a container that runs.
func (k *Kubelet) updateCPUs(ctx context.Context, id, cpus string) error {
	return k.runtime.Runtime().UpdateContainerResources(ctx, id, &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: cpus}})
}

// runningContainers returns the containers that run.
func (k *Kubelet) runningContainers() []cpumanager.Container {
	var out []cpumanager.Container
	for _, pod := range k.pods.Observed() {
		for _, c := range pod.Runtime.Running() {
			out = append(out, cpumanager.Container{Pod: pod.UID, Name: c.Name, ID: c.ID})
		}
	}
	return out
}

// recover reads what an earlier kubelet has allocated.
func (p *placement) recover(ctx context.Context) error {
	p.devices.Recover(ctx)
	p.claims.Recover(ctx)
	if err := p.cpus.Recover(); err != nil {
		return err
	}
	return p.memory.Recover()
}

// loops returns the parts that run concurrently, those that serve sockets only
// if asked for.
func (p *placement) loops(sockets bool) []func(context.Context) {
	loops := []func(context.Context){p.cpus.Run, p.claims.Run}
	if sockets {
		loops = append(loops, p.devices.Run, p.shown.Run)
	}
	return loops
}

// unmanaged returns the resources that the device manager does not allocate:
// those without a device plugin.
func (p *placement) unmanaged(list v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range list {
		if !p.devices.Manages(name) {
			out[name] = q
		}
	}
	return out
}

// Admit implements pods.Placement.
func (p *placement) Admit(ctx context.Context, pod *v1.Pod, running func(container string) bool) *admit.Rejection {
	if err := p.topology.Admit(ctx, pod, running); err != nil {
		reason, message := topologymanager.Rejection(err)
		return &admit.Rejection{Reason: reason, Message: message}
	}
	return nil
}

// Configure implements pods.Placement.
func (p *placement) Configure(ctx context.Context, pod *v1.Pod, c *v1.Container, config *runtimeapi.ContainerConfig) error {
	config.Linux.Resources.CpusetCpus = p.cpus.CPUs(pod.UID, c.Name).String()
	config.Linux.Resources.CpusetMems = p.memory.Nodes(pod.UID, c.Name).String()
	if err := p.devices.Start(ctx, pod, c, config); err != nil {
		return err
	}
	return p.claims.Configure(pod, c, config)
}

// Prepare implements pods.Placement.
func (p *placement) Prepare(ctx context.Context, pod *v1.Pod) error {
	return p.claims.Prepare(ctx, pod)
}

// Prepared implements pods.Placement.
func (p *placement) Prepared(pod *v1.Pod) bool { return p.claims.Prepared(pod) }

// Unprepare implements pods.Placement.
func (p *placement) Unprepare(ctx context.Context, uid types.UID) error {
	return p.claims.Unprepare(ctx, uid)
}

// DevicesStatus implements pods.Placement.
func (p *placement) DevicesStatus(pod *v1.Pod, c *v1.Container) []v1.ResourceStatus {
	if !p.health {
		return nil
	}
	return append(p.devices.ResourcesStatus(pod.UID, c.Name), p.claims.ResourcesStatus(pod, c)...)
}

// ResizeInfeasible implements pods.Placement.
func (p *placement) ResizeInfeasible(desired, allocated *v1.Pod) (detail, message string) {
	if podquery.QOSClass(desired) != v1.PodQOSGuaranteed {
		return "", ""
	}
	for _, f := range p.fixed {
		if f.differs(desired, allocated) {
			return "guaranteed_pod_" + strings.ReplaceAll(strings.ToLower(f.manager), " ", "_") + "_static_policy",
				fmt.Sprintf("Resize is infeasible for Guaranteed Pods alongside %s policy %q", f.manager, f.policy)
		}
	}
	return "", ""
}

// Release implements pods.Placement.
func (p *placement) Release(uid types.UID) { p.topology.Release(uid) }

// placementErrors returns the errors of the settings of the managers.
func placementErrors(k *kubeletconfig.KubeletConfiguration) []error {
	var errs []error
	invalid := func(format string, arguments ...any) {
		errs = append(errs, fmt.Errorf("invalid configuration: "+format, arguments...))
	}
	gates, err := Features(k)
	if err != nil {
		return nil // reported where the gates are checked
	}
	for _, gate := range []feature.Gate{feature.DRANodeAllocatableResources, feature.DRAOptionalNodeOperations} {
		if gates.Named()[gate] {
			invalid("featureGates (--feature-gates): %s=true: this kubelet does not have this feature", gate)
		}
	}
	if policies := []string{cpumanager.None, cpumanager.Static}; !slices.Contains(policies, k.CPUManagerPolicy) {
		invalid("cpuManagerPolicy (--cpu-manager-policy): unknown policy: %q, want one of %q", k.CPUManagerPolicy, policies)
	} else if _, err := cpumanager.ParseOptions(k.CPUManagerPolicy, k.CPUManagerPolicyOptions, gates); err != nil {
		invalid("cpuManagerPolicyOptions (--cpu-manager-policy-options): %w", err)
	}
	if policies := []string{memorymanager.None, memorymanager.Static}; !slices.Contains(policies, k.MemoryManagerPolicy) {
		invalid("memoryManagerPolicy (--memory-manager-policy): unknown policy: %q, want one of %q", k.MemoryManagerPolicy, policies)
	}
	policies := []string{topologymanager.None, topologymanager.BestEffort, topologymanager.Restricted, topologymanager.SingleNUMANode}
	if !slices.Contains(policies, k.TopologyManagerPolicy) {
		invalid("topologyManagerPolicy (--topology-manager-policy) %q must be one of: %q", k.TopologyManagerPolicy, policies)
	}
	if scope := k.TopologyManagerScope; scope != kubeletconfig.ContainerTopologyManagerScope && scope != kubeletconfig.PodTopologyManagerScope {
		invalid("topologyManagerScope (--topology-manager-scope) %q must be one of: %q, or %q", scope, kubeletconfig.ContainerTopologyManagerScope, kubeletconfig.PodTopologyManagerScope)
	}
	if _, err := topologymanager.ParseOptions(k.TopologyManagerPolicyOptions); err != nil {
		invalid("topologyManagerPolicyOptions (--topology-manager-policy-options): %w", err)
	}
	type limit struct {
		numa int32
		name v1.ResourceName
	}
	seen := map[limit]bool{}
	for _, r := range k.ReservedMemory {
		for name, q := range r.Limits {
			if name != v1.ResourceMemory && !strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
				invalid("the limit type %q for NUMA node %d is not supported, only [memory hugepages-<HugePageSize>] is accepted", name, r.NumaNode)
			}
			if q.IsZero() {
				invalid("reserved memory may not be zero for NUMA node %d and resource %q", r.NumaNode, name)
			}
			if seen[limit{r.NumaNode, name}] {
				invalid("the reserved memory has a duplicate value for NUMA node %d and resource %q", r.NumaNode, name)
			}
			seen[limit{r.NumaNode, name}] = true
		}
	}
	return errs
}
