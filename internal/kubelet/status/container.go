package status

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/podquery"
)

// statuses returns the statuses of a list of containers.
func statuses(in Input, list []v1.Container, previous []v1.ContainerStatus, init bool) []v1.ContainerStatus {
	out := make([]v1.ContainerStatus, 0, len(list))
	for i := range list {
		st := container(in, &list[i], find(previous, list[i].Name), init)
		if in.Devices != nil && !init {
			st.AllocatedResourcesStatus = in.Devices(&list[i])
		}
		out = append(out, st)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// container returns the status of a container, from its newest instance.
func container(in Input, c *v1.Container, previous *v1.ContainerStatus, init bool) v1.ContainerStatus {
	newest := in.Observed.Find(c.Name)
	if newest == nil {
		return missing(in, c, previous, init)
	}
	no := false
	st := v1.ContainerStatus{
		Name: c.Name, RestartCount: int32(newest.RestartCount), Image: newest.Image, ImageID: newest.ImageRef,
		ContainerID: id(in, newest), Started: &no,
		AllocatedResources: c.Resources.Requests, Resources: c.Resources.DeepCopy(), // a new instance would have these
	}
	if st.Image == "" {
		st.Image = c.Image
	}
	if st.RestartCount < previous.RestartCount { // the runtime has lost the instances before
		st.RestartCount = previous.RestartCount
		if previous.ContainerID != st.ContainerID && previous.State.Waiting == nil {
			st.RestartCount++
		}
	}
	if older := in.Observed.Previous(newest); older != nil {
		st.LastTerminationState.Terminated = terminated(in, older)
	} else if st.RestartCount > 0 && previous.ContainerID != st.ContainerID && previous.State.Terminated != nil {
		st.LastTerminationState = previous.State
	} else if st.RestartCount > 0 {
		st.LastTerminationState = previous.LastTerminationState
	}
	cause, waits := in.Waiting[c.Name]
	switch newest.State {
	case cri.Running:
		st.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(newest.StartedAt)}
		started := in.Started == nil || in.Started(c, newest)
		st.Started = &started
		ordinary := init && !podquery.IsSidecar(c)
		st.Ready = !ordinary && started && (in.Ready == nil || in.Ready(c, newest))
		if ordinary {
			st.Started = &started
		}
		st.Resources = spec.ToRequirements(c, newest.Resources)
		if u := newest.User; u != nil {
			st.User = &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: u.GetUid(), GID: u.GetGid(), SupplementalGroups: u.GetSupplementalGroups()}}
		}
	case cri.Exited:
		end(in, c, newest, &st, terminated(in, newest), init)
	default:
		if dead := lost(&st, previous); newest.State == cri.Unknown && dead != nil {
			end(in, c, newest, &st, dead, init)
			break
		}
		if !waits {
			cause = Cause{Reason: "ContainerCreating"}
		}
		st.State.Waiting = &v1.ContainerStateWaiting{Reason: cause.Reason, Message: cause.Message}
	}
	if c.Lifecycle != nil && newest.State == cri.Running {
		st.StopSignal = c.Lifecycle.StopSignal
	}
	st.VolumeMounts = volumeMounts(c, newest)
	return st
}

// end sets the state of a container that has ended: it waits if it is started again.
func end(in Input, c *v1.Container, newest *cri.Container, st *v1.ContainerStatus, dead *v1.ContainerStateTerminated, init bool) {
	_, waits := in.Waiting[c.Name]
	st.Ready = init && dead.ExitCode == 0 && !podquery.IsSidecar(c) && !newest.Discarded
	restarts := newest.Discarded || waits && !st.Ready && plan.ShouldRestart(in.Pod, c, dead.ExitCode)
	if !restarts || in.Ended {
		st.State.Terminated = dead
		return
	}
	cause := waitingCause(in, c.Name)
	st.State.Waiting = &v1.ContainerStateWaiting{Reason: cause.Reason, Message: cause.Message}
	st.LastTerminationState = v1.ContainerState{Terminated: dead}
}

