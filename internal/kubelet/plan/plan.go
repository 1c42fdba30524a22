// Package plan decides what has to happen for a pod: from its specification
// and from what runs for it, to the list of containers to kill and to start.
// It acts on nothing. It stands for computePodActions of upstream's kuberuntime
// manager.
//
//	pod + observed ─► KillPod?  CreateSandbox?  Kill...  Start...  Waiting...
//
//	no ready sandbox ──────────► create one, then the first init container
//	initializing ──────────────► the next init container; sidecars stay
//	initialized ───────────────► every container that should run and does not
//	nothing left to run ───────► KillPod
//	all are to be restarted ───► Kill what is discarded, then begin anew
package plan

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

// Kind tells the three lists of containers of a pod apart.
type Kind int

// The lists a container can stand in.
const (
	Regular Kind = iota
	Init
	Ephemeral
)

// Result is what is known of a probe.
type Result int

// The results of a probe. Unknown stands for "no answer yet".
const (
	Unknown Result = iota
	Success
	Failure
)

// Input is the snapshot to decide on. The functions must be pure for the
// time of the call.
type Input struct {
	Pod      *v1.Pod
	Observed *cri.Pod
	Now      time.Time
	// Liveness and Startup return the last results of a container's probes.
	Liveness, Startup func(containerID string) Result
	// NotBefore returns when a container that ended at the given time may be
	// started again, and the delay that this follows from.
	NotBefore func(c *v1.Container, finished time.Time) (time.Time, time.Duration)
	// Resized says whether the container's resources differ from those its
	// specification asks for and only a restart brings them about. Nil: never.
	Resized func(c *v1.Container, running *cri.Container) bool
}

// Start is one container to create and start.
type Start struct {
	Container *v1.Container
	Kind      Kind
	// RestartCount is the number that the new instance bears.
	RestartCount int
}

// Kill is one container to stop.
type Kill struct {
	ID      string
	Name    string
	Message string // of the event
	Reason  string // one of the constants below
	// Grace overrides the pod's grace period.
	Grace *int64
}

// Reasons for stopping a container.
const (
	ReasonChanged  = "DefinitionChanged"
	ReasonLiveness = "LivenessProbe"
	ReasonStartup  = "StartupProbe"
	ReasonUnknown  = "Unknown"
	ReasonResize   = "Resize"

	ReasonRestartAll = "RestartAllContainers"
)

// Waiting is a container that may not start yet.
type Waiting struct {
	Until time.Time
	Delay time.Duration
}

// Plan is what to do, in this order: KillPod or Kill, CreateSandbox, Start.
type Plan struct {
	// KillPod stops all containers and sandboxes.
	KillPod       bool
	CreateSandbox bool
	Attempt       uint32
	// SandboxID is the sandbox to start containers in, "" if there is none yet.
	SandboxID string
	Kill      []Kill
	Start     []Start
	Waiting   map[string]Waiting
}

// Empty says that nothing has to be done now.
func (p *Plan) Empty() bool {
	return !p.KillPod && !p.CreateSandbox && len(p.Kill) == 0 && len(p.Start) == 0
}

// Wake returns the earliest time at which a waiting container may start.
func (p *Plan) Wake() (earliest time.Time, ok bool) {
	for _, w := range p.Waiting {
		if !ok || w.Until.Before(earliest) {
			earliest, ok = w.Until, true
		}
	}
	return earliest, ok
}

// Compute decides. It does not look at deletion: a pod that is to end is
// killed as a whole by its worker.
func Compute(in Input) Plan {
	p := Plan{Waiting: map[string]Waiting{}}
	changed, attempt := sandboxChanged(in.Pod, in.Observed)
	p.Attempt = attempt
	if changed {
		newSandbox(in, &p)
		return p
	}
	sandbox := in.Observed.Sandboxes[0]
	p.SandboxID = sandbox.ID
	if killDiscarded(in.Observed, &p) {
		return p
	}
	ephemeral(in, &p)
	if !initialize(in, sandbox.ID, &p) {
		return p
	}
	kept := regular(in, sandbox.ID, &p)
	if kept == 0 && len(p.Waiting) == 0 && !startsRegular(p.Start) {
		p.KillPod, p.Start, p.Kill = true, nil, nil
	}
	return p
}

func startsRegular(starts []Start) bool {
	for _, s := range starts {
		if s.Kind == Regular {
			return true
		}
	}
	return false
}

