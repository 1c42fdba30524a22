package kubelet

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/admit"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/source"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/supervise"
)

const housekeepingPeriod = 2 * time.Second

// loop is the one place where workers are made. Every channel it reads stands
// for one of the kubelet's reasons to act.
func (k *Kubelet) loop(ctx context.Context) {
	var workers supervise.WaitGroup
	defer workers.Wait()
	ended := make(chan types.UID)
	housekeeping := time.NewTicker(housekeepingPeriod)
	defer housekeeping.Stop()
	resync := time.NewTicker(k.config.Configuration.SyncFrequency.Duration)
	defer resync.Stop()
	waiting := make(map[string]bool) // sources that have not told all their pods yet
	if k.config.Client != nil {
		waiting[source.APIName] = true
	}
	if k.config.Configuration.StaticPodPath != "" {
		waiting[source.FolderName] = true
	}
	if k.config.Configuration.StaticPodURL != "" {
		waiting[source.URLName] = true
	}
	launch := func(w *worker) {
		k.mu.Lock()
		k.workers[w.uid] = w
		k.mu.Unlock()
		workers.Go(ctx, func() {
			w.run(ctx)
			select {
			case ended <- w.uid:
			case <-ctx.Done():
			}
		})
	}
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-k.updates:
			if u.Ready {
				delete(waiting, u.Source)
				continue
			}
			supervise.Contain(ctx, "updates", func() { k.update(ctx, u, launch) })
		case uid := <-ended:
			k.mu.Lock()
			back := k.workers[uid].back
			delete(k.workers, uid)
			k.mu.Unlock()
			if back != nil {
				supervise.Contain(ctx, "updates", func() { k.update(ctx, *back, launch) })
			}
		case s := <-k.lost:
			// A pod that no source knows is ended as if it had been deleted.
			if len(waiting) == 0 && k.worker(s.UID) == nil {
				klog.FromContext(ctx).Info("Ending a pod that no source knows", "pod", klog.KRef(s.Namespace, s.Name), "podUID", s.UID)
				w := newWorker(k, cri.RestoredPod(&cri.Pod{UID: s.UID, Name: s.Name, Namespace: s.Namespace}))
				w.orphan = true
				w.forget()
				launch(w)
			}
		case <-housekeeping.C:
			if len(waiting) == 0 {
				supervise.Contain(ctx, "housekeeping", func() { k.housekeep(ctx) })
			}
		case <-resync.C:
			k.wakeAll()
		}
	}
}

func (k *Kubelet) worker(uid types.UID) *worker {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.workers[uid]
}

// update takes one change from a source.
func (k *Kubelet) update(ctx context.Context, u source.Update, launch func(*worker)) {
	pod := u.Pod
	if u.IsMirror() {
		k.updateMirror(ctx, u)
		return
	}
	w := k.worker(pod.UID)
	if u.Removed {
		if k.writer != nil {
			k.writer.Forget(pod.UID)
		}
		if w != nil {
			w.back = nil
			w.forget()
		}
		return
	}
	if k.writer != nil && !u.IsStatic() {
		k.writer.Known(pod)
	}
	if w != nil {
		if w.request().removed {
			// The manifest of a static pod that is still ending is back.
			w.back = &u
			return
		}
		w.set(pod)
		return
	}
	klog.FromContext(ctx).V(2).Info("Got pod", "pod", klog.KObj(pod), "podUID", pod.UID, "source", u.Source)
	w = newWorker(k, pod)
	if w.static = u.IsStatic(); w.static {
		// A changed manifest is a new pod, which may need the ports and the
		// mirror of the one before it.
		if before := k.static(pod.Namespace + "/" + pod.Name); before != nil {
			w.after = before.done
		}
	}
	if pod.Status.StartTime == nil && pod.DeletionTimestamp == nil && !w.static {
		rejection := admit.Sysctls(pod, k.config.Configuration.AllowedUnsafeSysctls)
		if rejection == nil && spec.NeedsAppArmor(pod) {
			rejection = admit.AppArmor(func(path string) ([]byte, error) { return k.config.Files.ReadFile(path, maxHostFile) })
		}
		if rejection == nil {
			rejection = admit.Pressure(pod, podutil.QOSClass(pod), k.pressure().conditions())
		}
		if rejection == nil {
			rejection = admit.Check(pod, k.nodeObject(), k.active(), k.nodeFacts().Allocatable)
		}
		if rejection != nil {
			w.rejected, w.failed = true, &status.Cause{Reason: rejection.Reason, Message: status.RejectedPrefix + rejection.Message}
			k.recorder.Event(pod, v1.EventTypeWarning, rejection.Reason, rejection.Message)
		}
		for _, port := range admit.ReservedPorts(pod, k.config.ReservedPorts) {
			k.recorder.Eventf(pod, v1.EventTypeWarning, "HostPortConflict", "The cluster itself serves on port %d of the node: connections to it do not reach this pod; choose another hostPort", port)
		}
	}
	if !w.static && status.WasRejected(pod) {
		w.rejected, w.failed = true, &status.Cause{Reason: pod.Status.Reason, Message: pod.Status.Message}
	}
	launch(w)
}

// updateMirror keeps what is known of the API server's image of a static pod.
func (k *Kubelet) updateMirror(ctx context.Context, u source.Update) {
	pod := u.Pod
	name := pod.Namespace + "/" + pod.Name
	k.mu.Lock()
	if u.Removed {
		if known := k.mirrors[name]; known != nil && known.UID == pod.UID {
			delete(k.mirrors, name)
		}
	} else {
		k.mirrors[name] = pod
	}
	k.mu.Unlock()
	if u.Removed {
		k.writer.Forget(pod.UID)
	} else {
		k.writer.Known(pod)
	}
	if w := k.static(name); w != nil {
		w.nudge()
	}
}

// static returns the worker of the static pod of that name: of a changed pod
// the one that all others must end before.
func (k *Kubelet) static(name string) *worker {
	var same []*worker
	awaited := map[chan struct{}]bool{}
	for _, w := range k.list() {
		if pod := w.current(); w.static && pod.Namespace+"/"+pod.Name == name {
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

func (k *Kubelet) mirrorOf(pod *v1.Pod) *v1.Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mirrors[pod.Namespace+"/"+pod.Name]
}

// active are the admitted pods that have not ended.
func (k *Kubelet) active() []*v1.Pod {
	var out []*v1.Pod
	for _, w := range k.list() {
		if pod, ok := w.occupies(); ok {
			out = append(out, pod)
		}
	}
	return out
}

// housekeep removes what is left of pods that are gone.
func (k *Kubelet) housekeep(ctx context.Context) {
	for _, uid := range k.volumes.Known() {
		if k.worker(uid) != nil {
			continue
		}
		summaries, err := cri.Observe(ctx, k.runtime, uid)
		if err != nil || len(summaries.Running()) > 0 {
			continue
		}
		if err := k.volumes.TearDown(uid); err != nil {
			klog.FromContext(ctx).Error(err, "Cleaning up after a pod that is gone failed, will try again", "podUID", uid)
		}
	}
	k.mu.Lock()
	var orphans []*v1.Pod
	for _, mirror := range k.mirrors {
		orphans = append(orphans, mirror)
	}
	k.mu.Unlock()
	for _, mirror := range orphans {
		if k.static(mirror.Namespace+"/"+mirror.Name) == nil {
			if err := k.mirror.Delete(ctx, mirror); err != nil {
				klog.FromContext(ctx).Error(err, "Deleting a mirror pod without its static pod failed, will try again", "pod", klog.KObj(mirror))
			}
		}
	}
}
