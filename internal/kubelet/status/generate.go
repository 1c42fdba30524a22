// Package status generates the statuses of pods from what runs for them, and
// writes them to the API server. It corresponds to upstream's status manager.
package status

import (
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/podquery"
)

// Cause is why a container waits, or why a pod failed.
type Cause struct{ Reason, Message string }

// Input is everything that a pod's status depends on.
type Input struct {
	Pod *v1.Pod // with its allocated resources
	// Previous is the last known status of the pod. It provides the conditions
	// of other writers, transition times and the containers that the runtime
	// has lost.
	Previous v1.PodStatus
	Observed *cri.Pod
	Now      time.Time
	HostIPs  []string
	// Runtime is the prefix of container ids, such as containerd.
	Runtime string
	// Waiting has the causes of containers that do not run, by name.
	Waiting map[string]Cause
	// Ready and Started return the probe results of a running container. Nil
	// means true.
	Ready, Started func(c *v1.Container, running *cri.Container) bool
	// Devices returns the health of the devices of a container. Nil means that
	// it is not shown.
	Devices func(c *v1.Container) []v1.ResourceStatus
	// WithoutPodLevel leaves out the resources of the pod as a whole.
	WithoutPodLevel bool
	// Failed is set for a pod that was rejected, was evicted or exceeded its
	// deadline.
	Failed *Cause
	// Rejected reports that the node rejected the pod for Failed, so that
	// nothing of it ever ran.
	Rejected bool
	// Ended reports that nothing of the pod runs or will run any more.
	Ended bool
	// Conditions are more conditions that the kubelet writes, such as
	// DisruptionTarget and the conditions of a resize. A condition with an
	// empty Status is removed.
	Conditions []v1.PodCondition
}

// RejectedPrefix is the beginning of the message of a pod that its node
// rejected.
const RejectedPrefix = "Pod was rejected: "

// WasRejected reports whether the pod's status says that its node rejected it.
func WasRejected(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodFailed && strings.HasPrefix(pod.Status.Message, RejectedPrefix)
}

// IsReduced reports whether the kubelet knows no more of a pod than how it ended, or that
// the node rejected it. Each pod of the API has containers.
func IsReduced(pod *v1.Pod) bool { return len(pod.Spec.Containers) == 0 && podquery.IsFinished(pod) }

