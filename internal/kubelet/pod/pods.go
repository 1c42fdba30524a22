package pod

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/shutdown"
	"github.com/coracle-io/coracle/internal/kubelet/source"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	"github.com/coracle-io/coracle/internal/podquery"
)

// Updates returns the channel on which sources send changes of pods.
func (ws *Workers) Updates() chan<- source.Update { return ws.updates }

// Has reports whether the pod has a worker.
func (ws *Workers) Has(uid types.UID) bool { return ws.get(uid) != nil }

// Ready reports whether all pods of the node are known: every source has sent all of
// its pods, and the runtime has listed what earlier kubelets left.
func (ws *Workers) Ready() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.ready
}

// Orphan reports a pod on the node without a worker. Everything that is left of
// it is removed, unless a source has it. Calls are dropped while too many are
// pending; callers repeat them.
func (ws *Workers) Orphan(s *cri.Summary) { orphans{pods: []*cri.Summary{s}}.send(ws.orphans) }

// Listed is Orphan for all pods in the runtime without a worker.
func (ws *Workers) Listed(pods []*cri.Summary) { orphans{pods, true}.send(ws.orphans) }

// send drops the orphans while too many are pending.
func (o orphans) send(to chan<- orphans) {
	select {
	case to <- o:
	default:
	}
}

// Wake makes the pod's worker sync now.
func (ws *Workers) Wake(uid types.UID) {
	if w := ws.get(uid); w != nil {
		w.inbox.wake()
	}
}

// ProbeChanged makes the pod's worker report the result of a probe now.
func (ws *Workers) ProbeChanged(uid types.UID) {
	if w := ws.get(uid); w != nil {
		w.inbox.probeChanged()
	}
}

// WakeAll makes every worker sync now.
func (ws *Workers) WakeAll() {
	for _, w := range ws.list() {
		w.inbox.wake()
	}
}

// Refresh makes the pod's worker sync after a change of an object that the pod
// refers to.
func (ws *Workers) Refresh(uid types.UID) {
	if w := ws.get(uid); w != nil {
		w.inbox.refresh()
	}
}

// Removed reports that the API server no longer has the pod.
func (ws *Workers) Removed(uid types.UID) {
	if w := ws.get(uid); w != nil {
		w.inbox.remove()
	}
}

// Evict ends the pod as Failed within grace seconds. If it is disrupted for the sake of
// others, it gets the condition DisruptionTarget, and not if it has exceeded a limit of
// its own.
func (ws *Workers) Evict(pod *v1.Pod, message string, grace int64, disrupted bool) {
	ws.end(pod, status.Cause{Reason: evicted, Message: message}, grace, disrupted)
}

// Shutdown ends the pod as Evict does, because the machine shuts down.
func (ws *Workers) Shutdown(pod *v1.Pod, grace int64) {
	ws.end(pod, status.Cause{Reason: shutdown.Reason, Message: shutdown.Message}, grace, true)
}

func (ws *Workers) end(pod *v1.Pod, cause status.Cause, grace int64, disrupted bool) {
	w := ws.get(pod.UID)
	if w == nil {
		return
	}
	var target *v1.PodCondition
	if disrupted {
		target = &v1.PodCondition{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, Message: cause.Message, ObservedGeneration: pod.Generation}
	}
	w.inbox.fail(cause, &grace, target)
}

// Ended returns a channel that is closed when nothing of the pod runs any more.
func (ws *Workers) Ended(uid types.UID) <-chan struct{} {
	if w := ws.get(uid); w != nil {
		return w.inbox.gone
	}
	ended := make(chan struct{})
	close(ended)
	return ended
}

// Active returns the admitted pods that have not ended, with their allocated
// resources.
func (ws *Workers) Active() []*v1.Pod {
	var out []*v1.Pod
	for _, w := range ws.list() {
		if pod, ok := w.inbox.active(); ok {
			out = append(out, pod)
		}
	}
	return out
}

// Occupying returns the pods that may have running containers, whatever their sources
// say of them: also those that are removed or orphans, and those that end.
func (ws *Workers) Occupying() []*v1.Pod {
	var out []*v1.Pod
	for _, w := range ws.list() {
		if w.inbox.occupies() {
			out = append(out, w.inbox.current())
		}
	}
	return out
}

