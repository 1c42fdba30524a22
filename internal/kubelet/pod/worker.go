package pod

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/source"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/timespan"
)

// worker takes care of one pod in a goroutine of its own:
//
//	          ┌─────────┐ deleted, failed, finished  ┌─────────────┐ nothing runs ┌────────────┐
//	new pod ─►│ syncing │───────────────────────────►│ terminating │─────────────►│ terminated │─► gone from
//	          └─────────┘                            └─────────────┘              └────────────┘   the sources
type worker struct {
	inbox
	config  *Config
	metrics *metrics
	runtime *kuberuntime
	peers   peers

	uid    types.UID
	orphan bool           // no source has the pod
	after  chan struct{}  // closed once the worker may begin; nil: at once
	done   chan struct{}  // closed once run has returned
	again  *source.Update // of the pod after its removal; the sync loop's own

	// The goroutine's own.
	retries  retries
	resizing []v1.PodCondition
	failures int
	outdated int       // looks since the volumes were last brought up to date
	showFrom time.Time // when the last status may be written; zero: it was
}

// peers are what a worker asks of the others.
type peers interface {
	Active() []*v1.Pod
	mirrorOf(pod *v1.Pod) *v1.Pod
}

func (ws *Workers) newWorker(pod *v1.Pod) *worker {
	return &worker{
		inbox: newInbox(pod), config: &ws.config, metrics: ws.metrics, runtime: ws.runtime, peers: ws,
		uid: pod.UID, done: make(chan struct{}), retries: newRetries(ws.config.MaxBackOff),
	}
}

// critical says whether the pod stays whatever the node is short of.
func (w *worker) critical(pod *v1.Pod) bool { return w.static || podutil.IsCritical(pod) }

// run works until the pod is gone from the node and from its source.
func (w *worker) run(ctx context.Context) {
	defer close(w.done)
	if w.after != nil {
		select {
		case <-w.after:
		case <-ctx.Done():
			return
		}
	}
	log := klog.FromContext(ctx).WithValues("pod", klog.KObj(w.current()), "podUID", w.uid)
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
		case <-w.woken:
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
			supervise.Failed(ctx, "pods", err, "Syncing the pod failed, will try again", "in", next)
		} else if err == nil {
			w.failures = 0
		}
		if err != nil && errors.Is(err, context.Canceled) {
			w.wake()
		}
		if next > 0 {
			timer.Reset(next)
		}
	}
}

// step looks at the pod once and does what is to be done. It returns when to
// look again by itself (0: never) and whether the worker's job is over.
func (w *worker) step(ctx context.Context) (next time.Duration, done bool, err error) {
	r := w.request()
	if r.ended {
		done, err = w.terminated(ctx, r)
		return 0, done, err
	}
	observed, err := w.runtime.observe(ctx, r.pod)
	if err != nil {
		return 0, false, err
	}
	w.setObserved(observed)
	if r.ending() || podutil.Ended(w.previous(r.pod).Phase) {
		done, err = w.terminate(ctx, r, observed)
		return 0, done, err
	}
	next, err = w.sync(ctx, r.pod, observed)
	return next, false, err
}

// sync brings a pod that is to run nearer to what its specification says.
func (w *worker) sync(ctx context.Context, pod *v1.Pod, observed *cri.Pod) (next time.Duration, err error) {
	if w.config.API != nil {
		w.config.API.Objects.Register(pod)
		if w.static {
			next = w.mirror(ctx, pod)
		}
	}
	w.probe(pod, observed)
	st := w.report(ctx, pod, observed, false)
	if podutil.Ended(st.Phase) {
		w.wake()
		return 0, nil
	}
	now := time.Now()
	if seconds := pod.Spec.ActiveDeadlineSeconds; seconds != nil && st.StartTime != nil {
		left := st.StartTime.Add(timespan.Seconds(*seconds)).Sub(now)
		if left <= 0 {
			w.fail(status.Cause{Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline"}, nil, nil)
			w.config.Recorder.Event(Reference(pod), v1.EventTypeNormal, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
			return 0, nil
		}
		next = sooner(next, left)
	}
	if w.takeChanged() {
		clear(w.retries.failed)
	}
	p := plan.Compute(w.input(pod, observed, now))
	next = w.retries.postpone(&p, now, next)
	work, finish := w.interruptible(ctx, -1)
	defer finish()
	err = w.apply(work, pod, observed, &p)
	if !p.Empty() || len(p.Waiting) > 0 || err != nil {
		w.recheck(ctx, pod, err != nil)
	}
	if until, ok := p.Wake(); ok {
		next = sooner(next, time.Until(until))
	}
	if until, ok := w.retries.nextPull(pod, w.config.Images); ok {
		next = sooner(next, time.Until(until))
	}
	if !w.showFrom.IsZero() {
		next = sooner(next, time.Until(w.showFrom))
	}
	if wait := w.remountAfter(); wait > 0 {
		next = sooner(next, wait)
	}
	return next, err
}

// recheck looks at what came of the work done. It stands for the looks that
// the runtime's events of that work ask for, so those are dropped first;
// whatever still is to be done afterwards wakes the worker anew. What failed
// is tried again later.
func (w *worker) recheck(ctx context.Context, pod *v1.Pod, failed bool) {
	w.drain()
	observed, err := w.runtime.observe(ctx, pod)
	if err != nil {
		w.wake()
		return
	}
	w.setObserved(observed)
	w.probe(pod, observed)
	st := w.report(ctx, pod, observed, false)
	now := time.Now()
	p := plan.Compute(w.input(pod, observed, now))
	w.retries.postpone(&p, now, 0)
	if podutil.Ended(st.Phase) || !p.Empty() && !failed || w.superseded(pod) {
		w.wake()
	}
}

// mirror makes the static pod's mirror, and returns when to try again.
func (w *worker) mirror(ctx context.Context, pod *v1.Pod) (next time.Duration) {
	mirror := w.peers.mirrorOf(pod)
	if next = source.Rest(mirror, time.Now()); next > 0 {
		return next
	}
	node := w.config.NodeStatus.Node()
	if node == nil {
		return 0 // the mirror belongs to the node; its registration wakes the worker
	}
	if err := w.config.API.Mirrors.Ensure(ctx, pod, mirror, node); err != nil {
		klog.FromContext(ctx).Error(err, "The static pod has no mirror yet, will try again")
		return mirrorRetry
	}
	return 0
}

// mirrorRetry is when a mirror that could not be made is tried again.
const mirrorRetry = time.Second

func (w *worker) input(pod *v1.Pod, observed *cri.Pod, now time.Time) plan.Input {
	return plan.Input{
		Pod: pod, Observed: observed, Now: now,
		Liveness: func(id string) plan.Result { return w.probeResult(id, probe.Liveness) },
		Startup:  func(id string) plan.Result { return w.probeResult(id, probe.Startup) },
		NotBefore: func(c *v1.Container, finished time.Time) (time.Time, time.Duration) {
			return w.retries.restarts.Until(backOffKey(c), finished)
		},
		Resized: func(c *v1.Container, running *cri.Container) bool { return w.resizeRestarts(pod, c, running) },
	}
}
