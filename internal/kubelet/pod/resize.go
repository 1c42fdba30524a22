package pod

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/admit"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

// wanted are a container's controls by its specification.
func (w *worker) wanted(pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	return spec.Resources(pod, c, w.config.Node.MemoryCapacity, w.config.Node.CFSQuota)
}

// differs says which of a running container's controls are not as wanted. A
// runtime that does not report controls has none that differ.
func differs(want, have *runtimeapi.LinuxContainerResources) (cpu, memory bool) {
	if have == nil || have.GetCpuShares() == 0 && have.GetMemoryLimitInBytes() == 0 && have.GetCpuQuota() == 0 {
		return false, false
	}
	cpu = have.GetCpuShares() != 0 && want.GetCpuShares() != have.GetCpuShares() || max(want.GetCpuQuota(), 0) != max(have.GetCpuQuota(), 0)
	return cpu, want.GetMemoryLimitInBytes() != have.GetMemoryLimitInBytes()
}

// resizeRestarts says whether a container has to start anew to get the
// resources that its specification now asks for.
func (w *worker) resizeRestarts(pod *v1.Pod, c *v1.Container, running *cri.Container) bool {
	if w.pending() {
		return false
	}
	cpu, memory := differs(w.wanted(pod, c), running.Resources)
	for _, policy := range c.ResizePolicy {
		if policy.RestartPolicy != v1.RestartContainer {
			continue
		}
		if cpu && policy.ResourceName == v1.ResourceCPU || memory && policy.ResourceName == v1.ResourceMemory {
			return w.fits(pod) == nil
		}
	}
	return false
}

func (w *worker) pending() bool {
	for _, c := range w.resizing {
		if c.Type == v1.PodResizePending {
			return true
		}
	}
	return false
}

// fits checks the pod's new requests against the rest of the node.
func (w *worker) fits(pod *v1.Pod) *v1.PodCondition {
	var others []*v1.Pod
	for _, other := range w.peers.Active() {
		if other.UID != pod.UID {
			others = append(others, other)
		}
	}
	allocatable := w.config.node().Allocatable
	if message := admit.TooBig(pod, allocatable); message != "" {
		return &v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonInfeasible, Message: message}
	}
	if rejection := admit.Check(pod, nil, others, allocatable); rejection != nil {
		return &v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred, Message: rejection.Message}
	}
	return nil
}

// resize changes the controls of running containers in place (KEP-1287) and
// notes in the pod's conditions what has to wait or has failed.
func (w *worker) resize(ctx context.Context, pod *v1.Pod, observed *cri.Pod) {
	type change struct {
		container *cri.Container
		want      *runtimeapi.LinuxContainerResources
	}
	var changes []change
	for _, c := range observed.Running() {
		declared := podutil.Container(&pod.Spec, c.Name)
		if declared == nil {
			continue
		}
		want := w.wanted(pod, declared)
		if cpu, memory := differs(want, c.Resources); cpu || memory {
			changes = append(changes, change{c, want})
		}
	}
	w.resizing = nil
	if len(changes) == 0 {
		return
	}
	if waits := w.fits(pod); waits != nil {
		waits.ObservedGeneration = pod.Generation
		w.resizing = []v1.PodCondition{*waits}
		return
	}
	if err := w.config.CGroups.Apply(pod); err != nil {
		klog.FromContext(ctx).V(2).Info("The pod's control group cannot change before its containers do", "err", err)
		defer func() { _ = w.config.CGroups.Apply(pod) }()
	}
	for _, ch := range changes {
		if err := w.config.Runtime.UpdateContainerResources(ctx, ch.container.ID, &runtimeapi.ContainerResources{Linux: ch.want}); err != nil {
			w.resizing = []v1.PodCondition{{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue, Reason: v1.PodReasonError,
				Message: fmt.Sprintf("container %s: %v", ch.container.Name, err), ObservedGeneration: pod.Generation}}
			w.config.Recorder.Eventf(Reference(pod), v1.EventTypeWarning, "ResizeError", "Pod resize failed for container %s: %v", ch.container.Name, err)
			return
		}
		ch.container.Resources = ch.want
	}
	w.config.Recorder.Event(Reference(pod), v1.EventTypeNormal, "ResizeCompleted", "Pod resize completed")
	w.wake()
}
