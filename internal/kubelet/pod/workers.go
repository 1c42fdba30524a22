// Package pod runs the pods of a node. Each pod has a worker. The package stands
// for upstream's pod workers, and for the parts of its sync loop and of its
// kuberuntime manager that make up the life of a pod.
//
//	sources ──────────┐                       ┌─ container events (pleg)
//	orphans ──────────┴─► sync loop ─► worker ◄┼─ probe results (probe)
//	                                     │    └─ changed config maps and secrets (object)
//	                                     ▼
//	       observe ─► plan ─► kill, mount, pull, start ─► status ─► API server
//
// A worker has no state that cannot be read back from the runtime. A kubelet
// that was killed adopts its running containers when it is started again.
//
// The sync loop starts workers and passes updates to them. It does no I/O: a
// runtime, a disk or an API server that hangs blocks only the workers that wait
// for it.
package pod

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/source"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Workers are the workers of the pods of a node. The methods may be called from
// any goroutine.
type Workers struct {
	config  Config
	metrics *metrics
	runtime *kuberuntime
	updates chan source.Update // from the sources to the loop
	orphans chan orphans       // to the loop

	admission sync.Mutex // serializes the admission of pods and of resizes
	watchers  watchers   // of Pods

	mu      sync.Mutex // guards what follows
	workers map[types.UID]*worker
	mirrors map[string]*v1.Pod // by namespace/name
	ready   bool               // see Ready
}

// orphans are pods on the node without workers.
type orphans struct {
	pods []*cri.Summary
	all  bool // all that the runtime has
}

// New returns the workers of a node that has no pods yet.
func New(c Config) *Workers {
	m := newMetrics(c.Metrics)
	ws := &Workers{
		config: c, metrics: m,
		updates: make(chan source.Update, 64), orphans: make(chan orphans, 64),
		workers: make(map[types.UID]*worker), mirrors: make(map[string]*v1.Pod),
	}
	ws.runtime = &kuberuntime{config: &ws.config, metrics: m}
	c.Metrics.MustRegister(newUnfinishedResizes(ws), newPodCounts(ws))
	return ws
}

// Run is the sync loop, the only place that starts workers. It returns once ctx
// and all workers have ended.
func (ws *Workers) Run(ctx context.Context) {
	ws.runtime.started = time.Now()
	var running supervise.WaitGroup
	defer ws.runtime.background.Wait()
	defer running.Wait()
	ended := make(chan types.UID)
	start := func(w *worker) {
		ws.mu.Lock()
		ws.workers[w.uid] = w
		ws.mu.Unlock()
		running.Go(ctx, func() {
			w.run(ctx)
			select {
			case ended <- w.uid:
			case <-ctx.Done():
			}
		})
	}
	resync := time.NewTicker(ws.config.Node.Configuration.SyncFrequency.Duration)
	defer resync.Stop()
	waiting := make(map[string]bool) // sources that have not sent all of their pods yet
	for _, name := range ws.config.Sources {
		waiting[name] = true
	}
	early := make(map[types.UID]*cri.Summary) // pods on the node that the missing sources may have
	listed := false
	for {
		ws.setReady(len(waiting) == 0 && listed)
		select {
		case <-ctx.Done():
			return
		case u := <-ws.updates:
			if u.Ready {
				delete(waiting, u.Source)
				if len(waiting) == 0 {
					ws.adopt(early, start)
				}
				continue
			}
			supervise.Contain(ctx, "updates", func() { ws.update(ctx, &u, start) })
		case uid := <-ended:
			if again := ws.delete(uid); again != nil {
				ws.metrics.restartedPods.WithLabelValues(staticLabel(again.IsStatic())).Inc()
				supervise.Contain(ctx, "updates", func() { ws.update(ctx, again, start) })
			}
		case found := <-ws.orphans:
			for _, s := range found.pods {
				early[s.UID] = s
			}
			if listed = listed || found.all; len(waiting) == 0 {
				ws.adopt(early, start)
			}
		case <-resync.C:
			ws.WakeAll()
		}
	}
}

// adopt starts workers that end the pods on the node that no source has, as if
// they were deleted, and empties the map. Their resources are in use until they
// have ended.
func (ws *Workers) adopt(orphans map[types.UID]*cri.Summary, start func(*worker)) {
	for uid, s := range orphans {
		if !ws.Has(uid) {
			w := ws.newWorker(cri.RestoredPod(&cri.Pod{UID: uid, Name: s.Name, Namespace: s.Namespace}))
			w.orphan = true
			w.inbox.remove()
			start(w)
		}
	}
	clear(orphans)
}

