package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/pace"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Manager writes the statuses of pods. It writes a status at once. While a
// write of the same pod is in flight, later statuses replace each other, and
// the last one is written next. So do those of a pod that changes all the time,
// which are written in turns. Its methods may be called from any goroutine.
type Manager struct {
	client  kubernetes.Interface
	removed func(uid types.UID)

	mu      sync.Mutex // guards entries and closed
	entries map[types.UID]*entry
	closed  bool
	writing supervise.WaitGroup
}

// entry holds the status to write for one pod, and the state of writing it.
type entry struct {
	pod      *v1.Pod // the newest known object of the API server, as identified returns it
	status   v1.PodStatus
	dirty    bool // status has to be written
	remove   bool // the pod is deleted after that
	reduced  bool // the kubelet keeps no more of the pod than how it ended
	inFlight bool // a goroutine writes
	failures int
	pace     pace.Pace // of the writes
}

// A pod can change all the time: its containers choose the results of their probes. After
// a burst of writes, one is written in each period. Its end does not wait for longer.
const (
	writeBurst  = 32
	writePeriod = time.Second
)

// turn counts a write, or returns how long it has to wait.
func (e *entry) turn(now time.Time) (wait time.Duration) {
	if e.remove || podquery.Ended(e.status.Phase) {
		e.pace.Count(now, writePeriod)
		return 0
	}
	return e.pace.Take(now, writeBurst, writePeriod)
}

// NewManager returns a Manager. It calls removed with the UID of each pod that
// it has deleted or found missing.
func NewManager(client kubernetes.Interface, removed func(uid types.UID)) *Manager {
	return &Manager{client: client, removed: removed, entries: make(map[types.UID]*entry)}
}

// Run waits until ctx ends, and then for the writes in flight. Nothing is
// written after that.
func (w *Manager) Run(ctx context.Context) {
	<-ctx.Done()
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.writing.Wait()
}

// Known records a newer object of the API server.
func (w *Manager) Known(pod *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.entries[pod.UID]; e != nil && newer(pod, e.pod) {
		e.pod, e.reduced = identified(pod), IsReduced(pod)
		w.release(pod.UID, e)
	}
}

// release drops the status of a reduced pod once it is written: the object of the API
// server has what is kept of it. w.mu is held.
func (w *Manager) release(uid types.UID, e *entry) {
	if e.reduced && !e.inFlight && !e.dirty && !e.remove {
		delete(w.entries, uid)
	}
}

// identified returns what the Manager needs of a pod: not its specification, which may
// be large. The answer to a write would otherwise stay whole in memory as long as its
// pod.
func identified(pod *v1.Pod) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion},
		Status:     pod.Status,
	}
}

// Last returns the status of the last call of Set, if any.
func (w *Manager) Last(uid types.UID) (v1.PodStatus, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.entries[uid]; e != nil {
		return e.status, true
	}
	return v1.PodStatus{}, false
}

// Set makes status the pod's status, also where another writer has changed a
// condition of the kubelet since. With remove, the pod is deleted from the API
// server after that.
func (w *Manager) Set(ctx context.Context, pod *v1.Pod, status v1.PodStatus, remove bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[pod.UID]
	if e == nil {
		e = &entry{pod: identified(pod), dirty: true, reduced: IsReduced(pod)}
		w.entries[pod.UID] = e
	} else if !equality.Semantic.DeepEqual(e.status, status) || overwritten(e.pod.Status, status) {
		e.dirty = true
	}
	e.status = status
	e.remove = e.remove || remove
	w.startWriting(ctx, pod.UID, e)
}

// overwritten reports whether another writer changed the phase or a condition that
// the kubelet owns. The control plane does so for a node that is not heartbeating.
func overwritten(api, own v1.PodStatus) bool {
	if api.Phase != own.Phase {
		return true
	}
	for _, c := range own.Conditions {
		if isOwned(c.Type) && slices.ContainsFunc(api.Conditions, func(a v1.PodCondition) bool {
			return a.Type == c.Type && a.Status != c.Status
		}) {
			return true
		}
	}
	return false
}

// Forget drops everything about a pod that the API server no longer has.
func (w *Manager) Forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.entries, uid)
}

// startWriting writes in a goroutine if there is something to write and no
// write is in flight. w.mu is held.
func (w *Manager) startWriting(ctx context.Context, uid types.UID, e *entry) {
	if e.inFlight || w.closed || !(e.dirty || e.remove) {
		return
	}
	e.inFlight = true
	w.writing.Go(ctx, func() { w.write(ctx, uid, e) })
}

