package status

import (
	v1 "k8s.io/api/core/v1"
)

// Bounds of what containers and the runtime say in a status, in bytes.
const (
	maxMessages = 12 << 10 // the termination messages of all containers of a pod
	maxWaiting  = 4 << 10  // why one container waits
)

// bound cuts messages so that those of all containers fit into a status.
func bound(s *v1.PodStatus) {
	lists := [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses}
	containers := 0
	for _, list := range lists {
		containers += len(list)
	}
	each := maxMessages / max(containers, 1)
	for _, list := range lists {
		for i := range list {
			boundState(&list[i].State, each)
			boundState(&list[i].LastTerminationState, each)
		}
	}
}

// boundState replaces what it cuts: the status may share it with an earlier one.
func boundState(s *v1.ContainerState, each int) {
	if s.Terminated != nil && len(s.Terminated.Message) > each {
		cut := *s.Terminated
		cut.Message = cut.Message[:each]
		s.Terminated = &cut
	}
	if s.Waiting != nil && len(s.Waiting.Message) > maxWaiting {
		cut := *s.Waiting
		cut.Message = cut.Message[:maxWaiting]
		s.Waiting = &cut
	}
}