// lost returns the end of a container whose state the runtime does not know, nil if it is
// not known to have run. One that ran has failed: it must not make a pod Pending that runs,
// nor run twice where the pod never restarts and has nothing else to do.
func lost(st, previous *v1.ContainerStatus) *v1.ContainerStateTerminated {
	switch {
	case previous.State.Running != nil:
		return &v1.ContainerStateTerminated{
			ExitCode: 137, Reason: "ContainerStatusUnknown", ContainerID: st.ContainerID,
			Message: "The container could not be located when the pod was terminated",
		}
	case previous.ContainerID == st.ContainerID && previous.State.Terminated != nil:
		return previous.State.Terminated
	}
	if last := previous.LastTerminationState.Terminated; last != nil && last.ContainerID == st.ContainerID {
		return last // it waits for its next start
	}
	return nil
}

// waitingCause returns why a container that has not been created waits.
func waitingCause(in Input, name string) Cause {
	if cause, known := in.Waiting[name]; known {
		return cause
	}
	if len(in.Pod.Spec.InitContainers) > 0 {
		return Cause{Reason: "PodInitializing"}
	}
	return Cause{Reason: "ContainerCreating"}
}

// missing returns the status of a container that the runtime does not have: either
// it has not been created yet, or its record is gone.
func missing(in Input, c *v1.Container, previous *v1.ContainerStatus, init bool) v1.ContainerStatus {
	no := false
	_, waits := in.Waiting[c.Name]
	cause := waitingCause(in, c.Name)
	st := v1.ContainerStatus{
		Name: c.Name, Image: c.Image, Started: &no, RestartCount: previous.RestartCount,
		State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: cause.Reason, Message: cause.Message}},
	}
	switch {
	case previous.State.Terminated != nil:
		if waits && !in.Ended {
			st.LastTerminationState = previous.State
			return st
		}
		keep := *previous
		keep.Started = &no
		if !init {
			keep.Ready = false
		}
		return keep
	case init && !waits && !podquery.IsSidecar(c) && regularCreated(in):
		st.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			Reason: "Completed", Message: "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally",
		}}
		st.Ready = true
	case previous.State.Running != nil:
		unknown := &v1.ContainerStateTerminated{
			ExitCode: 137, Reason: "ContainerStatusUnknown", ContainerID: previous.ContainerID,
			Message: "The container could not be located when the pod was deleted.  The container used to be Running",
		}
		if in.Ended || !plan.ShouldRestart(in.Pod, c, 137) {
			unknown.Message = "The container could not be located when the pod was terminated"
			st.State = v1.ContainerState{Terminated: unknown}
			st.ContainerID, st.ImageID = previous.ContainerID, previous.ImageID
			return st
		}
		st.LastTerminationState = v1.ContainerState{Terminated: unknown}
		st.RestartCount++
	default:
		st.LastTerminationState = previous.LastTerminationState
	}
	return st
}

// regularCreated reports whether the runtime has a regular container of the pod, so
// that the init containers have completed at least once.
func regularCreated(in Input) bool {
	return slices.ContainsFunc(in.Pod.Spec.Containers, func(c v1.Container) bool { return in.Observed.Find(c.Name) != nil })
}

func id(in Input, c *cri.Container) string { return in.Runtime + "://" + c.ID }

func terminated(in Input, c *cri.Container) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{
		ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message, ContainerID: id(in, c),
		StartedAt: metav1.NewTime(c.StartedAt), FinishedAt: metav1.NewTime(c.FinishedAt),
	}
}

func volumeMounts(c *v1.Container, running *cri.Container) []v1.VolumeMountStatus {
	recursive := map[string]bool{} // paths of mounts that are read-only with all below
	for _, actual := range running.Mounts {
		if actual.GetRecursiveReadOnly() {
			recursive[actual.GetContainerPath()] = true
		}
	}
	var out []v1.VolumeMountStatus
	for _, m := range c.VolumeMounts {
		st := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			if recursive[m.MountPath] {
				mode = v1.RecursiveReadOnlyEnabled
			}
			st.RecursiveReadOnly = &mode
		}
		out = append(out, st)
	}
	return out
}