// write writes until nothing is left to write or ctx ends. It retries failed
// writes.
func (w *Manager) write(ctx context.Context, uid types.UID, e *entry) {
	log := klog.FromContext(ctx)
	for {
		w.mu.Lock()
		if ctx.Err() != nil || w.entries[uid] != e || !(e.dirty || e.remove) {
			e.inFlight = false
			if w.entries[uid] == e {
				w.release(uid, e)
			}
			w.mu.Unlock()
			return
		}
		if wait := e.turn(time.Now()); wait > 0 {
			w.mu.Unlock()
			supervise.Pause(ctx, wait)
			continue
		}
		pod, status, dirty, remove := e.pod, e.status, e.dirty, e.remove
		e.dirty = false
		w.mu.Unlock()

		var err error
		written := pod
		if dirty {
			err = supervise.Call(func() (err error) {
				written, err = w.patch(ctx, pod, status)
				return err
			})
			if panicked := new(supervise.Panic); errors.As(err, &panicked) {
				supervise.LogFailure(ctx, "statuses", err, "will try again")
			}
		}
		refused := isRefused(err)
		if refused && remove {
			log.Error(err, "Deleting a pod whose last status the API server refuses", "pod", klog.KObj(pod))
			err = nil
		}
		if err == nil && remove {
			zero := int64(0)
			err = w.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
				GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &pod.UID}})
		}
		switch {
		case err == nil && !remove:
			w.mu.Lock()
			if newer(written, e.pod) {
				e.pod = identified(written)
			}
			e.failures = 0
			w.mu.Unlock()
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err) && w.replaced(ctx, pod):
			log.V(3).Info("Pod is gone from the API server", "pod", klog.KObj(pod), "podUID", uid)
			w.Forget(uid)
			w.removed(uid)
			return
		default:
			w.mu.Lock()
			e.dirty = e.dirty || dirty
			e.failures++
			wait := retryAfter(e.failures, refused)
			w.mu.Unlock()
			if ctx.Err() == nil {
				log.Error(err, "Writing the pod's status failed, will try again", "pod", klog.KObj(pod), "in", wait)
			}
			supervise.Pause(ctx, wait)
		}
	}
}

// isRefused reports whether the API server would not take the same status later either:
// it is too large, or invalid.
func isRefused(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// retryAfter returns how long to wait after so many failures in a row.
func retryAfter(failures int, refused bool) time.Duration {
	step, most := 200*time.Millisecond, 5*time.Second
	if refused {
		step, most = 5*time.Second, 5*time.Minute
	}
	return min(time.Duration(failures)*step, most)
}

// replaced reports whether the pod's name now belongs to another pod or to
// none.
func (w *Manager) replaced(ctx context.Context, pod *v1.Pod) bool {
	now, err := w.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID
}

// patch writes the difference between the known object and the status. It
// returns the object that the API server has then.
func (w *Manager) patch(ctx context.Context, pod *v1.Pod, status v1.PodStatus) (*v1.Pod, error) {
	// The conditions of other writers may be newer than those in status.
	patch, err := Patch(pod, WithForeign(status, pod.Status))
	if err != nil || patch == nil {
		return pod, err
	}
	updated, err := w.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return pod, fmt.Errorf("patch the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return updated, nil
}

// Patch returns the strategic merge patch from the pod's status to the given
// one, with the pod's UID as a precondition. It returns nil if the statuses are
// equal.
func Patch(pod *v1.Pod, status v1.PodStatus) ([]byte, error) {
	if equality.Semantic.DeepEqual(pod.Status, status) {
		return nil, nil
	}
	before, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1.Pod{Status: pod.Status})
	if err != nil {
		return nil, err
	}
	after, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Status: status})
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergeMapPatch(before, after, v1.Pod{})
	if _, differs := patch["status"]; !differs || err != nil {
		return nil, err
	}
	return json.Marshal(patch)
}

// WithForeign returns own with the conditions of other writers as api has them. Of
// DisruptionTarget, which several write, own keeps the kubelet's: another writer may
// have reset what it has set before.
func WithForeign(own, api v1.PodStatus) v1.PodStatus {
	var list []v1.PodCondition
	for _, c := range own.Conditions {
		if isOwned(c.Type) || c.Type == v1.DisruptionTarget && c.Reason == v1.PodReasonTerminationByKubelet {
			list = append(list, c)
		}
	}
	for _, c := range api.Conditions {
		known := slices.ContainsFunc(list, func(o v1.PodCondition) bool { return o.Type == c.Type })
		if !isOwned(c.Type) && !known {
			list = append(list, c)
		}
	}
	own.Conditions = list
	return own
}

// newer reports whether a is at least as new as b. Objects whose resource
// versions are not numbers count as newer.
func newer(a, b *v1.Pod) bool {
	x, errA := strconv.ParseUint(a.ResourceVersion, 10, 64)
	y, errB := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return errA != nil || errB != nil || x >= y
}

// Removing reports whether Set was called with remove for the pod.
func (w *Manager) Removing(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[uid]
	return e != nil && e.remove
}