// sandboxChanged says whether a new sandbox is needed and which attempt it is.
func sandboxChanged(pod *v1.Pod, observed *cri.Pod) (bool, uint32) {
	if len(observed.Sandboxes) == 0 {
		return true, 0
	}
	ready := 0
	for _, s := range observed.Sandboxes {
		if s.Ready {
			ready++
		}
	}
	newest := observed.Sandboxes[0]
	switch {
	case ready > 1, !newest.Ready,
		newest.HostNetwork != pod.Spec.HostNetwork,
		!pod.Spec.HostNetwork && len(newest.IPs) == 0:
		return true, newest.Attempt + 1
	}
	return false, newest.Attempt
}

func newSandbox(in Input, p *Plan) {
	pod, observed := in.Pod, in.Observed
	p.KillPod = len(observed.Sandboxes) > 0
	if pod.Spec.RestartPolicy == v1.RestartPolicyNever && p.Attempt != 0 && len(observed.Containers) != 0 && !anyRestartable(pod, observed) {
		return
	}
	var starts []Start
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		newest := observed.Find(c.Name)
		if newest != nil && newest.State == cri.Exited && !ShouldRestart(pod, c, newest.ExitCode) {
			continue
		}
		starts = append(starts, Start{Container: c, Kind: Regular, RestartCount: nextCount(newest)})
	}
	if len(starts) == 0 {
		return
	}
	p.CreateSandbox = true
	if len(pod.Spec.InitContainers) > 0 {
		c := &pod.Spec.InitContainers[0]
		starts = []Start{{Container: c, Kind: Init, RestartCount: nextCount(observed.Find(c.Name))}}
	}
	for _, s := range starts {
		unlessWaiting(in, p, s)
	}
}

// anyRestartable says whether some container of a pod that is never restarted
// was cut short by the loss of its sandbox and has a policy of its own.
func anyRestartable(pod *v1.Pod, observed *cri.Pod) bool {
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if newest := observed.Find(c.Name); newest != nil && newest.State == cri.Exited && ShouldRestart(pod, c, newest.ExitCode) {
			return true
		}
	}
	return false
}

func nextCount(newest *cri.Container) int {
	if newest == nil {
		return 0
	}
	return newest.RestartCount + 1
}

// unlessWaiting starts a container, or notes how long it has to wait since its
// last end. That of one that is killed now is yet to come: the end before it
// counts, and the next look sees whether the new one makes it wait.
func unlessWaiting(in Input, p *Plan, s Start) {
	if dead := in.Observed.Dead(s.Container.Name); dead != nil && in.NotBefore != nil {
		if until, delay := in.NotBefore(s.Container, dead.FinishedAt); in.Now.Before(until) {
			p.Waiting[s.Container.Name] = Waiting{Until: until, Delay: delay}
			return
		}
	}
	p.Start = append(p.Start, s)
}

// again starts the container once more, if it need not wait.
func again(in Input, p *Plan, c *v1.Container, kind Kind, newest *cri.Container) {
	unlessWaiting(in, p, Start{Container: c, Kind: kind, RestartCount: nextCount(newest)})
}

func ephemeral(in Input, p *Plan) {
	for i := range in.Pod.Spec.EphemeralContainers {
		c := (*v1.Container)(&in.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		if in.Observed.Find(c.Name) == nil {
			p.Start = append(p.Start, Start{Container: c, Kind: Ephemeral})
		}
	}
}

// Initialized says whether the pod's init containers have done their work in
// the given sandbox: a regular container was created there.
func Initialized(pod *v1.Pod, observed *cri.Pod, sandboxID string) bool {
	for i := range pod.Spec.Containers {
		for _, c := range observed.Containers {
			if c.Name == pod.Spec.Containers[i].Name && c.SandboxID == sandboxID && !c.Discarded {
				return true
			}
		}
	}
	return false
}

// initialize plans the init containers and says whether the regular ones may
// start.
func initialize(in Input, sandboxID string, p *Plan) bool {
	pod := in.Pod
	initialized := Initialized(pod, in.Observed, sandboxID)
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		newest := in.Observed.Find(c.Name)
		here := newest
		if here != nil && (here.SandboxID != sandboxID || here.Discarded) {
			here = nil
		}
		if podutil.IsSidecar(c) {
			if !sidecar(in, p, c, newest, here) && !initialized {
				return false
			}
			continue
		}
		if initialized {
			continue
		}
		switch {
		case here == nil:
			again(in, p, c, Init, newest)
			return false
		case here.State == cri.Running:
			return false
		case here.State == cri.Exited && here.ExitCode == 0:
			continue
		case here.State == cri.Exited && !ShouldRestart(pod, c, here.ExitCode):
			p.KillPod, p.Start = true, nil
			return false
		default:
			if here.State == cri.Unknown {
				p.Kill = append(p.Kill, Kill{ID: here.ID, Name: c.Name, Reason: ReasonUnknown,
					Message: fmt.Sprintf("Init container is in %q state, try killing it before restart", "Unknown")})
			}
			again(in, p, c, Init, here)
			return false
		}
	}
	return true
}

