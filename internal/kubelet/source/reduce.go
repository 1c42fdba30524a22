package source

import (
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/kubelet/status"
	"github.com/coracle-io/coracle/internal/podquery"
)

const (
	// largeEnded is the size of a pod, in bytes as protocol buffers, from which on it is
	// reduced after it has ended. Most pods are smaller, and stay as they are.
	largeEnded = 8 << 10
	// mostLabels is the size of the labels that a reduced pod keeps: what the runtime gets
	// of them.
	mostLabels = 16 << 10
	// mostOfStop is the size, in bytes as protocol buffers, of the preStop hook and of the
	// ports that a container of a reduced pod keeps.
	mostOfStop = 1 << 10
	// mostOfEnded is what is kept of a pod that has ended, and mostOfNamespace of all of a
	// namespace, in bytes as protocol buffers. Of further ones, only their ends are kept.
	// As objects, they are up to 30 times as large.
	mostOfEnded     = 16 << 10
	mostOfNamespace = 1 << 20
	// mostOfMessage is the size of the message of a pod of which only its end is kept.
	mostOfMessage = 1 << 10
	// mostOfHash is the size of the annotation that a mirror pod keeps. That of a pod that
	// the kubelet has made is shorter.
	mostOfHash = 64
)

// reducer decides what the kubelet keeps of the pods that run no more. There may be any
// number of them, until somebody deletes them. Its methods may be called from any
// goroutine.
type reducer struct {
	mu    sync.Mutex // guards what follows
	ended map[types.UID]keptPod
	kept  map[string]int // sizes of ended pods, by namespace
}

// keptPod is a pod that has ended, of which more than its end is kept.
type keptPod struct {
	namespace string
	size      int
}

func newReducer() *reducer {
	return &reducer{ended: map[types.UID]keptPod{}, kept: map[string]int{}}
}

// reduce returns what the kubelet needs of a pod. It returns other objects as they are.
func (r *reducer) reduce(obj any) (any, error) {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return obj, nil
	}
	if pod.ManagedFields != nil {
		pod.ManagedFields = nil
	}
	switch {
	case podquery.IsMirror(pod):
		return mirror(pod), nil
	case status.WasRejected(pod) && len(pod.Status.InitContainerStatuses)+len(pod.Status.ContainerStatuses) == 0:
		return rejected(pod), nil
	case !ended(pod):
		return pod, nil
	}
	kept := pod
	if pod.Size() > largeEnded {
		kept = finished(pod)
	}
	if !r.keep(kept) {
		kept = end(pod)
	}
	return kept, nil
}

// keep notes that a pod is kept, and returns false if there is no room for it.
func (r *reducer) keep(pod *v1.Pod) bool {
	size := pod.Size()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(pod.UID)
	if size > mostOfEnded || r.kept[pod.Namespace]+size > mostOfNamespace {
		return false
	}
	r.ended[pod.UID] = keptPod{pod.Namespace, size}
	r.kept[pod.Namespace] += size
	return true
}

// forget makes room for others after a pod is gone.
func (r *reducer) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(uid)
}

// remove makes room for others. r.mu is held.
func (r *reducer) remove(uid types.UID) {
	pod, ok := r.ended[uid]
	if !ok {
		return
	}
	delete(r.ended, uid)
	if r.kept[pod.namespace] -= pod.size; r.kept[pod.namespace] == 0 {
		delete(r.kept, pod.namespace)
	}
}

// identity returns the metadata of a pod without labels and annotations, which may have
// any size.
func identity(pod *v1.Pod) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Generation: pod.Generation,
		CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
	}
}

// mirror returns what the kubelet needs of a mirror pod, which only shows a static pod.
// Who creates pods can annotate any number of them as mirror pods, and keep them from
// being deleted.
func mirror(pod *v1.Pod) *v1.Pod {
	out := &v1.Pod{ObjectMeta: identity(pod), Spec: v1.PodSpec{NodeName: pod.Spec.NodeName}, Status: pod.Status}
	hash := pod.Annotations[v1.MirrorPodAnnotationKey]
	out.Annotations = map[string]string{v1.MirrorPodAnnotationKey: strings.Clone(hash[:min(len(hash), mostOfHash)])}
	for i := range min(len(pod.Spec.Containers), 1) { // without containers, it counts as status.IsReduced
		out.Spec.Containers = []v1.Container{{Name: pod.Spec.Containers[i].Name}}
	}
	return out
}

