package pod

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/source"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	"github.com/coracle-io/coracle/internal/podquery"
)

// minimumShown is how long a container must have run before a pod that ends by
// itself is reported as Running. A client that waits for Running in order to
// attach, such as `kubectl run -i --rm`, would miss the output of a shorter
// command. It reads the log of a pod that is Succeeded or Failed. Holding the
// status back also saves a write.
const minimumShown = 300 * time.Millisecond

// showRunning returns when the first Running status of a pod that may finish can
// be written. The zero time means now.
func showRunning(pod *v1.Pod, previous, next v1.PodPhase, observed *cri.Pod, now time.Time) (until time.Time) {
	if pod.Spec.RestartPolicy == v1.RestartPolicyAlways || pod.DeletionTimestamp != nil ||
		next != v1.PodRunning || previous == v1.PodRunning {
		return until
	}
	for _, c := range observed.Containers {
		if c.StartedAt.After(now) { // the clock was set back
			continue
		}
		if shown := c.StartedAt.Add(minimumShown); c.State == cri.Running && shown.After(now) && shown.After(until) {
			until = shown
		}
	}
	return until
}

// shown returns the object whose status the API server stores for the pod: the
// mirror pod of a static pod. It returns nil if there is no mirror pod, or only
// the mirror pod of an earlier version of the manifest.
func (w *worker) shown(pod *v1.Pod) *v1.Pod {
	if w.orphan || w.config.API == nil {
		return nil
	}
	if w.inbox.static {
		if mirror := w.peers.mirrorOf(pod); source.MirrorShows(mirror, pod) {
			return mirror
		}
		return nil
	}
	return pod
}

// previous returns the last known status of the pod. A pod that another client has
// ended stays ended.
func (w *worker) previous(pod *v1.Pod) v1.PodStatus {
	shown := w.shown(pod)
	if shown == nil {
		return pod.Status
	}
	last, ok := w.config.API.Status.Last(shown.UID)
	if !ok {
		return shown.Status
	}
	last = status.WithForeign(last, shown.Status)
	if !w.inbox.static && podquery.IsFinished(shown) && !podquery.Ended(last.Phase) {
		last.Phase, last.Reason, last.Message = shown.Status.Phase, shown.Status.Reason, shown.Status.Message
	}
	return last
}

// report generates the status of the pod and writes it, unless showRunning
// holds it back.
func (w *worker) report(ctx context.Context, pod *v1.Pod, observed *cri.Pod, ended bool) v1.PodStatus {
	defer w.watched.notify()
	r := w.inbox.request()
	pod = w.inbox.allocation().of(pod)
	ending := r.ending()
	if !ended {
		r.failed = nil
	}
	conditions := w.inbox.resizeConditions()
	if r.target != nil && ended { // it is written together with the final phase
		conditions = append(conditions, *r.target)
	}
	now, previous := time.Now(), w.previous(pod)
	st := status.Generate(status.Input{
		Pod: pod, Previous: previous, Observed: observed, Now: now, HostIPs: w.config.Node.IPs.Now(), Runtime: w.config.RuntimeName(),
		Waiting: w.retries.causes(), Failed: r.failed, Rejected: r.rejected, Ended: ended, Conditions: conditions,
		WithoutPodLevel: !w.config.Features.Enabled(feature.InPlacePodLevelResourcesVerticalScaling),
		Devices:         func(c *v1.Container) []v1.ResourceStatus { return w.config.Placement.DevicesStatus(pod, c) },
		Ready: func(c *v1.Container, running *cri.Container) bool {
			return c.ReadinessProbe == nil || w.probeResult(running.ID, probe.Readiness) == plan.Success
		},
		Started: func(c *v1.Container, running *cri.Container) bool {
			return c.StartupProbe == nil || w.probeResult(running.ID, probe.Startup) == plan.Success
		},
	})
	if ending && !ended && podquery.Ended(st.Phase) { // the final phase is known when nothing runs any more
		st.Phase = previous.Phase
	}
	if w.inbox.static {
		w.inbox.setStatus(st)
	}
	if w.times.showFrom = showRunning(pod, previous.Phase, st.Phase, observed, now); !w.times.showFrom.IsZero() {
		return st
	}
	if before := w.previous(pod); before.Phase != v1.PodRunning && st.Phase == v1.PodRunning && st.StartTime != nil {
		w.metrics.startDuration.Observe(time.Since(st.StartTime.Time).Seconds())
	}
	if shown := w.shown(pod); shown != nil && !r.removed {
		remove := ended && pod.DeletionTimestamp != nil && !w.inbox.static
		w.config.API.Status.Set(ctx, shown, st, remove)
	}
	return st
}

// withStatus returns the pod with the status that the kubelet knows. All but the pod
// itself is shared, not to be changed: a copy of a large pod costs ten times what the
// pod has, at each request for its logs.
func (w *worker) withStatus() *v1.Pod {
	pod := *w.inbox.current()
	pod.Status = w.previous(&pod)
	return &pod
}
