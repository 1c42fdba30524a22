package cgroup

import (
	"context"
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/kubelet/admit"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Pods manages the groups of pods and of their service classes: upstream's pod
// and QoS container managers.
type Pods struct {
	Groups Groups
	Root   string // the group that KubePods is in
	// PerQOS makes a group for each pod. Without it the runtime chooses the
	// groups of containers, and only Usage does anything.
	PerQOS    bool
	PIDsLimit int64 // of a pod
	CFSQuota  bool
	// Allocatable is what all pods together may use; nil does not limit them.
	Allocatable func() (v1.ResourceList, error)

	mu      sync.Mutex          // guards applied, and that groups are changed in order
	applied map[string]controls // by path
}

// controls of a service class.
type controls struct{ shares, memory int64 }

// Parent is the group that the pod's containers are in, "" if the runtime
// chooses it.
func (p *Pods) Parent(pod *v1.Pod) string {
	if !p.PerQOS {
		return ""
	}
	return p.path(pod)
}

func (p *Pods) path(pod *v1.Pod) string { return Pod(p.Root, podutil.QOSClass(pod), pod.UID) }

// Apply makes the pod's group if it is missing and sets its controls.
func (p *Pods) Apply(pod *v1.Pod) error {
	if !p.PerQOS {
		return nil
	}
	return p.Groups.Apply(p.path(pod), spec.PodResources(pod, p.CFSQuota), p.PIDsLimit)
}

// Remove removes the pod's group, whatever its class was.
func (p *Pods) Remove(uid types.UID) error {
	if !p.PerQOS {
		return nil
	}
	var errs []error
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		errs = append(errs, p.Groups.Remove(Pod(p.Root, class, uid)))
	}
	return errors.Join(errs...)
}

// Usage is what the pod uses.
func (p *Pods) Usage(pod *v1.Pod) (Usage, error) { return p.Groups.Usage(p.path(pod)) }

// classPeriod is how often the controls of the service classes are brought up
// to date, beside each time a pod is started.
const classPeriod = 10 * time.Second

// Run keeps the controls of the service classes up to date until ctx ends.
func (p *Pods) Run(ctx context.Context, running func() []*v1.Pod) {
	supervise.Every(ctx, classPeriod, func() {
		if err := p.ApplyClasses(running()); err != nil {
			klog.FromContext(ctx).Error(err, "The control groups of the service classes cannot be set, will try again")
		}
	})
}

// ApplyClasses shares the node's CPU between the service classes of the pods
// that run: burstable pods get what they requested together, best effort ones
// what others leave.
func (p *Pods) ApplyClasses(running []*v1.Pod) error {
	if !p.PerQOS {
		return nil
	}
	var burstable []*v1.Pod
	for _, pod := range running {
		if podutil.QOSClass(pod) == v1.PodQOSBurstable {
			burstable = append(burstable, pod)
		}
	}
	requests := admit.Requests(burstable)
	var all controls
	if p.Allocatable != nil {
		allocatable, err := p.Allocatable()
		if err != nil {
			return err
		}
		all = controls{spec.CPUShares(allocatable.Cpu().MilliValue()), allocatable.Memory().Value()}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.applied == nil {
		p.applied = map[string]controls{}
	}
	for _, group := range []struct {
		class v1.PodQOSClass
		want  controls
	}{
		{v1.PodQOSGuaranteed, all},
		{v1.PodQOSBurstable, controls{shares: spec.CPUShares(amount.Milli(*requests.Cpu()))}},
		{v1.PodQOSBestEffort, controls{shares: spec.CPUShares(0)}},
	} {
		path := Parent(p.Root, group.class)
		if p.applied[path] == group.want {
			continue
		}
		if err := p.Groups.Apply(path, &runtimeapi.LinuxContainerResources{CpuShares: group.want.shares, MemoryLimitInBytes: group.want.memory}, 0); err != nil {
			return err
		}
		p.applied[path] = group.want
	}
	return nil
}
