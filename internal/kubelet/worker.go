package kubelet

import (
	"context"
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/source"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/timespan"
)

// worker takes care of one pod in a goroutine of its own:
//
//	          ┌─────────┐ deleted, failed, finished  ┌───────────┐ nothing runs ┌───────┐
//	new pod ─►│ syncing │───────────────────────────►│ terminating│────────────►│ ended │─► gone from
//	          └─────────┘                            └───────────┘              └───────┘   the sources
type worker struct {
	k      *Kubelet
	uid    types.UID
	orphan bool          // no source has the pod
	static bool          // the pod comes from a manifest, says its source
	mail   chan struct{} // something may have changed
	after  chan struct{} // closed once the worker may begin; nil: at once
	done   chan struct{} // closed once run has returned

	mu        sync.Mutex // guards what follows
	pod       *v1.Pod
	removed   bool           // the source no longer has the pod
	failed    *status.Cause  // why the pod must end as Failed
	back      *source.Update // of the pod after its removal; the loop's own
	rejected  bool           // failed is why the node did not take it; set before run
	grace     *int64         // overrides the pod's grace period, for evictions
	target    *v1.PodCondition
	ended     bool
	observed  *cri.Pod
	interrupt context.CancelFunc // of what is under way
	killing   int64              // the grace period of the killing under way, -1 for none
	changed   bool               // what the pod is made of is not what it was

	// The goroutine's own.
	backoff  plan.BackOff
	waiting  map[string]status.Cause
	resizing []v1.PodCondition
	failures int
	outdated int             // looks since the volumes were last brought up to date
	hold     map[string]hold // what failed to start, by container
	showFrom time.Time       // when the last status may be written; zero: it was
}

// hold keeps the worker from trying what failed again with every event.
type hold struct {
	until    time.Time
	failures int
}

func newWorker(k *Kubelet, pod *v1.Pod) *worker {
	maximum := k.config.Configuration.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
	return &worker{
		k: k, uid: pod.UID, pod: pod, mail: make(chan struct{}, 1), done: make(chan struct{}), killing: -1,
		backoff: plan.BackOff{Initial: min(10*time.Second, maximum), Max: maximum},
		waiting: make(map[string]status.Cause), hold: make(map[string]hold),
	}
}

// refresh is nudge after a change of what the pod is made of: whatever failed
// before is tried again at once.
func (w *worker) refresh() {
	w.mu.Lock()
	w.changed = true
	w.mu.Unlock()
	w.nudge()
}

// release returns whether the worker was told to try everything again.
func (w *worker) release() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := w.changed
	w.changed = false
	return changed
}

func (w *worker) nudge() {
	select {
	case w.mail <- struct{}{}:
	default:
	}
}

// set gives the worker the pod's newest version. A deletion interrupts what
// is under way, and so does one that leaves less time than the last.
func (w *worker) set(pod *v1.Pod) {
	w.mu.Lock()
	if w.static {
		pod.Status = w.pod.Status
	}
	w.changed = w.changed || w.pod.Generation != pod.Generation
	w.pod = pod
	w.stopWork()
	w.mu.Unlock()
	w.nudge()
}

// forget tells the worker that the source has dropped the pod.
func (w *worker) forget() {
	w.mu.Lock()
	w.removed = true
	w.stopWork()
	w.mu.Unlock()
	w.nudge()
}

// evict ends the pod as Failed, within grace seconds if not nil.
func (w *worker) evict(cause status.Cause, grace *int64, target *v1.PodCondition) {
	w.mu.Lock()
	if w.failed == nil {
		w.failed, w.grace, w.target = &cause, grace, target
	}
	w.stopWork()
	w.mu.Unlock()
	w.nudge()
}

// stopWork is called with the lock held.
func (w *worker) stopWork() {
	ending := w.removed || w.failed != nil || w.pod.DeletionTimestamp != nil
	if !ending || w.interrupt == nil {
		return
	}
	if w.killing < 0 || gracePeriod(w.pod, w.grace) < w.killing {
		w.interrupt()
	}
}

// current returns the newest version of the pod.
func (w *worker) current() *v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod
}

// seen returns what was last observed of the pod, which may be nil.
func (w *worker) seen() *cri.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.observed
}