// rejected returns a pod that the node has rejected without its specification, of which
// nothing ever ran.
func rejected(pod *v1.Pod) *v1.Pod {
	return &v1.Pod{ObjectMeta: identity(pod), Spec: v1.PodSpec{NodeName: pod.Spec.NodeName}, Status: pod.Status}
}

// end returns of a pod how it ended, and how long its containers may take if another
// client has ended it. That is a pod for which status.IsReduced returns true.
func end(pod *v1.Pod) *v1.Pod {
	s, st := &pod.Spec, &pod.Status
	return &v1.Pod{
		ObjectMeta: identity(pod),
		Spec:       v1.PodSpec{NodeName: s.NodeName, RestartPolicy: s.RestartPolicy, TerminationGracePeriodSeconds: s.TerminationGracePeriodSeconds, HostNetwork: s.HostNetwork, Priority: s.Priority},
		Status: v1.PodStatus{
			Phase: st.Phase, Reason: st.Reason, Message: strings.Clone(st.Message[:min(len(st.Message), mostOfMessage)]), StartTime: st.StartTime, QOSClass: st.QOSClass,
		},
	}
}

// ended reports whether the status of a pod of the API server says that nothing of the
// pod runs. Another client may say so before the API server knows that containers run:
// a reduced pod keeps what is needed to stop them.
func ended(pod *v1.Pod) bool {
	if !podquery.IsFinished(pod) {
		return false
	}
	runs := func(c v1.ContainerStatus) bool { return c.State.Running != nil }
	return !slices.ContainsFunc(pod.Status.InitContainerStatuses, runs) && !slices.ContainsFunc(pod.Status.ContainerStatuses, runs) &&
		!slices.ContainsFunc(pod.Status.EphemeralContainerStatuses, runs)
}

// finished returns of a pod that has ended what its status, its logs and its end need:
// not what its containers were started with.
func finished(pod *v1.Pod) *v1.Pod {
	s := &pod.Spec
	out := &v1.Pod{ObjectMeta: identity(pod), Status: pod.Status, Spec: v1.PodSpec{
		NodeName: s.NodeName, RestartPolicy: s.RestartPolicy, TerminationGracePeriodSeconds: s.TerminationGracePeriodSeconds,
		HostNetwork: s.HostNetwork, Priority: s.Priority, Resources: s.Resources,
	}}
	size := 0
	for k, v := range pod.Labels {
		size += len(k) + len(v)
	}
	if size <= mostLabels {
		out.Labels = pod.Labels
	}
	all := len(s.InitContainers) + len(s.Containers) + len(s.EphemeralContainers)
	for i := range s.InitContainers {
		out.Spec.InitContainers = append(out.Spec.InitContainers, finishedContainer(&s.InitContainers[i], all))
	}
	for i := range s.Containers {
		out.Spec.Containers = append(out.Spec.Containers, finishedContainer(&s.Containers[i], all))
	}
	for i := range s.EphemeralContainers {
		c := v1.Container(s.EphemeralContainers[i].EphemeralContainerCommon)
		out.Spec.EphemeralContainers = append(out.Spec.EphemeralContainers, v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon(finishedContainer(&c, all))})
	}
	return out
}

// finishedContainer returns finished of a container of a pod that has so many.
func finishedContainer(c *v1.Container, containers int) v1.Container {
	out := v1.Container{
		Name: c.Name, Image: c.Image, Resources: c.Resources, RestartPolicy: c.RestartPolicy, RestartPolicyRules: c.RestartPolicyRules,
		TerminationMessagePath: c.TerminationMessagePath, TerminationMessagePolicy: c.TerminationMessagePolicy,
	}
	for i := range status.MostMounts(c.VolumeMounts, containers) { // the status shows them
		m := &c.VolumeMounts[i]
		out.VolumeMounts = append(out.VolumeMounts, v1.VolumeMount{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly})
	}
	if l := c.Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Size() <= mostOfStop {
		out.Lifecycle = &v1.Lifecycle{PreStop: l.PreStop}
	}
	size := 0
	for i := range c.Ports {
		size += c.Ports[i].Size()
	}
	if size <= mostOfStop { // a hook may name one
		out.Ports = c.Ports
	}
	return out
}
