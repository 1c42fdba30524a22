package cgroup

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/kubelet/admit"
	"github.com/coracle-io/coracle/internal/kubelet/allocatable"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Pods manages the groups of pods and of QoS classes. It is upstream's pod and
// QoS container managers.
type Pods struct {
	Groups Groups
	// Configuration says whether there are groups for pods (cgroupsPerQOS).
	// Without them the runtime chooses the groups of containers, and only Usage
	// has an effect.
	Configuration *kubeletconfig.KubeletConfiguration
	Capacity      func() (v1.ResourceList, error) // of the machine
	MaxPIDs       func() (int64, error)           // how many processes and threads the machine can have; 0: unknown

	sums    admit.Sums          // of burstable pods
	kept    admit.Sums          // of guaranteed pods
	mu      sync.Mutex          // guards what follows, and that groups are changed in order
	applied map[string]controls // by path
	limit   int64               // of the memory of all pods together, which applied may not have yet; 0: none
}

// controls are the controls of a QoS class. A limit of 0 processes is none of its
// own. From min bytes of memory, the kernel takes nothing back, and from low ones last.
type controls struct{ shares, memory, pids, min, low int64 }

func classes() []v1.PodQOSClass {
	return []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}
}

// Parent returns the group of the pod, "" if the runtime chooses it.
func (p *Pods) Parent(pod *v1.Pod) string {
	if !*p.Configuration.CgroupsPerQOS {
		return ""
	}
	return p.path(pod)
}

func (p *Pods) path(pod *v1.Pod) string {
	return Pod(p.Configuration.CgroupRoot, podquery.QOSClass(pod), pod.UID)
}

// Apply creates the pod's group if it is missing and sets its controls.
func (p *Pods) Apply(pod *v1.Pod) error {
	if !*p.Configuration.CgroupsPerQOS {
		return nil
	}
	r := spec.PodResources(pod, spec.PodQuotaPeriod(p.Configuration, pod))
	r.Unified = spec.PodMemoryControls(p.Configuration, pod)
	return p.Groups.Apply(p.path(pod), r, *p.Configuration.PodPidsLimit)
}

// Remove removes the group of the pod in any QoS class. It returns an error if the
// group has processes.
func (p *Pods) Remove(uid types.UID) error { return p.each(uid, p.Groups.Remove) }

// End kills the processes that a pod whose containers have ended has left in its
// group, and removes the group: the runtime knows nothing of a container whose
// shim was killed while it was created.
func (p *Pods) End(uid types.UID) error {
	return p.each(uid, func(path string) (err error) {
		for range 3 { // a process may have forked before it was killed
			if err = errors.Join(p.Groups.Kill(path), p.Groups.Remove(path)); err == nil {
				return nil
			}
		}
		return err
	})
}

// each calls work with the path of the pod's group in each QoS class.
func (p *Pods) each(uid types.UID, work func(path string) error) error {
	if !*p.Configuration.CgroupsPerQOS {
		return nil
	}
	var errs []error
	for _, class := range classes() {
		errs = append(errs, work(Pod(p.Configuration.CgroupRoot, class, uid)))
	}
	return errors.Join(errs...)
}

// Known returns the pods that have groups.
func (p *Pods) Known() ([]types.UID, error) {
	if !*p.Configuration.CgroupsPerQOS {
		return nil, nil
	}
	var uids []types.UID
	for _, class := range classes() {
		names, err := p.Groups.Below(Parent(p.Configuration.CgroupRoot, class))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if uid, ok := strings.CutPrefix(name, podPrefix); ok && files.IsPodUID(uid) {
				uids = append(uids, types.UID(uid))
			}
		}
	}
	return uids, nil
}

// Usage returns the resource usage of the pod.
func (p *Pods) Usage(pod *v1.Pod) (Usage, error) { return p.Groups.Usage(p.path(pod)) }

// all returns the group of all pods together, which is that of guaranteed pods.
func (p *Pods) all() string { return Parent(p.Configuration.CgroupRoot, v1.PodQOSGuaranteed) }

// Memory returns how much memory all pods together have left, and how much they may
// have, in bytes. It returns 0 if they have no limit.
func (p *Pods) Memory() (left, limit int64, err error) {
	p.mu.Lock()
	limit = p.limit
	p.mu.Unlock()
	if limit == 0 {
		return 0, 0, nil
	}
	usage, err := p.Groups.Usage(p.all())
	if err != nil {
		return 0, 0, err
	}
	return max(limit-int64(usage.WorkingSetBytes), 0), limit, nil
}

// classPeriod is the period in which the controls of the QoS classes are
// updated. Starting a pod updates them too.
const classPeriod = 10 * time.Second

// Run updates the controls of the QoS classes until ctx ends.
func (p *Pods) Run(ctx context.Context, running func() []*v1.Pod) {
	supervise.Every(ctx, classPeriod, func() {
		if err := p.ApplyClasses(running()); err != nil {
			klog.FromContext(ctx).Error(err, "The control groups of the service classes cannot be set, will try again")
		} else if !p.Enforced() {
			klog.FromContext(ctx).Info("All pods together use more memory than they may, they get their limits once they use less")
		}
	})
}