// Evictable returns the active pods, with their allocated resources: those that are not
// critical, or with critical all of the API server. Of those that are ending it returns
// the ones that have more than grace seconds for that.
func (ws *Workers) Evictable(grace int64, critical bool) []*v1.Pod {
	var out []*v1.Pod
	for _, w := range ws.list() {
		if pod, ok := w.inbox.active(); ok && (!w.critical(pod) || critical && !w.inbox.static) {
			if r := w.inbox.request(); r.ending() && GracePeriod(r.pod, r.grace) <= grace {
				continue
			}
			out = append(out, pod)
		}
	}
	return out
}

// Freed reports whether nothing of the pod runs any more, and what its containers and
// volumes held is removed.
func (ws *Workers) Freed(uid types.UID) bool {
	w := ws.get(uid)
	return w == nil || w.inbox.request().freed
}

// FreeEnded removes the containers and logs of the pods that have ended as far as the
// API server knows, and returns how many pods that were. Their statuses stay what they
// are. Evicted pods do not have to wait for an API server that is away.
func (ws *Workers) FreeEnded(ctx context.Context) (freed int) {
	for _, w := range ws.list() {
		r := w.inbox.request()
		if w.inbox.static || r.removed || r.freed || !r.ended || !r.evicted() && !podquery.IsFinished(r.pod) {
			continue
		}
		if err := w.free(ctx, r.pod); err != nil {
			klog.FromContext(ctx).Error(err, "Removing the containers of an ended pod failed", "pod", klog.KObj(r.pod))
			continue
		}
		freed++
	}
	return freed
}

// Observed is a pod with what the runtime had of it when its worker last
// synced.
type Observed struct {
	*v1.Pod
	Runtime *cri.Pod
}

// Observed returns the pods whose workers have synced.
func (ws *Workers) Observed() []Observed {
	var out []Observed
	for _, w := range ws.list() {
		if observed := w.inbox.lastObserved(); observed != nil {
			out = append(out, Observed{w.inbox.current(), observed})
		}
	}
	return out
}

// Containers returns the running containers of all pods.
func (ws *Workers) Containers() (running []*cri.Container) {
	for _, p := range ws.Observed() {
		running = append(running, p.Runtime.Running()...)
	}
	return running
}

// Pods returns the pods of the sources, with the statuses that the kubelet
// knows. What they refer to is shared, and must not be changed.
func (ws *Workers) Pods() []*v1.Pod {
	var out []*v1.Pod
	for _, w := range ws.list() {
		if !w.orphan {
			out = append(out, w.withStatus())
		}
	}
	return out
}

// Watch returns a channel that receives after Pods has changed, until stop is called.
func (ws *Workers) Watch() (changed <-chan struct{}, stop func()) { return ws.watchers.watch() }

// Pod returns one of Pods, nil if there is none of that name. If uid is not
// empty, it has to be the UID of the pod, or of the mirror pod of a static pod.
func (ws *Workers) Pod(namespace, name string, uid types.UID) *v1.Pod {
	for _, w := range ws.list() {
		pod := w.inbox.current()
		if pod.Namespace != namespace || pod.Name != name || w.orphan {
			continue
		}
		if uid == "" || pod.UID == uid {
			return w.withStatus()
		}
		if mirror := ws.mirrorOf(pod); w.inbox.static && mirror != nil && mirror.UID == uid {
			return w.withStatus()
		}
	}
	return nil
}

// OrphanedMirrors returns the mirror pods whose static pods are gone, without those whose
// deletion only waits for finalizers.
func (ws *Workers) OrphanedMirrors() []*v1.Pod {
	ws.mu.Lock()
	var mirrors []*v1.Pod
	for _, mirror := range ws.mirrors {
		if grace := mirror.DeletionGracePeriodSeconds; ws.ready && (grace == nil || *grace > 0) {
			mirrors = append(mirrors, mirror)
		}
	}
	ws.mu.Unlock()
	static := map[string]bool{}
	for _, w := range ws.list() {
		if w.inbox.static {
			static[mirrorName(w.inbox.current())] = true
		}
	}
	return slices.DeleteFunc(mirrors, func(mirror *v1.Pod) bool { return static[mirrorName(mirror)] })
}
