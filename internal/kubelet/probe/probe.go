// Package probe runs the startup, liveness and readiness probes of containers by
// exec, HTTP, TCP and gRPC. It corresponds to upstream's probe manager (package
// prober).
//
// Each probe of each running container instance has a goroutine:
//
//	initial delay ─► run ─► threshold reached? ─► result changes ─► OnChange
//	                  ▲ period                        │
//	                  └───────────────────────────────┘
//
// Liveness and readiness begin when the startup probe has succeeded. After a
// failed liveness or startup probe the goroutine ends: the container dies.
package probe

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Kind is one of a container's three probes.
type Kind int

// The probes of a container.
const (
	Liveness Kind = iota
	Readiness
	Startup
)

// String returns the name that events use.
func (k Kind) String() string { return [...]string{"Liveness", "Readiness", "Startup"}[k] }

func (k Kind) of(c *v1.Container) *v1.Probe {
	return [...]*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe}[k]
}

// maxRunning is how many probes of one pod run at a time. Others of the pod wait:
// each holds a connection meanwhile, or is a command, of which there are fewer.
const maxRunning = 16

// Manager probes the containers of all pods of a node.
type Manager struct {
	runner   *Runner
	recorder record.EventRecorder
	object   func(pod *v1.Pod, container string) *v1.ObjectReference
	changed  func(uid types.UID)

	mu      sync.Mutex // guards what follows
	workers map[types.UID]map[key]*worker
	counts  map[types.UID]map[Count]int
	working supervise.WaitGroup
	ctx     context.Context //nolint:containedctx // set by Start, ends the workers
	began   time.Time       // set by Start
}

type key struct {
	containerID string
	kind        Kind
}

// Count names one counter of probe results for the metrics endpoint.
type Count struct {
	Namespace, Pod           string
	UID                      types.UID
	Container, Probe, Result string
}

// New returns a Manager that calls changed after the result of a probe has
// changed.
func New(runner *Runner, recorder record.EventRecorder, object func(pod *v1.Pod, container string) *v1.ObjectReference, changed func(uid types.UID)) *Manager {
	return &Manager{
		runner: runner, recorder: recorder, object: object, changed: changed,
		workers: make(map[types.UID]map[key]*worker), counts: make(map[types.UID]map[Count]int),
	}
}

// Start makes probes run until ctx ends. It must be called before Sync.
func (p *Manager) Start(ctx context.Context) { p.ctx, p.began = ctx, time.Now() }

// Wait blocks until all goroutines have ended.
func (p *Manager) Wait() { p.working.Wait() }

// Instance is one running container of a pod.
type Instance struct {
	Container *v1.Container
	ID        string
	StartedAt time.Time
}

// Sync starts the probes of the given running containers of a pod and stops all
// other probes of the pod. before returns the state of containers that an
// earlier kubelet started. A container that has started does not need to start
// again, and a container that was ready stays ready until its probe fails.
func (p *Manager) Sync(pod *v1.Pod, ip string, running []Instance, before func(container string) (started, ready bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx == nil || p.ctx.Err() != nil {
		return
	}
	have := p.workers[pod.UID]
	if have == nil {
		have = make(map[key]*worker)
		p.workers[pod.UID] = have
	}
	turns := make(chan struct{}, maxRunning)
	for _, w := range have {
		turns = w.turns
		break
	}
	wanted := make(map[key]bool)
	for _, instance := range running {
		for kind := Liveness; kind <= Startup; kind++ {
			probe := kind.of(instance.Container)
			if probe == nil {
				continue
			}
			k := key{instance.ID, kind}
			wanted[k] = true
			started, ready := before(instance.Container.Name)
			if w := have[k]; w != nil {
				w.ip = ip // that of a pod in the node's network may change
				if kind == Startup && started && w.result == plan.Unknown {
					w.cancel()
					w.become(plan.Success)
				}
				continue
			}
			ctx, cancel := context.WithCancel(p.ctx)
			w := &worker{prober: p, pod: pod, probe: probe, kind: kind, turns: turns, cancel: cancel, startupSucceeded: make(chan struct{}, 1),
				target: Target{Pod: pod, Container: instance.Container, ContainerID: instance.ID}, ip: ip, started: instance.StartedAt}
			if kind == Liveness {
				w.result = plan.Success
			}
			have[k] = w
			if kind == Startup && started {
				w.result = plan.Success
				cancel()
				continue
			}
			if kind == Readiness && ready {
				w.result = plan.Success
			}
			p.working.Go(ctx, func() { w.run(ctx) })
		}
	}
	for k, w := range have {
		if !wanted[k] {
			w.cancel()
			delete(have, k)
		}
	}
	if len(have) == 0 {
		delete(p.workers, pod.UID)
	}
}

// Forget ends the probes of a pod and drops its counters.
func (p *Manager) Forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers[uid] {
		w.cancel()
	}
	delete(p.workers, uid)
	delete(p.counts, uid)
	p.runner.turns.forget(uid)
}

// StopKind ends the probes of some kinds of a pod, such as liveness and startup
// when the pod terminates.
func (p *Manager) StopKind(uid types.UID, kinds ...Kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, w := range p.workers[uid] {
		for _, kind := range kinds {
			if k.kind == kind {
				w.cancel()
			}
		}
	}
}

// Result returns the last result of a probe, Unknown before the first.
func (p *Manager) Result(uid types.UID, containerID string, kind Kind) plan.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.workers[uid][key{containerID, kind}]; w != nil {
		return w.result
	}
	return plan.Unknown
}

