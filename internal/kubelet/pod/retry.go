package pod

import (
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

// retries are what a worker waits for before it tries again. Only its own
// goroutine uses them.
type retries struct {
	restarts plan.BackOff            // of containers that have ended
	waiting  map[string]status.Cause // why containers do not run, for their statuses
	failed   map[string]attempt      // what failed to start, by container
}

// attempt keeps the worker from trying what failed again with every event.
type attempt struct {
	until    time.Time
	failures int
}

// wholePod is the key of retries.failed for the sandbox.
const wholePod = ""

func newRetries(maximum time.Duration) retries {
	return retries{
		restarts: plan.BackOff{Initial: min(10*time.Second, maximum), Max: maximum},
		waiting:  make(map[string]status.Cause), failed: make(map[string]attempt),
	}
}

// retryAfter waits longer the more often something failed: half a second at
// first, ten at most.
func retryAfter(failures int) time.Duration {
	return min(500*time.Millisecond<<min(failures-1, 5), 10*time.Second)
}

// sooner returns the shorter of two waits, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	b = max(b, time.Millisecond)
	if a == 0 {
		return b
	}
	return min(a, b)
}

func backOffKey(c *v1.Container) string { return c.Name + "/" + plan.Hash(c) }

// postpone takes out of the plan what failed a short while ago, and returns
// when to look again.
func (r *retries) postpone(p *plan.Plan, now time.Time, next time.Duration) time.Duration {
	kept := p.Start[:0]
	for _, s := range p.Start {
		if a := r.failed[s.Container.Name]; now.Before(a.until) {
			next = sooner(next, a.until.Sub(now))
			continue
		}
		kept = append(kept, s)
	}
	p.Start = kept
	if a := r.failed[wholePod]; now.Before(a.until) && p.CreateSandbox {
		p.CreateSandbox, p.KillPod, p.Start = false, false, nil
		next = sooner(next, a.until.Sub(now))
	}
	return next
}

// failedToStart makes the worker wait before it tries the same again.
func (r *retries) failedToStart(name string) {
	a := r.failed[name]
	a.failures++
	a.until = time.Now().Add(retryAfter(a.failures))
	r.failed[name] = a
}

// created begins the back-off of a container that was created after another.
func (r *retries) created(c *v1.Container, before *cri.Container) {
	r.restarts.Started(backOffKey(c), before.FinishedAt, time.Now())
}

// started forgets what a container waited for.
func (r *retries) started(name string) {
	delete(r.waiting, name)
	delete(r.failed, name)
}

// runs forgets what containers waited for that run now and that the plan does
// not let wait.
func (r *retries) runs(observed *cri.Pod, p *plan.Plan) {
	for name := range r.waiting {
		c := observed.Find(name)
		if _, still := p.Waiting[name]; !still && c != nil && c.State == cri.Running {
			delete(r.waiting, name)
		}
	}
}

// backOff notes that a container has to wait before it runs again. It returns
// false if that was known.
func (r *retries) backOff(pod *v1.Pod, name string, wait plan.Waiting) bool {
	if r.waiting[name].Reason == "CrashLoopBackOff" {
		return false
	}
	r.waiting[name] = status.Cause{
		Reason:  "CrashLoopBackOff",
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", wait.Delay, name, spec.PodName(pod)),
	}
	return true
}

// note remembers for the status why a container does not run.
func (r *retries) note(name string, err error) {
	var waits *image.Error
	var fails *startError
	switch {
	case errors.As(err, &waits):
		r.waiting[name] = status.Cause{Reason: waits.Reason, Message: waits.Message}
	case errors.As(err, &fails):
		r.waiting[name] = status.Cause{Reason: fails.reason, Message: fails.Error()}
	default:
		r.waiting[name] = status.Cause{Reason: "CreateContainerError", Message: err.Error()}
	}
}

// nextPull is when the first image that could not be pulled is tried again: a
// container's own, or one that it mounts.
func (r *retries) nextPull(pod *v1.Pod, images Images) (earliest time.Time, ok bool) {
	for name, cause := range r.waiting {
		if cause.Reason != image.ErrImagePull && cause.Reason != image.ImagePullBackOff {
			continue
		}
		c := podutil.Container(&pod.Spec, name)
		if c == nil {
			continue
		}
		for _, as := range append(volumeImages(pod, c), c) {
			if until, waits := images.Retry(as, string(pod.UID)); waits && (!ok || until.Before(earliest)) {
				earliest, ok = until, true
			}
		}
	}
	return earliest, ok
}