// occupies returns the pod and whether it holds resources of the node.
func (w *worker) occupies() (*v1.Pod, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	finished := podutil.IsFinished(w.pod)
	return w.pod, !w.ended && !w.removed && !(w.failed != nil && w.pod.Status.StartTime == nil) && !finished
}

// request is what is asked of the worker at one moment.
type request struct {
	pod            *v1.Pod
	removed, ended bool
	failed         *status.Cause
	grace          *int64
}

func (w *worker) request() request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return request{pod: w.pod, removed: w.removed, ended: w.ended, failed: w.failed, grace: w.grace}
}

// begin makes a context that set, forget and evict can end.
func (w *worker) begin(ctx context.Context, killing int64) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	w.interrupt, w.killing = cancel, killing
	w.mu.Unlock()
	return ctx, func() {
		w.mu.Lock()
		w.interrupt, w.killing = nil, -1
		w.mu.Unlock()
		cancel()
	}
}

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
	log := klog.FromContext(ctx).WithValues("pod", klog.KObj(w.pod), "podUID", w.uid)
	ctx = klog.NewContext(ctx, log)
	if w.k.objects != nil {
		defer w.k.objects.Forget(w.uid)
	}
	defer w.k.prober.Forget(w.uid)
	defer w.k.puller.Forget(string(w.uid))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.mail:
		case <-timer.C:
		}
		began := time.Now()
		var next time.Duration
		var done bool
		err := supervise.Call(func() (err error) {
			next, done, err = w.step(ctx)
			return err
		})
		w.k.metrics.podWorker.WithLabelValues("sync").Observe(time.Since(began).Seconds())
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
			w.nudge()
		}
		if next > 0 {
			timer.Reset(next)
		}
	}
}

// retryAfter waits longer the more often something failed: half a second at
// first, ten at most.
func retryAfter(failures int) time.Duration {
	return min(500*time.Millisecond<<min(failures-1, 5), 10*time.Second)
}

// step looks at the pod once and does what is to be done. It returns when to
// look again by itself (0: never) and whether the worker's job is over.
func (w *worker) step(ctx context.Context) (next time.Duration, done bool, err error) {
	r := w.request()
	if r.ended {
		return w.afterEnd(ctx, r)
	}
	observed, err := w.k.observe(ctx, r.pod)
	if err != nil {
		return 0, false, err
	}
	w.see(observed)
	if r.removed || r.failed != nil || r.pod.DeletionTimestamp != nil {
		done, err = w.terminate(ctx, r, observed)
		return 0, done, err
	}
	if podutil.Ended(w.previous(r.pod).Phase) {
		done, err = w.terminate(ctx, r, observed)
		return 0, done, err
	}
	return w.sync(ctx, r, observed)
}

func (w *worker) see(observed *cri.Pod) {
	w.mu.Lock()
	w.observed = observed
	w.mu.Unlock()
}

