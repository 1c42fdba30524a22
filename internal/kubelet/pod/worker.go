package pod

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/admit"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/source"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/timespan"
	"github.com/coracle-io/coracle/internal/wallclock"
)

// worker manages one pod in a goroutine of its own:
//
//	          ┌─────────┐ deleted, failed, finished  ┌─────────────┐ nothing runs ┌────────────┐
//	new pod ─►│ syncing │───────────────────────────►│ terminating │─────────────►│ terminated │─► gone from
//	          └─────────┘                            └─────────────┘              └────────────┘   the sources
type worker struct {
	inbox   inbox
	config  *Config
	metrics *metrics
	runtime *kuberuntime
	peers   peers
	watched *watchers

	uid    types.UID
	orphan bool           // no source has the pod
	after  chan struct{}  // closed once the worker may start; nil: at once
	done   chan struct{}  // closed once run has returned
	room   room           // of pods that were evicted for this one
	again  *source.Update // update of the pod since its removal; used by the sync loop only

	freeing sync.Mutex // held while the pod's containers and logs are removed

	mirroring      atomic.Bool  // the mirror pod is being written
	mirrorFailures atomic.Int32 // failed attempts in a row

	// Owned by the goroutine of run. While whileReporting waits for its work, the
	// goroutine of the work owns retries and outdated, and run may only read
	// retries.causes.
	retries    retries
	outdated   int         // syncs since the volumes were last up to date
	placed     bool        // the pod has its devices, CPUs and memory
	kept       bool        // the allocation file has been read or written
	asked      *allocation // by the last specification of the pod; nil before the first sync
	restarting idSet       // containers that restart for a resize
	failures   int
	times      times
	unmirrored unmirrored
	group      podGroup
}

// times are moments in the life of a pod.
type times struct {
	showFrom time.Time                    // when the last status may be written; zero: it was written
	started  wallclock.Moments[types.UID] // when the pod's start time was, for its deadline
}

// peers gives a worker access to the other pods.
type peers interface {
	Active() []*v1.Pod
	// list returns the workers of all pods.
	list() []*worker
	// allocating calls decide while no other pod is admitted or resized.
	allocating(decide func())
	mirrorOf(pod *v1.Pod) *v1.Pod
}

func (ws *Workers) newWorker(pod *v1.Pod) *worker {
	return &worker{
		inbox: newInbox(pod), config: &ws.config, metrics: ws.metrics, runtime: ws.runtime, peers: ws, watched: &ws.watchers,
		uid: pod.UID, done: make(chan struct{}), retries: newRetries(ws.config.Features, ws.config.Node.Configuration.CrashLoopBackOff.MaxContainerRestartPeriod.Duration),
	}
}

// critical reports whether the pod is never evicted.
func (w *worker) critical(pod *v1.Pod) bool { return w.inbox.static || podquery.IsCritical(pod) }

// run syncs the pod until it is gone from the node and from its source.
func (w *worker) run(ctx context.Context) {
	defer close(w.done)
	if w.after != nil {
		select {
		case <-w.after:
		case <-ctx.Done():
			return
		}
	}
	w.room.wait(ctx)
	log := klog.FromContext(ctx).WithValues("pod", klog.KObj(w.inbox.current()), "podUID", w.uid)
	ctx = klog.NewContext(ctx, log)
	if w.config.API != nil {
		defer w.config.API.Objects.Forget(w.uid)
	}
	defer w.config.Probes.Forget(w.uid)
	defer w.config.Images.Forget(string(w.uid))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.inbox.woken:
		case <-timer.C:
		}
		began := time.Now()
		var next time.Duration
		var done bool
		err := supervise.Call(func() (err error) {
			next, done, err = w.step(ctx)
			return err
		})
		w.metrics.workerDuration.WithLabelValues("sync").Observe(time.Since(began).Seconds())
		if done || ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			w.failures++
			next = sooner(next, retryAfter(w.failures))
			supervise.LogFailure(ctx, "pods", err, "Syncing the pod failed, will try again", "in", next)
		} else if err == nil {
			w.failures = 0
		}
		if err != nil && errors.Is(err, context.Canceled) {
			w.inbox.wake()
		}
		if next > 0 {
			timer.Reset(next)
		}
	}
}