// Counts returns a copy of the counters.
func (p *Manager) Counts() map[Count]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[Count]int, len(p.counts))
	for _, counts := range p.counts {
		for k, n := range counts {
			out[k] += n
		}
	}
	return out
}

type worker struct {
	prober           *Manager
	pod              *v1.Pod
	probe            *v1.Probe
	kind             Kind
	target           Target // without the address
	started          time.Time
	turns            chan struct{} // shared by the pod's workers; has an element for each probe that runs
	cancel           context.CancelFunc
	startupSucceeded chan struct{}

	ip     string      // of the pod; guarded by Manager.mu
	result plan.Result // guarded by Manager.mu
}

// targetNow returns what is probed, at the address that the pod has now.
func (w *worker) targetNow() Target {
	w.prober.mu.Lock()
	defer w.prober.mu.Unlock()
	target := w.target
	target.IP = w.ip
	return target
}

func (w *worker) run(ctx context.Context) {
	defer w.cancel()
	period := time.Duration(max(w.probe.PeriodSeconds, 1)) * time.Second
	delay := time.Duration(w.probe.InitialDelaySeconds) * time.Second
	begin := time.Now().Add(min(time.Until(w.started.Add(delay)), delay)) // the clock may have been set back since
	wait := max(time.Until(begin), 0)
	if w.started.Before(w.prober.began) { // a restarted kubelet does not probe all containers at once
		wait = max(wait, rand.N(period))
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	successes, failures := int32(0), int32(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-w.startupSucceeded:
			if delay := time.Until(begin); delay > 0 {
				timer.Reset(delay)
				continue
			}
		}
		next := time.Now().Add(period) // whatever time the probe takes
		if w.kind != Startup && w.target.Container.StartupProbe != nil && w.prober.Result(w.pod.UID, w.target.ContainerID, Startup) != plan.Success {
			timer.Reset(period)
			continue
		}
		ok, known := w.once(ctx)
		if ctx.Err() != nil {
			return
		}
		timer.Reset(time.Until(next))
		if !known {
			continue
		}
		if ok {
			successes, failures = successes+1, 0
		} else {
			successes, failures = 0, failures+1
		}
		switch {
		case ok && successes >= max(w.probe.SuccessThreshold, 1):
			w.set(plan.Success)
		case !ok && failures >= max(w.probe.FailureThreshold, 1):
			w.set(plan.Failure)
		default:
			continue
		}
		if (w.kind == Liveness || w.kind == Startup) && !ok || w.kind == Startup && ok {
			return
		}
	}
}

// once runs the probe and reports the result. It retries a probe that could not
// be carried out.
func (w *worker) once(ctx context.Context) (ok, known bool) {
	const attempts = 3
	var output string
	var err error
	var warning *Warning
	for range attempts {
		select {
		case w.turns <- struct{}{}:
		case <-ctx.Done():
			return false, false
		}
		err = supervise.Call(func() (err error) {
			ok, output, err = w.prober.runner.Run(ctx, w.probe, w.targetNow())
			return err
		})
		<-w.turns
		if panicked := new(supervise.Panic); errors.As(err, &panicked) {
			supervise.LogFailure(ctx, "probes", err, "will try again")
		}
		if ctx.Err() != nil {
			return false, false
		}
		if err == nil || errors.As(err, &warning) {
			break
		}
	}
	reference := w.prober.object(w.pod, w.target.Container.Name)
	switch {
	case warning != nil:
		w.prober.recorder.Eventf(reference, v1.EventTypeWarning, "ProbeWarning", "%s probe warning: %v", w.kind, warning)
	case err != nil:
		w.prober.recorder.Eventf(reference, v1.EventTypeWarning, "Unhealthy", "%s probe errored and resulted in %s state: %v", w.kind, "unknown", err)
		w.count("unknown")
		return false, false
	}
	if ok {
		w.count("successful")
	} else {
		w.prober.recorder.Eventf(reference, v1.EventTypeWarning, "Unhealthy", "%s probe failed: %s", w.kind, output)
		w.count("failed")
	}
	return ok, true
}

func (w *worker) count(result string) {
	w.prober.mu.Lock()
	defer w.prober.mu.Unlock()
	counts := w.prober.counts[w.pod.UID]
	if counts == nil {
		counts = make(map[Count]int)
		w.prober.counts[w.pod.UID] = counts
	}
	counts[Count{w.pod.Namespace, w.pod.Name, w.pod.UID, w.target.Container.Name, w.kind.String(), result}]++
}

func (w *worker) set(r plan.Result) {
	w.prober.mu.Lock()
	changed := w.become(r)
	w.prober.mu.Unlock()
	if changed {
		w.prober.changed(w.pod.UID)
	}
}

// become sets the result and reports whether it changed. A container that has
// started lets its other probes begin, and stays started. Manager.mu is held.
func (w *worker) become(r plan.Result) bool {
	if w.result == r || w.kind == Startup && w.result == plan.Success {
		return false
	}
	w.result = r
	if w.kind != Startup || r != plan.Success {
		return true
	}
	for k, other := range w.prober.workers[w.pod.UID] {
		if k.containerID == w.target.ContainerID && k.kind != Startup {
			select {
			case other.startupSucceeded <- struct{}{}:
			default:
			}
		}
	}
	return true
}
