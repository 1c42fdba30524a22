package status

import (
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/podquery"
)

// terminateUnknown sets the containers of an ended pod to Terminated if their
// end is unknown. It does so for the regular containers if they were ever
// allowed to start, and for init containers up to the last that started. Other
// containers remain Waiting.
func terminateUnknown(pod *v1.Pod, s *v1.PodStatus) {
	if initializedOnce(pod, s) {
		terminate(s.ContainerStatuses)
	}
	last := min(len(s.InitContainerStatuses), 1)
	for i, st := range s.InitContainerStatuses {
		if st.State.Waiting == nil || st.LastTerminationState.Terminated != nil {
			last = i + 1
		}
	}
	terminate(s.InitContainerStatuses[:last])
}

// terminate sets all containers that are not Terminated to Terminated, as
// upstream does for lost containers.
func terminate(list []v1.ContainerStatus) {
	for i := range list {
		if list[i].State.Terminated == nil {
			list[i].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				ExitCode: 137, Reason: "ContainerStatusUnknown",
				Message: "The container could not be located when the pod was terminated",
			}}
		}
	}
}

// initializedOnce reports whether the regular containers of the pod have ever
// been allowed to start.
func initializedOnce(pod *v1.Pod, s *v1.PodStatus) bool {
	if len(pod.Spec.InitContainers) == 0 {
		return true
	}
	for _, st := range s.ContainerStatuses {
		if st.State.Waiting == nil || st.LastTerminationState.Terminated != nil {
			return true
		}
	}
	declared := &pod.Spec.InitContainers[len(pod.Spec.InitContainers)-1]
	last := find(s.InitContainerStatuses, declared.Name)
	if podquery.IsSidecar(declared) {
		return last.State.Running != nil && last.Started != nil && *last.Started
	}
	completed := func(s *v1.ContainerState) bool { return s.Terminated != nil && s.Terminated.ExitCode == 0 }
	return completed(&last.State) || completed(&last.LastTerminationState)
}