// step syncs the pod once. It returns when to sync again without an event (0:
// never) and whether the worker is done.
func (w *worker) step(ctx context.Context) (next time.Duration, done bool, err error) {
	drain(w.inbox.probed) // what is reported now has the newest results
	r := w.inbox.request()
	if r.ended {
		err = w.config.traced(ctx, "syncTerminatedPod", r.pod, func(ctx context.Context) (err error) {
			done, err = w.terminated(ctx, r)
			return err
		})
		return 0, done, err
	}
	observed, err := w.runtime.observe(ctx, r.pod)
	if err != nil {
		return 0, false, err
	}
	if w.orphan && w.inbox.lastObserved() == nil {
		if owned, err := w.owned(observed); err != nil || !owned {
			return 0, err == nil, err
		}
		if len(observed.Running()) > 0 || observed.ReadySandbox() != nil {
			w.metrics.orphanedPods.Inc()
		}
		klog.FromContext(ctx).Info("Ending a pod that no source knows")
	}
	w.metrics.ended(r.pod, w.inbox.setObserved(observed), observed, w.runtime.started)
	if r.ending() || podquery.Ended(w.previous(r.pod).Phase) {
		err = w.config.traced(ctx, "syncTerminatingPod", r.pod, func(ctx context.Context) (err error) {
			done, err = w.terminate(ctx, r, observed)
			return err
		})
		return 0, done, err
	}
	if admitted, err := w.place(ctx, r.pod, observed); err != nil || !admitted {
		w.inbox.wake()
		return 0, false, err
	}
	err = w.config.traced(ctx, "syncPod", r.pod, func(ctx context.Context) (err error) {
		next, err = w.sync(ctx, r.pod, w.allocate(ctx, r.pod), observed)
		return err
	})
	return next, false, err
}

// place gives the pod its devices, CPUs and memory, and reports whether the node
// admits the pod. Device plugins take part, so this is not part of the admission
// by the sync loop. It returns early if the pod is to end.
func (w *worker) place(ctx context.Context, pod *v1.Pod, observed *cri.Pod) (bool, error) {
	if w.placed {
		return true, nil
	}
	work, finish := w.inbox.interruptible(ctx, -1)
	defer finish()
	rejection := w.config.Placement.Admit(work, pod, func(container string) bool {
		c := observed.Find(container)
		return c != nil && c.State == cri.Running
	})
	if rejection == nil {
		w.placed = true
		return true, nil
	}
	if work.Err() != nil {
		return false, ctx.Err()
	}
	w.refuse(pod, observed, rejection)
	return false, nil
}

// refuse makes a pod end as Failed that the node cannot run after all.
func (w *worker) refuse(pod *v1.Pod, observed *cri.Pod, rejection *admit.Rejection) {
	cause := status.Cause{Reason: rejection.Reason, Message: status.RejectedPrefix + rejection.Message}
	if pod.Status.StartTime == nil && len(observed.Running()) == 0 {
		w.inbox.reject(cause)
	} else {
		w.inbox.fail(cause, nil, nil)
	}
	w.metrics.rejected(rejection.Reason)
	w.config.Recorder.Event(Reference(pod), v1.EventTypeWarning, rejection.Reason, rejection.Message)
}

// owned reports whether what is left of an orphan is this kubelet's. Another one
// may use the same runtime or the same directory of logs.
func (w *worker) owned(observed *cri.Pod) (bool, error) {
	for _, s := range observed.Sandboxes {
		if s.Root != "" {
			return s.Root == w.config.Node.RootDirectory, nil
		}
	}
	if _, err := w.config.Files.Stat(w.config.Volumes.PodDir(w.uid)); !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	// Kubelets of earlier versions have not marked what they made.
	for _, c := range observed.Containers {
		for _, m := range c.Mounts {
			if _, ok := files.Beneath(w.config.Volumes.PodDir(w.uid), m.GetHostPath()); ok {
				return true, nil
			}
		}
	}
	pod := w.inbox.current()
	if pod.Name == "" { // only its directory was known
		return false, nil
	}
	logs := spec.PodLogDirectory(w.config.Node.Configuration.PodLogsDir, pod.Namespace, pod.Name, string(w.uid))
	root, err := w.config.Files.ReadFile(filepath.Join(logs, logOwner), maxLogOwner)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return string(root) == w.config.Node.RootDirectory, err
}

// logOwner is the file in the log directory of a pod with the root directory of
// the kubelet that made it.
const (
	logOwner    = ".kubelet-root"
	maxLogOwner = 4096
)