// Register registers upstream's metrics of the memory that the kernel keeps pods.
func (p *Pods) Register(r prometheus.Registerer) {
	gauge := func(name, help string, value func(controls) int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			p.mu.Lock()
			defer p.mu.Unlock()
			return float64(value(p.applied[p.all()]))
		})
	}
	r.MustRegister(
		gauge("kubelet_memory_qos_node_memory_min_bytes", "[ALPHA] Total cgroup v2 memory.min in bytes for Guaranteed pods. This memory is hard-reserved and never reclaimed by the kernel.",
			func(all controls) int64 { return all.min - all.low }),
		gauge("kubelet_memory_qos_node_memory_low_bytes", "[ALPHA] Total cgroup v2 memory.low in bytes for Burstable pods. This memory is soft-reserved and may be reclaimed under extreme pressure.",
			func(all controls) int64 { return all.low }),
	)
}

// Enforced says whether all pods together have their limit of memory.
func (p *Pods) Enforced() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.applied[p.all()].memory == p.limit
}

// fits says whether a group can have the controls that are wanted. The kernel would
// kill processes of any pods for a limit of all of them below what they use, such as
// that of a kubelet that starts with more reserved. They are evicted instead, as Memory
// says that none is left, and then the limit fits.
func (p *Pods) fits(path string, wanted controls) (bool, error) {
	if wanted.memory == 0 || wanted.memory == p.applied[path].memory {
		return true, nil
	}
	usage, err := p.Groups.Usage(path)
	return int64(usage.WorkingSetBytes) <= wanted.memory, err
}

// unlimited is no limit of processes.
const unlimited = -1

// together returns the controls of all pods together. They have no limits if
// enforceNodeAllocatable does not include pods.
func (p *Pods) together() (controls, error) {
	if !slices.Contains(p.Configuration.EnforceNodeAllocatable, "pods") {
		return controls{pids: unlimited}, nil
	}
	capacity, err := p.Capacity()
	if err != nil {
		return controls{}, err
	}
	reserved, err := allocatable.SystemReserved(p.Configuration)
	if err != nil {
		return controls{}, err
	}
	most, err := p.MaxPIDs()
	if err != nil {
		return controls{}, err
	}
	all := controls{pids: unlimited}
	if most > 0 {
		all.pids = allocatable.Processes(most, reserved)
	}
	left := allocatable.Of(capacity, reserved)
	all.shares, all.memory = spec.CPUShares(left.Cpu().MilliValue()), left.Memory().Value()
	return all, nil
}

// ApplyClasses limits all pods together to what is not reserved of the node's
// memory and processes, and divides its CPU between the QoS classes of the active
// pods: burstable pods get the sum of their requests, best-effort pods the
// minimum. The kernel keeps pods their memory only if the groups above theirs have as
// much of it.
func (p *Pods) ApplyClasses(running []*v1.Pod) error {
	if !*p.Configuration.CgroupsPerQOS {
		return nil
	}
	var burstable, guaranteed []*v1.Pod
	for _, pod := range running {
		switch podquery.QOSClass(pod) {
		case v1.PodQOSBurstable:
			burstable = append(burstable, pod)
		case v1.PodQOSGuaranteed:
			guaranteed = append(guaranteed, pod)
		}
	}
	requests := p.sums.Requests(burstable, v1.ResourceCPU, v1.ResourceMemory)
	all, err := p.together()
	if err != nil {
		return err
	}
	if spec.TieredReservation(p.Configuration) {
		kept := p.kept.Requests(guaranteed, v1.ResourceMemory)
		all.low = amount.Value(*requests.Memory())
		all.min = amount.Sum(all.low, amount.Value(*kept.Memory()))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.applied == nil {
		p.applied = map[string]controls{}
	}
	p.limit = all.memory
	for _, group := range []struct {
		class v1.PodQOSClass
		want  controls
	}{
		{v1.PodQOSGuaranteed, all},
		{v1.PodQOSBurstable, controls{shares: spec.CPUShares(amount.Milli(*requests.Cpu())), low: all.low}},
		{v1.PodQOSBestEffort, controls{shares: spec.CPUShares(0)}},
	} {
		path := Parent(p.Configuration.CgroupRoot, group.class)
		if p.applied[path] == group.want {
			continue
		}
		fits, err := p.fits(path, group.want)
		if err != nil {
			return err
		}
		if !fits {
			continue
		}
		r := &runtimeapi.LinuxContainerResources{CpuShares: group.want.shares, MemoryLimitInBytes: group.want.memory, Unified: map[string]string{
			spec.MemoryMin: strconv.FormatInt(group.want.min, 10), spec.MemoryLow: strconv.FormatInt(group.want.low, 10), // 0 also for what an earlier kubelet has set
		}}
		if err := p.Groups.Apply(path, r, group.want.pids); err != nil {
			return err
		}
		p.applied[path] = group.want
	}
	return nil
}