// update handles one change from a source.
func (ws *Workers) update(ctx context.Context, u *source.Update, start func(*worker)) {
	if u.IsMirror() {
		ws.updateMirror(u)
		return
	}
	pod, api := u.Pod, ws.config.API
	w := ws.get(pod.UID)
	defer ws.watchers.notify()
	if u.Removed {
		if api != nil {
			api.Status.Forget(pod.UID)
		}
		ws.metrics.startups.forget(pod.UID)
		if w != nil {
			w.again = nil
			w.inbox.remove()
		}
		return
	}
	if api != nil && !u.IsStatic() {
		api.Status.Known(pod)
		ws.metrics.startups.watched(pod)
	}
	switch {
	case w == nil:
		klog.FromContext(ctx).V(2).Info("Got pod", "pod", klog.KObj(pod), "podUID", pod.UID, "source", u.Source)
		w = ws.newWorker(pod)
		if u.IsStatic() {
			ws.waitForPredecessor(w)
		} else {
			ws.admission.Lock() // until the worker is listed, so that others count the pod
			defer ws.admission.Unlock()
			ws.admit(w)
		}
		start(w)
	case w.inbox.request().removed:
		// The last changes of a pod of the API server may come after its deletion, of
		// which the status manager knows at once.
		if u.IsStatic() || pod.DeletionTimestamp == nil {
			w.again = u
		}
	default:
		w.inbox.update(pod)
	}
}

// waitForPredecessor makes the worker of a static pod wait for the one before
// it. A changed manifest is a new pod, which may need the ports and the mirror
// pod of the old one.
func (ws *Workers) waitForPredecessor(w *worker) {
	w.inbox.static = true
	if before := ws.static(mirrorName(w.inbox.current())); before != nil {
		w.after = before.done
	}
}

// admit decides whether the node admits a pod of the API server that is new to
// this kubelet.
func (ws *Workers) admit(w *worker) {
	pod := w.inbox.current()
	if pod.Status.StartTime == nil && pod.DeletionTimestamp == nil {
		running := ws.Active()
		if r := ws.config.Admit(pod, running); r != nil && !ws.preempt(w, r, running) {
			w.inbox.reject(status.Cause{Reason: r.Reason, Message: status.RejectedPrefix + r.Message})
			ws.metrics.rejected(r.Reason)
			ws.config.Recorder.Event(pod, v1.EventTypeWarning, r.Reason, r.Message)
		}
	}
	if status.WasRejected(pod) {
		w.inbox.reject(status.Cause{Reason: pod.Status.Reason, Message: pod.Status.Message})
	}
}

func (ws *Workers) allocating(decide func()) {
	ws.admission.Lock()
	defer ws.admission.Unlock()
	decide()
}

// updateMirror records a change of a mirror pod.
func (ws *Workers) updateMirror(u *source.Update) {
	pod, name := u.Pod, mirrorName(u.Pod)
	ws.mu.Lock()
	if known := ws.mirrors[name]; !u.Removed {
		ws.mirrors[name] = pod
	} else if known != nil && known.UID == pod.UID {
		delete(ws.mirrors, name)
	}
	ws.mu.Unlock()
	if u.Removed {
		ws.config.API.Status.Forget(pod.UID)
	} else {
		ws.config.API.Status.Known(pod)
	}
	if w := ws.static(name); w != nil {
		w.inbox.wake()
	}
}

func mirrorName(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }

// static returns the worker of the static pod of that name. Of several versions
// it returns the newest, for which no other waits.
func (ws *Workers) static(name string) *worker {
	var same []*worker
	awaited := map[chan struct{}]bool{}
	for _, w := range ws.list() {
		if w.inbox.static && mirrorName(w.inbox.current()) == name {
			same = append(same, w)
			awaited[w.after] = true
		}
	}
	for _, w := range same {
		if !awaited[w.done] {
			return w
		}
	}
	return nil
}

func (ws *Workers) mirrorOf(pod *v1.Pod) *v1.Pod {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.mirrors[mirrorName(pod)]
}

// delete removes a worker that has ended. It returns the update that has
// arrived for its pod since the pod was removed, if any.
func (ws *Workers) delete(uid types.UID) *source.Update {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.workers[uid]
	delete(ws.workers, uid)
	ws.watchers.notify()
	return w.again
}

func (ws *Workers) setReady(ready bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.ready = ready
}

func (ws *Workers) get(uid types.UID) *worker {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.workers[uid]
}

func (ws *Workers) list() []*worker {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	out := make([]*worker, 0, len(ws.workers))
	for _, w := range ws.workers {
		out = append(out, w)
	}
	return out
}
