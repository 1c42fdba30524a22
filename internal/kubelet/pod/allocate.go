package pod

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/podquery"
)

// allocation are the resources that the node has allocated to a pod. They
// differ from its specification while a resize waits (KEP-1287). Containers
// start with them, and restart with them.
type allocation struct {
	Pod        *v1.ResourceRequirements           `json:"pod,omitempty"`
	Containers map[string]v1.ResourceRequirements `json:"containers"`
}

// specified returns what the specification of the pod asks for.
func specified(pod *v1.Pod) *allocation {
	a := &allocation{Pod: pod.Spec.Resources, Containers: map[string]v1.ResourceRequirements{}}
	for c := range podquery.Containers(&pod.Spec) {
		a.Containers[c.Name] = c.Resources
	}
	return a
}

// initial returns what a pod holds before its worker has read its allocation.
// A pod that is new to the node gets what it specifies, because the node has
// admitted it. A pod that an earlier kubelet started holds what its status says:
// its specification may be a resize that waits.
func initial(pod *v1.Pod) *allocation {
	a := specified(pod)
	if pod.Status.StartTime == nil {
		return a
	}
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			st := &list[i]
			resources, ok := a.Containers[st.Name]
			if !ok || st.Resources == nil {
				continue
			}
			resources.Requests = resized(resources.Requests, st.AllocatedResources)
			resources.Limits = resized(resources.Limits, st.Resources.Limits)
			a.Containers[st.Name] = resources
		}
	}
	return a
}

// resized returns the list with the resources that can be resized from another
// list.
func resized(list, from v1.ResourceList) v1.ResourceList {
	out := list.DeepCopy()
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		delete(out, name)
		if q, ok := from[name]; ok {
			if out == nil {
				out = v1.ResourceList{}
			}
			out[name] = q
		}
	}
	return out
}

// of returns the pod with the allocated resources in its specification.
func (a *allocation) of(pod *v1.Pod) *v1.Pod {
	if a == nil || equality.Semantic.DeepEqual(a, specified(pod)) {
		return pod
	}
	out := pod.DeepCopy()
	out.Spec.Resources = a.Pod
	for c := range podquery.Containers(&out.Spec) {
		if resources, ok := a.Containers[c.Name]; ok {
			c.Resources = resources
		}
	}
	return out
}

// keptAllocation is what the next kubelet has to know of the resources of a pod.
type keptAllocation struct {
	allocation
	// Restarting are the containers that had to restart for the last resize.
	Restarting idSet `json:"restarting,omitempty"`
}

// maxAllocation bounds the file with an allocation.
const maxAllocation = 1 << 20

// allocationFile returns the file that keeps the allocation of a pod, whose directory
// is given, while no kubelet runs.
func allocationFile(podDir string) string { return filepath.Join(podDir, "allocation") }

// allocate allocates to the pod the resources of its specification if the node
// has room for them. It returns the pod with its allocated resources.
func (w *worker) allocate(ctx context.Context, pod *v1.Pod) *v1.Pod {
	if w.inbox.static { // a changed manifest is another pod
		return pod
	}
	w.restoreAllocation(ctx, pod)
	want := specified(pod)
	w.metrics.resizes.request(w.asked, want)
	w.asked = want
	granted, infeasible := false, ""
	var waits, before *v1.PodCondition
	w.peers.allocating(func() {
		if !equality.Semantic.DeepEqual(w.inbox.allocation(), want) {
			if waits, infeasible = w.fits(pod); waits != nil {
				waits.ObservedGeneration = pod.Generation
			} else {
				w.restarting = w.restarting.resized(pod, w.inbox.lastObserved(), w.inbox.allocation(), want)
				w.inbox.setAllocation(want)
				granted = true
			}
		}
		before = w.inbox.setPending(waits)
	})
	if waits != nil && (before == nil || before.Reason != waits.Reason || before.Message != waits.Message || before.ObservedGeneration != waits.ObservedGeneration) {
		w.config.Recorder.Event(Reference(pod), v1.EventTypeWarning, "Resize"+waits.Reason, resizeMessage("Pod resize "+waits.Reason, pod, pod.Generation, waits.Message))
		if infeasible != "" {
			w.metrics.resizes.infeasible.WithLabelValues(infeasible).Inc()
		}
	}
	if granted {
		w.metrics.resizes.accept(before, pod.Generation)
		w.config.Recorder.Event(Reference(pod), v1.EventTypeNormal, "ResizeStarted", resizeMessage("Pod resize started", pod, pod.Generation, ""))
		w.inbox.setResize(&v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue, ObservedGeneration: pod.Generation})
		w.keepAllocation(ctx, w.config.Files.Replace)
	}
	return w.inbox.allocation().of(pod)
}

// restoreAllocation reads the allocation that an earlier kubelet kept. Without a
// readable one the initial allocation stays and is kept from now on. A resize goes on
// that the earlier kubelet did not end: the status says that it is in progress, or has
// what the pod as a whole had before.
func (w *worker) restoreAllocation(ctx context.Context, pod *v1.Pod) {
	if w.kept {
		return
	}
	w.kept = true
	kept := &keptAllocation{}
	raw, err := w.config.Files.ReadFile(allocationFile(w.config.Volumes.PodDir(w.uid)), maxAllocation)
	if err == nil {
		err = json.Unmarshal(raw, kept)
	}
	if err == nil && kept.Containers == nil {
		err = errors.New("containers is missing")
	}
	if err == nil {
		w.inbox.setAllocation(&kept.allocation)
		w.restarting = kept.Restarting
		unsettled := podquery.Condition(&pod.Status, v1.PodResizeInProgress)
		if had := pod.Status.Resources; had != nil && !equality.Semantic.DeepEqual(had, kept.Pod) {
			w.group.resources = had
			unsettled = &v1.PodCondition{Status: v1.ConditionTrue, ObservedGeneration: pod.Generation}
		}
		if unsettled != nil && unsettled.Status == v1.ConditionTrue {
			w.inbox.setResize(&v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue, ObservedGeneration: unsettled.ObservedGeneration})
		}
		return
	}
	if !errors.Is(err, fs.ErrNotExist) {
		klog.FromContext(ctx).Error(err, "The resources allocated to the pod cannot be read, taking those of its status")
	}
	w.keepAllocation(ctx, w.config.Files.ReplaceUnsynced) // the pod's specification or status has it, too
}

// keepAllocation writes the allocation of the pod for the next kubelet. One that
// has changed must survive a loss of power: the next kubelet would start the
// containers with the resources that they had before.
func (w *worker) keepAllocation(ctx context.Context, replace func(path string, data []byte, perm fs.FileMode) error) {
	dir := w.config.Volumes.PodDir(w.uid)
	raw, err := json.Marshal(keptAllocation{*w.inbox.allocation(), w.restarting})
	if err == nil {
		err = w.config.Files.MkdirAll(dir, 0o750)
	}
	if err == nil {
		err = replace(allocationFile(dir), raw, 0o600)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Keeping the resources allocated to the pod failed: after a restart of the kubelet they may be older ones")
	}
}
