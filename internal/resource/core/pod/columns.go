package pod

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource"
)

// tableSummary holds the cells of a table that summarize a pod's containers.
type tableSummary struct {
	ready, total int
	status       string // the most specific reason for the pod's state
	restarts     string // "3 (5m ago)"
}

// nodeLost is the reason that the node controller sets in pods of an
// unreachable node.
const nodeLost = "NodeLost"

// summarize computes the STATUS column. Each step overrides the one before:
// phase, the pod's reason, init containers that have not finished, containers
// that are not running, deletion.
func summarize(p *corev1.Pod, now time.Time) tableSummary {
	s := tableSummary{status: string(p.Status.Phase), total: len(p.Spec.Containers)}
	if p.Status.Reason != "" {
		s.status = p.Status.Reason
	}
	if gated := podquery.Condition(&p.Status, corev1.PodScheduled); gated != nil && gated.Reason == corev1.PodReasonSchedulingGated {
		s.status = corev1.PodReasonSchedulingGated
	}
	sidecars := map[string]bool{}
	for i := range p.Spec.InitContainers {
		if podquery.IsSidecar(&p.Spec.InitContainers[i]) {
			sidecars[p.Spec.InitContainers[i].Name] = true
			s.total++
		}
	}
	restarts, last, initializing := s.summarizeInit(p, sidecars)
	if !initializing || podquery.HasCondition(&p.Status, corev1.PodInitialized) {
		sidecarRestarts, sidecarLast := sidecarRestarts(p, sidecars)
		restarts, last = s.summarizeContainers(p)
		restarts += sidecarRestarts
		last = later(last, sidecarLast)
	}
	if p.DeletionTimestamp != nil {
		if p.Status.Reason == nodeLost {
			s.status = "Unknown"
		} else if !podquery.IsFinished(p) {
			s.status = "Terminating"
		}
	}
	s.restarts = strconv.Itoa(restarts)
	if restarts != 0 && !last.IsZero() {
		s.restarts = fmt.Sprintf("%d (%s ago)", restarts, resource.Age(last, now))
	}
	return s
}

// summarizeInit finds the first init container that has not finished.
func (s *tableSummary) summarizeInit(p *corev1.Pod, sidecars map[string]bool) (restarts int, last metav1.Time, holds bool) {
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		restarts += int(c.RestartCount)
		if ended := c.LastTerminationState.Terminated; ended != nil {
			last = later(last, ended.FinishedAt)
		}
		started := c.Started != nil && *c.Started
		switch {
		case c.State.Terminated != nil && c.State.Terminated.ExitCode == 0:
			continue
		case sidecars[c.Name] && started:
			if c.Ready {
				s.ready++
			}
			continue
		case c.State.Terminated != nil:
			s.status = "Init:" + terminationReason(c.State.Terminated)
		case c.State.Waiting != nil && c.State.Waiting.Reason != "" && c.State.Waiting.Reason != "PodInitializing":
			s.status = "Init:" + c.State.Waiting.Reason
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		return restarts, last, true
	}
	return restarts, last, false
}

// summarizeContainers goes from the last container to the first, so that the
// reason of the first one is shown.
func (s *tableSummary) summarizeContainers(p *corev1.Pod) (restarts int, last metav1.Time) {
	running := false
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &p.Status.ContainerStatuses[i]
		restarts += int(c.RestartCount)
		if ended := c.LastTerminationState.Terminated; ended != nil {
			last = later(last, ended.FinishedAt)
		}
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.status = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.status = terminationReason(c.State.Terminated)
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	// Some containers have completed and others still run.
	if s.status == "Completed" && running {
		s.status = "NotReady"
		if podquery.IsReady(p) {
			s.status = "Running"
		}
	}
	return restarts, last
}

func sidecarRestarts(p *corev1.Pod, sidecars map[string]bool) (restarts int, last metav1.Time) {
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		if !sidecars[c.Name] {
			continue
		}
		restarts += int(c.RestartCount)
		if ended := c.LastTerminationState.Terminated; ended != nil {
			last = later(last, ended.FinishedAt)
		}
	}
	return restarts, last
}

func terminationReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", t.ExitCode)
	}
}

func later(a, b metav1.Time) metav1.Time {
	if a.Before(&b) {
		return b
	}
	return a
}
