package status

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/podquery"
)

// isOwned reports whether the kubelet alone writes a condition.
func isOwned(t v1.PodConditionType) bool {
	switch t {
	case v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled,
		v1.PodResizePending, v1.PodResizeInProgress, v1.AllContainersRestarting:
		return true
	}
	return false
}

func conditions(in Input, s *v1.PodStatus) []v1.PodCondition {
	list := []v1.PodCondition{
		sandboxReady(in),
		initialized(in.Pod, s),
	}
	containers := containersReady(in.Pod, s)
	list = append(list, ready(in, s, containers), containers, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue})
	list = append(list, restarting(in)...)
	for _, c := range in.Conditions {
		if c.Status != "" {
			list = append(list, c)
		}
	}
	return withTransitionTimes(in, withOthers(in, list))
}

// rejectedConditions returns the conditions of a pod that the node rejected.
func rejectedConditions(in Input, s *v1.PodStatus) []v1.PodCondition {
	containers := containersReady(in.Pod, s)
	return withTransitionTimes(in, withOthers(in, []v1.PodCondition{
		ready(in, s, containers), containers, {Type: v1.PodScheduled, Status: v1.ConditionTrue},
	}))
}

// withOthers adds the conditions of other writers.
func withOthers(in Input, list []v1.PodCondition) []v1.PodCondition {
	for _, c := range in.Previous.Conditions {
		mentioned := slices.ContainsFunc(in.Conditions, func(o v1.PodCondition) bool { return o.Type == c.Type })
		if !isOwned(c.Type) && !mentioned {
			list = append(list, c)
		}
	}
	return list
}

// withTransitionTimes sets the generation and the transition time of each condition. The
// conditions of a resize have the generation that asked for it.
func withTransitionTimes(in Input, list []v1.PodCondition) []v1.PodCondition {
	for i := range list {
		c := &list[i]
		if (isOwned(c.Type) || c.Type == v1.DisruptionTarget) && c.ObservedGeneration == 0 {
			c.ObservedGeneration = in.Pod.Generation
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = metav1.NewTime(in.Now)
		for _, old := range in.Previous.Conditions {
			if old.Type == c.Type && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	return list
}

func condition(t v1.PodConditionType, ok bool, reason, message string) v1.PodCondition {
	c := v1.PodCondition{Type: t, Status: v1.ConditionTrue, Reason: reason, Message: message}
	if !ok {
		c.Status = v1.ConditionFalse
	}
	return c
}

// restarting returns the condition AllContainersRestarting (KEP-5532) of a pod
// that restarts all of its containers. It is true while some of them still have
// to end.
func restarting(in Input) []v1.PodCondition {
	now := slices.ContainsFunc(in.Observed.Running(), func(c *cri.Container) bool { return c.Discarded })
	known := slices.ContainsFunc(in.Previous.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.AllContainersRestarting })
	if !now && !known {
		return nil
	}
	if now {
		return []v1.PodCondition{condition(v1.AllContainersRestarting, true, "RestartAllContainersStarted", "container exited with restart policy rule")}
	}
	return []v1.PodCondition{condition(v1.AllContainersRestarting, false, "", "")}
}

// sandboxReady returns the condition PodReadyToStartContainers (KEP-3085).
func sandboxReady(in Input) v1.PodCondition {
	reason, message := "PodSandboxNotReady", ""
	ready := 0
	for _, s := range in.Observed.Sandboxes {
		if s.Ready {
			ready++
		}
	}
	switch sandbox := in.Observed.ReadySandbox(); {
	case len(in.Observed.Sandboxes) == 0:
		message = "no pod sandbox exists"
	case ready > 1:
		message = "more than one pod sandbox is ready"
	case sandbox == nil:
		message = "pod sandbox is not ready"
	case sandbox.HostNetwork != in.Pod.Spec.HostNetwork:
		message = "pod sandbox has another network namespace mode"
	case !in.Pod.Spec.HostNetwork && len(sandbox.IPs) == 0:
		message = "pod sandbox has no IP address"
	default:
		reason = ""
	}
	return condition(v1.PodReadyToStartContainers, reason == "", reason, message)
}

func initialized(pod *v1.Pod, s *v1.PodStatus) v1.PodCondition {
	if s.Phase == v1.PodSucceeded && len(pod.Spec.InitContainers) > 0 {
		return condition(v1.PodInitialized, true, "PodCompleted", "")
	}
	started := slices.ContainsFunc(s.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil && c.State.Terminated.Reason != "ContainerStatusUnknown" || c.LastTerminationState.Terminated != nil
	})
	if started {
		return condition(v1.PodInitialized, true, "", "")
	}
	var incomplete []string
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		st := find(s.InitContainerStatuses, c.Name)
		done := st.State.Terminated != nil && st.State.Terminated.ExitCode == 0
		if podquery.IsSidecar(c) {
			done = st.Started != nil && *st.Started
		}
		if !done {
			incomplete = append(incomplete, c.Name)
		}
	}
	if len(incomplete) > 0 {
		return condition(v1.PodInitialized, false, "ContainersNotInitialized", fmt.Sprintf("containers with incomplete status: %s", incomplete))
	}
	if s.Phase == v1.PodSucceeded {
		return condition(v1.PodInitialized, true, "PodCompleted", "")
	}
	return condition(v1.PodInitialized, true, "", "")
}

func containersReady(pod *v1.Pod, s *v1.PodStatus) v1.PodCondition {
	switch s.Phase {
	case v1.PodSucceeded:
		return condition(v1.ContainersReady, false, "PodCompleted", "")
	case v1.PodFailed:
		return condition(v1.ContainersReady, false, "PodFailed", "")
	}
	var unready []string
	check := func(c *v1.Container, list []v1.ContainerStatus) {
		if !find(list, c.Name).Ready {
			unready = append(unready, c.Name)
		}
	}
	for i := range pod.Spec.InitContainers {
		if podquery.IsSidecar(&pod.Spec.InitContainers[i]) {
			check(&pod.Spec.InitContainers[i], s.InitContainerStatuses)
		}
	}
	for i := range pod.Spec.Containers {
		check(&pod.Spec.Containers[i], s.ContainerStatuses)
	}
	if len(unready) > 0 {
		return condition(v1.ContainersReady, false, "ContainersNotReady", fmt.Sprintf("containers with unready status: %s", unready))
	}
	return condition(v1.ContainersReady, true, "", "")
}

// mostGates is how many readiness gates the message of a condition names. A pod may have
// tens of thousands.
const mostGates = 100

func ready(in Input, s *v1.PodStatus, containers v1.PodCondition) v1.PodCondition {
	if containers.Status != v1.ConditionTrue {
		return condition(v1.PodReady, false, containers.Reason, containers.Message)
	}
	var missing []string
	for _, gate := range in.Pod.Spec.ReadinessGates {
		if len(missing) == mostGates {
			missing = append(missing, "and maybe others")
			break
		}
		i := slices.IndexFunc(in.Previous.Conditions, func(c v1.PodCondition) bool { return c.Type == gate.ConditionType })
		switch {
		case i < 0:
			missing = append(missing, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case in.Previous.Conditions[i].Status != v1.ConditionTrue:
			missing = append(missing, fmt.Sprintf("the status of pod readiness gate %q is not %q, but %v", gate.ConditionType, "True", in.Previous.Conditions[i].Status))
		}
	}
	if len(missing) > 0 {
		return condition(v1.PodReady, false, "ReadinessGatesNotReady", strings.Join(missing, ", "))
	}
	return condition(v1.PodReady, true, "", "")
}
