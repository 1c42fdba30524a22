package kubelet

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/kubelet/admit"
	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

// classes are the controls of the groups above those of pods, as last set.
type classes struct {
	mu  sync.Mutex // guards what follows, and that groups are changed in order
	set map[string][2]int64
}

// applyClasses shares the node's CPU between the service classes: burstable
// pods get what they requested together, best effort ones what others leave.
// All pods together get what is not reserved, where enforceNodeAllocatable
// has pods.
func (k *Kubelet) applyClasses() error {
	c := &k.config.Configuration
	if !*c.CgroupsPerQOS {
		return nil
	}
	var burstable []*v1.Pod
	for _, pod := range k.active() {
		if podutil.QOSClass(pod) == v1.PodQOSBurstable {
			burstable = append(burstable, pod)
		}
	}
	requests := admit.Requests(burstable)
	shares, memory := int64(0), int64(0)
	if slices.Contains(c.EnforceNodeAllocatable, "pods") {
		capacity, err := k.config.Machine.Capacity()
		if err != nil {
			return err
		}
		reserved, err := node.SystemReserved(c)
		if err != nil {
			return err
		}
		allocatable := node.Allocatable(capacity, reserved)
		shares, memory = spec.CPUShares(allocatable.Cpu().MilliValue()), allocatable.Memory().Value()
	}
	k.classes.mu.Lock()
	defer k.classes.mu.Unlock()
	if k.classes.set == nil {
		k.classes.set = map[string][2]int64{}
	}
	for _, group := range []struct {
		class  v1.PodQOSClass
		shares int64
		memory int64
	}{
		{v1.PodQOSGuaranteed, shares, memory},
		{v1.PodQOSBurstable, spec.CPUShares(amount.Milli(*requests.Cpu())), 0},
		{v1.PodQOSBestEffort, spec.CPUShares(0), 0},
	} {
		path, want := cgroup.Parent(c.CgroupRoot, group.class), [2]int64{group.shares, group.memory}
		if k.classes.set[path] == want {
			continue
		}
		if err := k.config.Groups.Apply(path, &runtimeapi.LinuxContainerResources{CpuShares: want[0], MemoryLimitInBytes: want[1]}, 0); err != nil {
			return err
		}
		k.classes.set[path] = want
	}
	return nil
}
