package pod

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

// minimumShown is how long a container must have run before a pod that ends by
// itself is shown as Running. Whoever waits for that to attach (`kubectl run
// -i --rm`) would come too late for what a shorter command says; of a pod that
// is Succeeded or Failed they read the log. It also saves a write.
const minimumShown = 300 * time.Millisecond

// showRunning says until when the pod's status is held back: it is the first
// with which a pod that ends by itself is Running, and shown too soon. The zero
// time lets it be written.
func showRunning(pod *v1.Pod, previous, next v1.PodPhase, observed *cri.Pod, now time.Time) (until time.Time) {
	if pod.Spec.RestartPolicy == v1.RestartPolicyAlways || pod.DeletionTimestamp != nil ||
		next != v1.PodRunning || previous == v1.PodRunning {
		return until
	}
	for _, c := range observed.Containers {
		if shown := c.StartedAt.Add(minimumShown); c.State == cri.Running && shown.After(now) && shown.After(until) {
			until = shown
		}
	}
	return until
}

// shown is the object whose status the API server keeps for the pod: its
// mirror for a static pod. Nil if there is none.
func (w *worker) shown(pod *v1.Pod) *v1.Pod {
	if w.orphan || w.config.API == nil {
		return nil
	}
	if w.static {
		return w.peers.mirrorOf(pod)
	}
	return pod
}

// previous is the last status known of the pod.
func (w *worker) previous(pod *v1.Pod) v1.PodStatus {
	shown := w.shown(pod)
	if shown == nil {
		return pod.Status
	}
	if last, ok := w.config.API.Status.Last(shown.UID); ok {
		return status.WithForeign(last, shown.Status)
	}
	return shown.Status
}

// report works out the pod's status and has it written, unless showRunning
// wants to wait.
func (w *worker) report(ctx context.Context, pod *v1.Pod, observed *cri.Pod, ended bool) v1.PodStatus {
	r := w.request()
	ending := r.ending()
	if !ended {
		r.failed = nil
	}
	conditions := append([]v1.PodCondition{}, w.resizing...)
	if r.target != nil {
		conditions = append(conditions, *r.target)
	}
	now, previous := time.Now(), w.previous(pod)
	st := status.Generate(status.Input{
		Pod: pod, Previous: previous, Observed: observed, Now: now, HostIPs: w.config.Node.IPs, Runtime: w.config.RuntimeName(),
		Waiting: w.retries.waiting, Failed: r.failed, Rejected: r.rejected, Ended: ended, Conditions: conditions,
		Ready: func(c *v1.Container, running *cri.Container) bool {
			return c.ReadinessProbe == nil || w.probeResult(running.ID, probe.Readiness) == plan.Success
		},
		Started: func(c *v1.Container, running *cri.Container) bool {
			return c.StartupProbe == nil || w.probeResult(running.ID, probe.Startup) == plan.Success
		},
	})
	if ending && !ended && podutil.Ended(st.Phase) { // how it ends is decided when nothing runs any more
		st.Phase = previous.Phase
	}
	if w.static {
		w.setStatus(st)
	}
	if w.showFrom = showRunning(pod, previous.Phase, st.Phase, observed, now); !w.showFrom.IsZero() {
		return st
	}
	if before := w.previous(pod); before.Phase != v1.PodRunning && st.Phase == v1.PodRunning && st.StartTime != nil {
		w.metrics.startDuration.Observe(time.Since(st.StartTime.Time).Seconds())
	}
	if shown := w.shown(pod); shown != nil && !r.removed {
		remove := ended && pod.DeletionTimestamp != nil && !w.static
		w.config.API.Status.Set(ctx, shown, st, remove)
	}
	return st
}

// withStatus is the pod with the status that the kubelet knows.
func (w *worker) withStatus() *v1.Pod {
	pod := w.copied()
	pod.Status = w.previous(pod)
	return pod
}
