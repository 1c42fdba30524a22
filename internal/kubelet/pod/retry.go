package pod

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	"github.com/coracle-io/coracle/internal/podquery"
)

// retries are the back-offs of a worker. Only the current action of the worker
// uses them, except for the method causes, which may be called from any
// goroutine.
type retries struct {
	restarts plan.BackOff       // restarts of containers
	failed   map[string]attempt // failed attempts to start, by container

	networkTold time.Time // see Config.hasNetwork

	mu      sync.Mutex              // guards waiting
	waiting map[string]status.Cause // why containers do not run, for their statuses
}

// causes returns why containers do not run, by name.
func (r *retries) causes() map[string]status.Cause {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.waiting)
}

// attempt keeps the worker from retrying with every event.
type attempt struct {
	until    time.Time
	failures int
}

// maxCause is how much is kept of why a container does not run, in bytes: what its status
// shows of it. Errors of the runtime may quote what the container was to be started with.
const maxCause = 4 << 10

// wholePod is the key of the sandbox in retries.failed.
const wholePod = ""

// newRetries returns retries with the longest time between restarts of a configuration.
func newRetries(features *feature.Set, configured time.Duration) retries {
	initial, maximum := 10*time.Second, 5*time.Minute
	if features.Enabled(feature.ReduceDefaultCrashLoopBackOffDecay) {
		initial, maximum = time.Second, time.Minute
	}
	if features.Enabled(feature.KubeletCrashLoopBackOffMax) {
		maximum = configured
	}
	return retries{
		restarts: plan.BackOff{Initial: min(initial, maximum), Max: maximum},
		waiting:  make(map[string]status.Cause), failed: make(map[string]attempt),
	}
}

// retryAfter returns the time to wait after a number of failures: from half a
// second to ten seconds.
func retryAfter(failures int) time.Duration {
	return min(500*time.Millisecond<<min(failures-1, 5), 10*time.Second)
}

// sooner returns the shorter of two durations. If a is 0, there is none yet.
func sooner(a, b time.Duration) time.Duration {
	b = max(b, time.Millisecond)
	if a == 0 {
		return b
	}
	return min(a, b)
}

func backOffKey(c *v1.Container) string { return c.Name + "/" + plan.Hash(c) }

// postpone removes from the plan what failed a short while ago. It returns the
// shorter of next and the time until the earliest retry.
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

// failedToStart records a failed attempt to start a container, or wholePod.
func (r *retries) failedToStart(name string) {
	a := r.failed[name]
	a.failures++
	a.until = time.Now().Add(retryAfter(a.failures))
	r.failed[name] = a
}

// created records the restart of a container, for its back-off.
func (r *retries) created(c *v1.Container, before *cri.Container) {
	r.restarts.Started(backOffKey(c), before.FinishedAt, time.Now())
}

// started clears the back-off of a container, or wholePod.
func (r *retries) started(name string) {
	r.mu.Lock()
	delete(r.waiting, name)
	r.mu.Unlock()
	delete(r.failed, name)
}

// forget drops all causes and back-offs of a pod that has ended.
func (r *retries) forget() {
	r.mu.Lock()
	clear(r.waiting)
	r.mu.Unlock()
	clear(r.failed)
}

// running clears the causes of containers that run now and are not backing off.
func (r *retries) running(observed *cri.Pod, p *plan.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.waiting {
		c := observed.Find(name)
		if _, still := p.Waiting[name]; !still && c != nil && c.State == cri.Running {
			delete(r.waiting, name)
		}
	}
}

// backOff records that a container waits before it restarts. It returns false
// if this is recorded already.
func (r *retries) backOff(pod *v1.Pod, name string, wait plan.Waiting) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[name].Reason == "CrashLoopBackOff" {
		return false
	}
	r.waiting[name] = status.Cause{
		Reason:  "CrashLoopBackOff",
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", wait.Delay, name, spec.PodName(pod)),
	}
	return true
}

// setCause records why a container does not run, for its status.
func (r *retries) setCause(name string, err error) {
	cause := status.Cause{Reason: "CreateContainerError", Message: err.Error()}
	var waits *image.Error
	var fails *startError
	switch {
	case errors.As(err, &waits):
		cause = status.Cause{Reason: waits.Reason, Message: waits.Message}
	case errors.As(err, &fails):
		cause = status.Cause{Reason: fails.reason, Message: fails.Error()}
	}
	cause.Message = strings.ToValidUTF8(strings.Clone(cause.Message[:min(len(cause.Message), maxCause)]), "")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[name] = cause
}

// nextPull returns the time of the earliest retry of a failed pull, of the
// images of containers and of those that they mount.
func (r *retries) nextPull(pod *v1.Pod, images Images) (earliest time.Time, ok bool) {
	for name, cause := range r.causes() {
		if !image.IsPullFailure(cause.Reason) {
			continue
		}
		c := podquery.Container(&pod.Spec, name)
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
