package pod

import (
	"context"
	"math"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/admit"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	"github.com/coracle-io/coracle/internal/timespan"
)

// preempted is the reason of a pod that was evicted to make room for a critical one.
const preempted = "Preempting"

// preempt evicts less important pods if the node can then admit the pod of a worker that
// it rejected, and reports whether it did. The worker waits until they have ended.
func (ws *Workers) preempt(w *worker, rejected *admit.Rejection, running []*v1.Pod) bool {
	var candidates []*v1.Pod
	for _, other := range ws.list() {
		if pod, ok := other.inbox.active(); ok && !other.inbox.static {
			candidates = append(candidates, pod)
		}
	}
	victims := ws.config.Victims(w.inbox.current(), rejected, running, candidates)
	for _, pod := range victims {
		victim := ws.get(pod.UID)
		if victim == nil {
			continue
		}
		if r := victim.inbox.request(); !r.ending() {
			const message = "Preempted in order to admit critical pod"
			ws.metrics.preempted.WithLabelValues(strings.TrimPrefix(rejected.Reason, "OutOf")).Inc()
			ws.config.Recorder.Event(Reference(pod), v1.EventTypeWarning, preempted, message)
			victim.inbox.fail(status.Cause{Reason: preempted, Message: message}, nil, &v1.PodCondition{
				Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet,
				Message: "Pod was preempted by Kubelet to accommodate a critical pod.", ObservedGeneration: pod.Generation})
		}
		w.room.add(victim.inbox.gone, GracePeriod(pod, nil))
	}
	return len(victims) > 0
}

// room is what a critical pod waits for: the ends of the pods that were evicted for it.
type room struct {
	ended    []<-chan struct{} // each closed when nothing of a pod runs any more
	patience time.Duration     // for how long it waits at most
}

// minimumPatience is the least time that the pods evicted for a critical pod have to
// end before it starts beside what is left of them, as in upstream.
const minimumPatience = 10 * time.Second

// add adds a pod that has grace seconds to end.
func (r *room) add(ended <-chan struct{}, grace int64) {
	r.ended = append(r.ended, ended)
	r.patience = max(r.patience, timespan.Seconds(min(grace, math.MaxInt32)*3/2), minimumPatience)
}

// wait waits for the ends of the pods, until patience is over or ctx ends.
func (r *room) wait(ctx context.Context) {
	late := time.NewTimer(r.patience)
	defer late.Stop()
	for _, ended := range r.ended {
		select {
		case <-ended:
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
