package pod

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/source"
	"github.com/coracle-io/coracle/internal/kubelet/status"
)

// Updates is where the sources send changes of pods.
func (ws *Workers) Updates() chan<- source.Update { return ws.updates }

// Has says whether the pod has a worker.
func (ws *Workers) Has(uid types.UID) bool { return ws.get(uid) != nil }

// Orphan tells of a pod that is on the node and has no worker. Whatever is left
// of it is removed, unless a source has it. Some calls may be dropped while
// there are many.
func (ws *Workers) Orphan(s *cri.Summary) {
	select {
	case ws.orphans <- s:
	default:
	}
}

// Wake makes the pod's worker look again.
func (ws *Workers) Wake(uid types.UID) {
	if w := ws.get(uid); w != nil {
		w.wake()
	}
}

// WakeAll makes every worker look again.
func (ws *Workers) WakeAll() {
	for _, w := range ws.list() {
		w.wake()
	}
}

// Refresh makes the pod's worker take up a change of what the pod is made of.
func (ws *Workers) Refresh(uid types.UID) {
	if w := ws.get(uid); w != nil {
		w.refresh()
	}
}

// Removed tells that the API server has no such pod any more.
func (ws *Workers) Removed(uid types.UID) {
	if w := ws.get(uid); w != nil {
		w.remove()
	}
}

// Evict ends the pod as Failed within grace seconds, with the condition
// DisruptionTarget.
func (ws *Workers) Evict(pod *v1.Pod, message string, grace int64) {
	if w := ws.get(pod.UID); w != nil {
		w.fail(status.Cause{Reason: "Evicted", Message: message}, &grace, &v1.PodCondition{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, Message: message, ObservedGeneration: pod.Generation})
	}
}

// Active are the admitted pods that have not ended.
func (ws *Workers) Active() []*v1.Pod {
	var out []*v1.Pod
	for _, w := range ws.list() {
		if pod, ok := w.active(); ok {
			out = append(out, pod)
		}
	}
	return out
}

// Evictable are the active pods that are neither critical nor being deleted.
func (ws *Workers) Evictable() []*v1.Pod {
	var out []*v1.Pod
	for _, w := range ws.list() {
		if pod, ok := w.active(); ok && !w.critical(pod) && pod.DeletionTimestamp == nil {
			out = append(out, pod)
		}
	}
	return out
}

// Observed is a pod with what the runtime had of it when its worker last looked.
type Observed struct {
	*v1.Pod
	Runtime *cri.Pod
}

// Observed are the pods whose workers have looked at them.
func (ws *Workers) Observed() []Observed {
	var out []Observed
	for _, w := range ws.list() {
		if observed := w.lastObserved(); observed != nil {
			out = append(out, Observed{w.current(), observed})
		}
	}
	return out
}

// Containers are the containers that run in the pods.
func (ws *Workers) Containers() (running []*cri.Container) {
	for _, p := range ws.Observed() {
		running = append(running, p.Runtime.Running()...)
	}
	return running
}

// Pods are the pods that sources have, with the statuses that the kubelet knows.
func (ws *Workers) Pods() []*v1.Pod {
	var out []*v1.Pod
	for _, w := range ws.list() {
		if !w.orphan {
			out = append(out, w.withStatus())
		}
	}
	return out
}

// Pod returns one of Pods, nil if there is none of that name. A uid that is not
// "" is the pod's, or that of a static pod's mirror.
func (ws *Workers) Pod(namespace, name string, uid types.UID) *v1.Pod {
	for _, w := range ws.list() {
		pod := w.current()
		if pod.Namespace != namespace || pod.Name != name || w.orphan {
			continue
		}
		if uid == "" || pod.UID == uid {
			return w.withStatus()
		}
		if mirror := ws.mirrorOf(pod); w.static && mirror != nil && mirror.UID == uid {
			return w.withStatus()
		}
	}
	return nil
}

// OrphanedMirrors are the mirror pods whose static pods are gone.
func (ws *Workers) OrphanedMirrors() []*v1.Pod {
	ws.mu.Lock()
	var mirrors []*v1.Pod
	for _, mirror := range ws.mirrors {
		if ws.ready {
			mirrors = append(mirrors, mirror)
		}
	}
	ws.mu.Unlock()
	var out []*v1.Pod
	for _, mirror := range mirrors {
		if ws.static(mirrorName(mirror)) == nil {
			out = append(out, mirror)
		}
	}
	return out
}