// sync brings a pod that is to run nearer to what its specification says.
func (w *worker) sync(ctx context.Context, r request, observed *cri.Pod) (next time.Duration, done bool, err error) {
	k, pod := w.k, r.pod
	if k.objects != nil {
		k.objects.Register(pod)
	}
	if w.static && k.mirror != nil {
		// The mirror belongs to the node; nodeChanged wakes the worker.
		mirror := k.mirrorOf(pod)
		next = source.Rest(mirror, time.Now())
		if node := k.nodeObject(); node != nil && next == 0 {
			if err := k.mirror.Ensure(ctx, pod, mirror, node); err != nil {
				klog.FromContext(ctx).Error(err, "The static pod has no mirror yet, will try again")
				next = mirrorRetry
			}
		}
	}
	w.probes(pod, observed)
	st := w.report(ctx, pod, observed, false)
	if podutil.Ended(st.Phase) {
		w.nudge()
		return 0, false, nil
	}
	now := time.Now()
	if seconds := pod.Spec.ActiveDeadlineSeconds; seconds != nil && st.StartTime != nil {
		left := st.StartTime.Add(timespan.Seconds(*seconds)).Sub(now)
		if left <= 0 {
			w.evict(status.Cause{Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline"}, nil, nil)
			k.recorder.Event(reference(pod), v1.EventTypeNormal, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
			return 0, false, nil
		}
		next = sooner(next, left)
	}
	if w.release() {
		clear(w.hold)
	}
	p := plan.Compute(w.input(pod, observed, now))
	next = w.postpone(&p, now, next)
	work, finish := w.begin(ctx, -1)
	defer finish()
	err = w.apply(work, pod, observed, &p)
	if !p.Empty() || len(p.Waiting) > 0 || err != nil {
		w.settle(ctx, pod, err != nil)
	}
	if until, ok := p.Wake(); ok {
		next = sooner(next, time.Until(until))
	}
	if until, ok := w.imageRetry(pod); ok {
		next = sooner(next, time.Until(until))
	}
	if !w.showFrom.IsZero() {
		next = sooner(next, time.Until(w.showFrom))
	}
	if wait := w.remountAfter(); wait > 0 {
		next = sooner(next, wait)
	}
	return next, false, err
}

// settle looks at what came of the work done. It stands for the looks that
// the runtime's events of that work ask for, so the mail is taken out first;
// whatever still is to be done afterwards puts a new one in. What failed is
// tried again later.
func (w *worker) settle(ctx context.Context, pod *v1.Pod, failed bool) {
	select {
	case <-w.mail:
	default:
	}
	observed, err := w.k.observe(ctx, pod)
	if err != nil {
		w.nudge()
		return
	}
	w.see(observed)
	w.probes(pod, observed)
	st := w.report(ctx, pod, observed, false)
	now := time.Now()
	p := plan.Compute(w.input(pod, observed, now))
	w.postpone(&p, now, 0)
	if podutil.Ended(st.Phase) || !p.Empty() && !failed || w.superseded(pod) {
		w.nudge()
	}
}

// superseded says whether more is asked of the worker than to run this version
// of the pod.
func (w *worker) superseded(pod *v1.Pod) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod != pod || w.removed || w.failed != nil || w.changed
}

// postpone takes out of the plan what failed a short while ago.
func (w *worker) postpone(p *plan.Plan, now time.Time, next time.Duration) time.Duration {
	kept := p.Start[:0]
	for _, s := range p.Start {
		if h := w.hold[s.Container.Name]; now.Before(h.until) {
			next = sooner(next, h.until.Sub(now))
			continue
		}
		kept = append(kept, s)
	}
	p.Start = kept
	if h := w.hold[wholePod]; now.Before(h.until) && p.CreateSandbox {
		p.CreateSandbox, p.KillPod, p.Start = false, false, nil
		next = sooner(next, h.until.Sub(now))
	}
	return next
}

// mirrorRetry is when a mirror that could not be made is tried again.
const mirrorRetry = time.Second

// wholePod is the key of hold for the sandbox.
const wholePod = ""

// failedToStart makes the worker wait before it tries the same again.
func (w *worker) failedToStart(name string) {
	h := w.hold[name]
	h.failures++
	h.until = time.Now().Add(retryAfter(h.failures))
	w.hold[name] = h
}

// sooner returns the shorter of two waits, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	b = max(b, time.Millisecond)
	if a == 0 {
		return b
	}
	return min(a, b)
}

// imageRetry is when the first of the images that a container waits for is
// pulled again: its own, or one that it mounts.
func (w *worker) imageRetry(pod *v1.Pod) (earliest time.Time, ok bool) {
	for name, cause := range w.waiting {
		if cause.Reason != "ErrImagePull" && cause.Reason != "ImagePullBackOff" {
			continue
		}
		c := podutil.Container(&pod.Spec, name)
		if c == nil {
			continue
		}
		for _, image := range append(volumeImages(pod, c), c) {
			if until, waits := w.k.puller.Retry(image, string(pod.UID)); waits && (!ok || until.Before(earliest)) {
				earliest, ok = until, true
			}
		}
	}
	return earliest, ok
}

func (w *worker) input(pod *v1.Pod, observed *cri.Pod, now time.Time) plan.Input {
	return plan.Input{
		Pod: pod, Observed: observed, Now: now,
		Liveness: func(id string) plan.Result { return w.result(id, livenessProbe) },
		Startup:  func(id string) plan.Result { return w.result(id, startupProbe) },
		NotBefore: func(c *v1.Container, finished time.Time) (time.Time, time.Duration) {
			return w.backoff.Until(backOffKey(c), finished)
		},
		Resized: func(c *v1.Container, running *cri.Container) bool { return w.resizeRestarts(pod, c, running) },
	}
}

func backOffKey(c *v1.Container) string { return c.Name + "/" + plan.Hash(c) }