// sidecar plans one restartable init container and says whether it has
// started, so that the next container may.
func sidecar(in Input, p *Plan, c *v1.Container, newest, here *cri.Container) bool {
	if here == nil || here.State != cri.Running {
		again(in, p, c, Init, newest)
		return false
	}
	if kill, restart := mustKill(in, c, here); kill != nil {
		p.Kill = append(p.Kill, *kill)
		if restart {
			again(in, p, c, Init, here)
		}
		return false
	}
	return c.StartupProbe == nil || in.Startup == nil || in.Startup(here.ID) == Success
}

// regular plans the pod's own containers and returns how many stay as they are.
func regular(in Input, sandboxID string, p *Plan) (kept int) {
	for i := range in.Pod.Spec.Containers {
		c := &in.Pod.Spec.Containers[i]
		newest := in.Observed.Find(c.Name)
		if newest == nil || newest.State == cri.Created {
			unlessWaiting(in, p, Start{Container: c, Kind: Regular, RestartCount: countOfFailedStart(newest)})
			continue
		}
		switch newest.State {
		case cri.Exited:
			if newest.Discarded || ShouldRestart(in.Pod, c, newest.ExitCode) {
				again(in, p, c, Regular, newest)
			}
		case cri.Unknown:
			p.Kill = append(p.Kill, Kill{ID: newest.ID, Name: c.Name, Reason: ReasonUnknown,
				Message: fmt.Sprintf("Container is in %q state, try killing it before restart", "Unknown")})
			again(in, p, c, Regular, newest)
		case cri.Running:
			kill, restart := mustKill(in, c, newest)
			if kill == nil && newest.SandboxID != sandboxID {
				kill, restart = &Kill{ID: newest.ID, Name: c.Name, Reason: ReasonUnknown, Message: "Container runs in a sandbox that is gone"}, true
			}
			if kill == nil {
				kept++
				continue
			}
			p.Kill = append(p.Kill, *kill)
			if restart {
				again(in, p, c, Regular, newest)
			} else {
				kept++
			}
		}
	}
	return kept
}

// A container that was created and never started keeps its number.
func countOfFailedStart(c *cri.Container) int {
	if c == nil {
		return 0
	}
	return c.RestartCount
}

// mustKill says whether a running container has to go, and whether it comes back.
func mustKill(in Input, c *v1.Container, running *cri.Container) (kill *Kill, restart bool) {
	restart = ShouldRestart(in.Pod, c, 137)
	switch {
	case running.Hash != "" && running.Hash != Hash(c):
		kill, restart = &Kill{Reason: ReasonChanged, Message: fmt.Sprintf("Container %s definition changed", c.Name)}, true
	case in.Liveness != nil && in.Liveness(running.ID) == Failure:
		kill = &Kill{Reason: ReasonLiveness, Message: fmt.Sprintf("Container %s failed liveness probe", c.Name), Grace: graceOf(c.LivenessProbe)}
	case in.Startup != nil && in.Startup(running.ID) == Failure:
		kill = &Kill{Reason: ReasonStartup, Message: fmt.Sprintf("Container %s failed startup probe", c.Name), Grace: graceOf(c.StartupProbe)}
	case in.Resized != nil && in.Resized(c, running):
		kill, restart = &Kill{Reason: ReasonResize, Message: fmt.Sprintf("Container %s resize requires restart", c.Name)}, true
	default:
		return nil, false
	}
	kill.ID, kill.Name = running.ID, c.Name
	if restart {
		kill.Message += ", will be restarted"
	}
	return kill, restart
}

func graceOf(p *v1.Probe) *int64 {
	if p == nil {
		return nil
	}
	return p.TerminationGracePeriodSeconds
}
