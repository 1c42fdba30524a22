package status

import (
	v1 "k8s.io/api/core/v1"

	podutil "github.com/coracle-io/coracle/internal/pod"
)

// conclude gives an end to the containers of an ended pod of which none is
// known: to the regular ones if the pod was initialized once, and to the init
// containers before the last that began. Those that had not had their turn
// yet keep waiting.
func conclude(pod *v1.Pod, s *v1.PodStatus) {
	if initializedOnce(pod, s) {
		end(s.ContainerStatuses)
	}
	last := min(len(s.InitContainerStatuses), 1)
	for i, st := range s.InitContainerStatuses {
		if st.State.Waiting == nil || st.LastTerminationState.Terminated != nil {
			last = i + 1
		}
	}
	end(s.InitContainerStatuses[:last])
}

func end(list []v1.ContainerStatus) {
	for i := range list {
		if list[i].State.Terminated == nil {
			list[i].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				ExitCode: 137, Reason: "ContainerStatusUnknown",
				Message: "The container could not be located when the pod was terminated",
			}}
		}
	}
}

// initializedOnce says whether the regular containers of the pod ever had
// their turn.
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
	if podutil.IsSidecar(declared) {
		return last.State.Running != nil && last.Started != nil && *last.Started
	}
	return last.State.Terminated != nil && last.State.Terminated.ExitCode == 0
}