// Generate returns the pod's status. That of a reduced pod stays what it is.
func Generate(in Input) v1.PodStatus {
	pod := in.Pod
	out := v1.PodStatus{
		ObservedGeneration:    pod.Generation,
		QOSClass:              podquery.QOSClass(pod),
		NominatedNodeName:     in.Previous.NominatedNodeName,
		StartTime:             in.Previous.StartTime,
		ResourceClaimStatuses: in.Previous.ResourceClaimStatuses,

		ExtendedResourceClaimStatus: in.Previous.ExtendedResourceClaimStatus,
	}
	if out.StartTime == nil {
		now := metav1.NewTime(in.Now)
		out.StartTime = &now
	}
	if in.Rejected && in.Failed != nil {
		out.Phase, out.Reason, out.Message = v1.PodFailed, in.Failed.Reason, in.Failed.Message
		out.Conditions = rejectedConditions(in, &out)
		return out
	}
	if IsReduced(pod) {
		return in.Previous
	}
	for _, ip := range in.HostIPs {
		out.HostIPs = append(out.HostIPs, v1.HostIP{IP: ip})
	}
	if len(in.HostIPs) > 0 {
		out.HostIP = in.HostIPs[0]
	}
	addresses(in, &out)
	if !in.WithoutPodLevel {
		podLevelResources(in, &out)
	}

	out.InitContainerStatuses = statuses(in, pod.Spec.InitContainers, in.Previous.InitContainerStatuses, true)
	out.ContainerStatuses = statuses(in, pod.Spec.Containers, in.Previous.ContainerStatuses, false)
	var ephemeral []v1.Container
	for i := range pod.Spec.EphemeralContainers {
		ephemeral = append(ephemeral, v1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	out.EphemeralContainerStatuses = statuses(in, ephemeral, in.Previous.EphemeralContainerStatuses, false)
	byName := func(a, b v1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(out.ContainerStatuses, byName)
	slices.SortFunc(out.EphemeralContainerStatuses, byName)
	if in.Ended {
		terminateUnknown(pod, &out)
	}
	truncateMessages(&out)

	switch previous := in.Previous.Phase; {
	case in.Failed != nil:
		out.Phase, out.Reason, out.Message = v1.PodFailed, in.Failed.Reason, in.Failed.Message
	case podquery.Ended(previous):
		out.Phase, out.Reason, out.Message = previous, in.Previous.Reason, in.Previous.Message
	default:
		out.Phase = phase(in, &out)
	}
	out.Conditions = conditions(in, &out)
	return out
}

// podLevelResources sets what is allocated to a pod as a whole, and what it has
// (KEP-5419). Until a resize in progress is done, that is what it had. The pod's
// overhead is in neither: the scheduler adds it to both.
func podLevelResources(in Input, out *v1.PodStatus) {
	out.AllocatedResources = resourcehelper.PodRequests(in.Pod, resourcehelper.PodResourcesOptions{ExcludeOverhead: true})
	resizing := slices.ContainsFunc(in.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodResizeInProgress && c.Status == v1.ConditionTrue
	})
	switch {
	case resizing && in.Previous.Resources != nil:
		out.Resources = in.Previous.Resources
	case resourcehelper.IsPodLevelResourcesSet(in.Pod):
		out.Resources = in.Pod.Spec.Resources.DeepCopy()
	default:
		out.Resources = ofContainers(in.Pod, out.AllocatedResources, in.Previous.Phase == v1.PodRunning)
	}
}

// ofContainers returns what the containers of a pod without resources as a whole sum up
// to, of which requests are known. While the pod runs, that is what its control group
// has: CPU and memory, and limits if all containers have some.
func ofContainers(pod *v1.Pod, requests v1.ResourceList, running bool) *v1.ResourceRequirements {
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{ExcludeOverhead: true})
	if !running {
		return &v1.ResourceRequirements{Requests: maps.Clone(requests), Limits: limits}
	}
	has := &v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	cpu, memory := spec.Limited(pod)
	for name, limited := range map[v1.ResourceName]bool{v1.ResourceCPU: cpu, v1.ResourceMemory: memory} {
		if request, ok := requests[name]; ok {
			has.Requests[name] = request
		}
		if limited {
			has.Limits[name] = limits[name]
		}
	}
	return has
}

// addresses sets the addresses of the pod to the addresses of its newest
// sandbox, or to the last known addresses.
func addresses(in Input, out *v1.PodStatus) {
	var ips []string
	switch {
	case in.Pod.Spec.HostNetwork:
		ips = in.HostIPs
	case len(in.Observed.Sandboxes) > 0 && len(in.Observed.Sandboxes[0].IPs) > 0:
		ips = in.Observed.Sandboxes[0].IPs
	default:
		out.PodIP, out.PodIPs = in.Previous.PodIP, in.Previous.PodIPs
		return
	}
	for _, ip := range ips {
		out.PodIPs = append(out.PodIPs, v1.PodIP{IP: ip})
	}
	if len(ips) > 0 {
		out.PodIP = ips[0]
	}
}

// lastEnd returns how a container that does not run ended last, nil if it runs or
// has never run.
func lastEnd(st *v1.ContainerStatus) *v1.ContainerStateTerminated {
	if st.State.Waiting != nil {
		return st.LastTerminationState.Terminated
	}
	return st.State.Terminated
}

// phase derives the phase of a pod from its containers. A pod that has run is Pending
// again while its init containers run in a new sandbox, but not while all of its
// containers are restarted in the old one.
func phase(in Input, s *v1.PodStatus) v1.PodPhase {
	pod := in.Pod
	pendingInit, pendingSidecar := false, false
	var waiting, running, stopped, failed, restarting, discarded, sidecars int
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		st := find(s.InitContainerStatuses, c.Name)
		if podquery.IsSidecar(c) {
			if st.State.Running != nil {
				sidecars++
			}
			if st.Started == nil || !*st.Started {
				if st.LastTerminationState.Terminated == nil && st.State.Terminated == nil {
					pendingSidecar = true
				}
			}
			continue
		}
		if dead := st.State.Terminated; dead != nil && dead.ExitCode != 0 && !plan.ShouldRestart(pod, c, dead.ExitCode) {
			return v1.PodFailed
		}
		pendingInit = pendingInit || lastEnd(st) == nil
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		st := find(s.ContainerStatuses, c.Name)
		newest := in.Observed.Find(c.Name)
		again := newest != nil && newest.Discarded
		if again {
			discarded++
		}
		switch dead := lastEnd(st); {
		case st.State.Running != nil:
			running++
		case dead != nil:
			stopped++
			if dead.ExitCode != 0 {
				failed++
			}
			if again || plan.ShouldRestart(pod, c, dead.ExitCode) {
				restarting++
			}
		default:
			waiting++
		}
	}
	started := running+stopped > 0
	switch {
	case in.Ended:
		if failed > 0 || waiting > 0 || (pendingInit || pendingSidecar) && !started {
			return v1.PodFailed
		}
		return v1.PodSucceeded
	case pendingInit && discarded == 0, pendingSidecar && !started, waiting > 0:
		return v1.PodPending
	case running > 0, restarting > 0:
		return v1.PodRunning
	case stopped == 0:
		return v1.PodPending
	case sidecars > 0: // a pod has not ended before they have
		return v1.PodRunning
	case pod.DeletionTimestamp != nil:
		return v1.PodRunning
	case failed > 0:
		return v1.PodFailed
	}
	return v1.PodSucceeded
}

// find returns the status of the named container, an empty one if there is none.
func find(list []v1.ContainerStatus, name string) *v1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return &v1.ContainerStatus{}
}
