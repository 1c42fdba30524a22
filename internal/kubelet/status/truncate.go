package status

import (
	v1 "k8s.io/api/core/v1"
)

// Bounds of the messages and mounts in a status, in bytes.
const (
	maxMessages = 12 << 10  // termination messages of all containers of a pod
	maxWaiting  = 4 << 10   // reason why one container waits
	maxReasons  = 256 << 10 // reasons of all containers of a pod
	maxMounts   = 256 << 10 // mounts of all containers of a pod
	mountCost   = 64        // of a mount besides its name and path
)

// MostMessage returns how long the termination message of a container is at most, in
// bytes, in the status of a pod with so many containers.
func MostMessage(containers int) int { return maxMessages / max(containers, 1) }

// MostMounts returns how many of the mounts of a container the status of a pod with so
// many containers shows: the first ones.
func MostMounts(mounts []v1.VolumeMount, containers int) int {
	return mostMounts(len(mounts), containers, func(i int) int { return len(mounts[i].Name) + len(mounts[i].MountPath) })
}

// mostMounts is MostMounts for mounts whose names and paths have the given sizes.
func mostMounts(mounts, containers int, size func(i int) int) int {
	left := maxMounts / max(containers, 1)
	for i := range mounts {
		if left -= mountCost + size(i); left < 0 {
			return i
		}
	}
	return mounts
}

// maxGroups bounds the supplementary groups that a status shows of all containers.
const maxGroups = 16 << 10

// truncateMessages shortens the messages, the groups and the mounts of containers so
// that they fit into a status together.
func truncateMessages(s *v1.PodStatus) {
	lists := [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses}
	containers := 0
	for _, list := range lists {
		containers += len(list)
	}
	each, waiting := MostMessage(containers), min(maxWaiting, maxReasons/max(containers, 1))
	for _, list := range lists {
		for i := range list {
			truncateState(&list[i].State, each, waiting)
			truncateState(&list[i].LastTerminationState, each, waiting)
			truncateGroups(&list[i], maxGroups/max(containers, 1))
			mounts := list[i].VolumeMounts
			list[i].VolumeMounts = mounts[:mostMounts(len(mounts), containers, func(i int) int { return len(mounts[i].Name) + len(mounts[i].MountPath) })]
		}
	}
}

// truncateGroups copies what it changes, as truncateState does.
func truncateGroups(s *v1.ContainerStatus, most int) {
	if s.User == nil || s.User.Linux == nil || len(s.User.Linux.SupplementalGroups) <= most {
		return
	}
	cut := *s.User.Linux
	cut.SupplementalGroups = cut.SupplementalGroups[:most]
	s.User = &v1.ContainerUser{Linux: &cut}
}

// truncateState copies what it changes, because an earlier status may share it.
func truncateState(s *v1.ContainerState, each, waiting int) {
	if s.Terminated != nil && len(s.Terminated.Message) > each {
		cut := *s.Terminated
		cut.Message = cut.Message[:each]
		s.Terminated = &cut
	}
	if s.Waiting != nil && len(s.Waiting.Message) > waiting {
		cut := *s.Waiting
		cut.Message = cut.Message[:waiting]
		s.Waiting = &cut
	}
}
