package source

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
)

// reduce returns what the kubelet needs of a pod that runs no more. There may be any
// number of such pods, until somebody deletes them. It returns other objects as they
// are.
func reduce(obj any) (any, error) {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return obj, nil
	}
	if pod.ManagedFields != nil {
		pod.ManagedFields = nil
	}
	switch {
	case status.WasRejected(pod) && len(pod.Status.InitContainerStatuses)+len(pod.Status.ContainerStatuses) == 0:
		return rejected(pod), nil
	case ended(pod) && pod.Size() > largeEnded:
		return finished(pod), nil
	}
	return pod, nil
}

// identity returns the metadata of a pod without labels and annotations, which may have
// any size. It keeps that the pod is a mirror pod.
func identity(pod *v1.Pod) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Generation: pod.Generation,
		CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
	}
	if podquery.IsMirror(pod) {
		out.Annotations = map[string]string{v1.MirrorPodAnnotationKey: pod.Annotations[v1.MirrorPodAnnotationKey]}
	}
	return out
}

// rejected returns a pod that the node has rejected without its specification, of which
// nothing ever ran.
func rejected(pod *v1.Pod) *v1.Pod {
	return &v1.Pod{ObjectMeta: identity(pod), Spec: v1.PodSpec{NodeName: pod.Spec.NodeName}, Status: pod.Status}
}

// ended reports whether the status of a pod of the API server says that nothing of the
// pod runs. Another client may say so before the API server knows that containers run:
// a reduced pod keeps what is needed to stop them.
func ended(pod *v1.Pod) bool {
	if !podquery.IsFinished(pod) || podquery.IsMirror(pod) {
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
	for i := range s.InitContainers {
		out.Spec.InitContainers = append(out.Spec.InitContainers, finishedContainer(&s.InitContainers[i]))
	}
	for i := range s.Containers {
		out.Spec.Containers = append(out.Spec.Containers, finishedContainer(&s.Containers[i]))
	}
	for i := range s.EphemeralContainers {
		c := v1.Container(s.EphemeralContainers[i].EphemeralContainerCommon)
		out.Spec.EphemeralContainers = append(out.Spec.EphemeralContainers, v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon(finishedContainer(&c))})
	}
	return out
}

func finishedContainer(c *v1.Container) v1.Container {
	out := v1.Container{
		Name: c.Name, Image: c.Image, Resources: c.Resources, RestartPolicy: c.RestartPolicy, RestartPolicyRules: c.RestartPolicyRules,
		TerminationMessagePath: c.TerminationMessagePath, TerminationMessagePolicy: c.TerminationMessagePolicy,
	}
	for i := range c.VolumeMounts { // the status shows them
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