// sync brings a pod that is to run closer to its specification. pod is the
// requested one with its allocated resources.
func (w *worker) sync(ctx context.Context, requested, pod *v1.Pod, observed *cri.Pod) (next time.Duration, err error) {
	if w.config.API != nil {
		w.config.API.Objects.Register(pod)
		if w.inbox.static {
			next = w.mirror(ctx, pod)
		}
	}
	w.probe(pod, observed)
	st := w.report(ctx, pod, observed, false)
	if podquery.Ended(st.Phase) {
		w.inbox.wake()
		return 0, nil
	}
	now := time.Now()
	if seconds := pod.Spec.ActiveDeadlineSeconds; seconds != nil && st.StartTime != nil {
		left := w.times.started.At(w.uid, st.StartTime.Time, now).Add(timespan.Seconds(*seconds)).Sub(now)
		if left <= 0 {
			w.inbox.fail(status.Cause{Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline"}, nil, nil)
			w.config.Recorder.Event(Reference(pod), v1.EventTypeNormal, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
			return 0, nil
		}
		next = sooner(next, left)
	}
	if w.inbox.takeChanged() {
		clear(w.retries.failed)
	}
	p := plan.Compute(w.input(pod, observed, now))
	next = w.retries.postpone(&p, now, next)
	if p.CreateSandbox && !w.config.hasNetwork(pod, &w.retries.networkTold) {
		return sooner(next, networkPeriod), nil
	}
	work, finish := w.inbox.interruptible(ctx, -1)
	defer finish()
	err = w.whileReporting(ctx, pod, w.inbox.probed, func() error { return w.apply(work, pod, observed, &p) })
	if err != nil && work.Err() != nil { // the pod is to end
		err = context.Canceled
	}
	if !p.Empty() || len(p.Waiting) > 0 || err != nil {
		w.recheck(ctx, requested, pod, err != nil)
	}
	if until, ok := p.Wake(); ok {
		next = sooner(next, time.Until(until))
	}
	if until, ok := w.retries.nextPull(pod, w.config.Images); ok {
		next = sooner(next, time.Until(until))
	}
	if !w.times.showFrom.IsZero() {
		next = sooner(next, time.Until(w.times.showFrom))
	}
	if wait := w.remountAfter(); wait > 0 {
		next = sooner(next, wait)
	}
	return next, err
}

// recheck observes the result of the work that was just done. It replaces the
// syncs for which the runtime's events of that work ask, so it discards them
// first. It wakes the worker if there is more to do. Failed work is retried
// later.
func (w *worker) recheck(ctx context.Context, requested, pod *v1.Pod, failed bool) {
	drain(w.inbox.woken)
	observed, err := w.runtime.observe(ctx, pod)
	if err != nil {
		w.inbox.wake()
		return
	}
	w.metrics.ended(pod, w.inbox.setObserved(observed), observed, w.runtime.started)
	w.probe(pod, observed)
	st := w.report(ctx, pod, observed, false)
	now := time.Now()
	p := plan.Compute(w.input(pod, observed, now))
	w.retries.postpone(&p, now, 0)
	if podquery.Ended(st.Phase) || !p.Empty() && !failed || w.inbox.superseded(requested) || w.inbox.resizes() {
		w.inbox.wake()
	}
}

// mirror makes the API server show a static pod as it is now, and returns when
// to look again. It does not wait for the API server, which may be this pod.
func (w *worker) mirror(ctx context.Context, pod *v1.Pod) (next time.Duration) {
	mirror, now := w.peers.mirrorOf(pod), time.Now()
	if mirror != nil && mirror.DeletionTimestamp != nil && w.unmirrored.mirror != mirror.UID {
		w.unmirrored = unmirrored{mirror: mirror.UID, seen: now}
	}
	if next = source.RecreateDelay(mirror, w.unmirrored.seen, now); next > 0 {
		return next
	}
	node := w.config.NodeStatus.Node()
	if node == nil || source.IsMirrorOf(mirror, pod) {
		return 0 // the mirror belongs to the node; its registration wakes the worker
	}
	if !w.mirroring.Swap(true) {
		w.runtime.background.Go(ctx, func() {
			defer w.mirroring.Store(false)
			attempt, cancel := context.WithTimeout(ctx, mirrorTimeout)
			defer cancel()
			err := supervise.Call(func() error { return w.config.API.Mirrors.Ensure(attempt, pod, mirror, node) })
			if err == nil {
				w.mirrorFailures.Store(0)
			} else if ctx.Err() == nil {
				w.mirrorFailures.Add(1)
				supervise.LogFailure(ctx, "mirror pods", err, "Creating the mirror pod failed, will try again")
			}
		})
	}
	return retryAfter(1 + int(w.mirrorFailures.Load()))
}

// unmirrored is the deletion of a mirror pod by another client.
type unmirrored struct {
	mirror types.UID
	seen   time.Time
}

// mirrorTimeout bounds one attempt to create a mirror pod.
const mirrorTimeout = 10 * time.Second

// input returns the snapshot that the plan is computed from.
func (w *worker) input(pod *v1.Pod, observed *cri.Pod, now time.Time) plan.Input {
	return plan.Input{
		Pod: pod, Observed: observed, Now: now,
		Liveness: func(id string) plan.Result { return w.probeResult(id, probe.Liveness) },
		Startup:  func(id string) plan.Result { return w.probeResult(id, probe.Startup) },
		NotBefore: func(c *v1.Container, finished time.Time) (time.Time, time.Duration) {
			return w.retries.restarts.Until(backOffKey(c), finished, now)
		},
		Resized: func(c *v1.Container, running *cri.Container) bool { return w.resizeRestarts(pod, c, running) },
	}
}
