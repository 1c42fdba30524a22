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
//	all are to be restarted ───► Kill what is discarded, then start over
package plan

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/podquery"
)

// Kind is one of the three lists of containers of a pod.
type Kind int

// The lists of containers of a pod.
const (
	Regular Kind = iota
	Init
	Ephemeral
)

// Result is the last result of a probe.
type Result int

// The results of a probe. Unknown means that there is none yet.
const (
	Unknown Result = iota
	Success
	Failure
)

// Input is the snapshot to decide on. The functions must return the same
// results during a call of Compute.
type Input struct {
	Pod      *v1.Pod
	Observed *cri.Pod
	Now      time.Time
	// Liveness and Startup return the last results of a container's probes.
	Liveness, Startup func(containerID string) Result
	// NotBefore returns when a container that exited at the given time may be
	// started again, and the back-off that this results from.
	NotBefore func(c *v1.Container, finished time.Time) (time.Time, time.Duration)
	// Resized reports whether the container has to restart to get the resources
	// of its specification. Nil means never.
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
	Message string // message of the event
	Reason  string // one of the constants below; tests read which rule decided
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

// Plan lists actions in the order in which they are done: KillPod or Kill,
// CreateSandbox, Start.
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

// Empty reports whether there is nothing to do now.
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

// Compute computes the plan. It ignores deletion: the worker kills a pod that
// is to end as a whole.
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

// sandboxChanged reports whether the pod needs a new sandbox, and the attempt
// of the sandbox.
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

// anyRestartable reports whether a container restarts by its own policy or
// rules although the pod does not.
func anyRestartable(pod *v1.Pod, observed *cri.Pod) bool {
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if newest := observed.Find(c.Name); newest != nil && newest.State == cri.Exited && ShouldRestart(pod, c, newest.ExitCode) {
			return true
		}
	}
	return false
}

// nextCount returns the restart count of the instance after newest. A container
// that was created and never started is replaced under its own number.
func nextCount(newest *cri.Container) int {
	switch {
	case newest == nil:
		return 0
	case newest.State == cri.Created:
		return newest.RestartCount
	}
	return newest.RestartCount + 1
}

// unlessWaiting starts a container, or records how long it has to back off
// since its last exit. For a container that is killed now, the exit before that
// counts.
func unlessWaiting(in Input, p *Plan, s Start) {
	if dead := in.Observed.Dead(s.Container.Name); dead != nil && in.NotBefore != nil {
		if until, delay := in.NotBefore(s.Container, dead.FinishedAt); in.Now.Before(until) {
			p.Waiting[s.Container.Name] = Waiting{Until: until, Delay: delay}
			return
		}
	}
	p.Start = append(p.Start, s)
}

// again restarts the container unless it has to back off.
func again(in Input, p *Plan, c *v1.Container, kind Kind, newest *cri.Container) {
	unlessWaiting(in, p, Start{Container: c, Kind: kind, RestartCount: nextCount(newest)})
}

// MaxContainers is how many containers of a pod a node runs, of all kinds together.
// For each one, the runtime and the kubelet have memory, files and a control group
// that do not count for the pod.
const MaxContainers = 512

// MaxEphemeral returns how many of its ephemeral containers a pod may have.
func MaxEphemeral(s *v1.PodSpec) int {
	return max(MaxContainers-len(s.InitContainers)-len(s.Containers), 0)
}

func ephemeral(in Input, p *Plan) {
	for i := range min(len(in.Pod.Spec.EphemeralContainers), MaxEphemeral(&in.Pod.Spec)) {
		c := (*v1.Container)(&in.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		if newest := in.Observed.Find(c.Name); newest == nil || newest.State == cri.Created {
			p.Start = append(p.Start, Start{Container: c, Kind: Ephemeral, RestartCount: nextCount(newest)})
		}
	}
}

// initialized reports whether the init containers have completed in the given
// sandbox: a regular container was created there.
func initialized(pod *v1.Pod, observed *cri.Pod, sandboxID string) bool {
	for i := range pod.Spec.Containers {
		for _, c := range observed.Containers {
			if c.Name == pod.Spec.Containers[i].Name && c.SandboxID == sandboxID && !c.Discarded {
				return true
			}
		}
	}
	return false
}

// initialize plans the init containers and reports whether the regular
// containers may start. The last init container that was created in the sandbox
// decides. Those before it have completed or started, whether or not the runtime
// still has them: only sidecars among them start again, and nothing waits for that.
func initialize(in Input, sandboxID string, p *Plan) bool {
	list := in.Pod.Spec.InitContainers
	here := make([]*cri.Container, len(list)) // the instances in the sandbox
	last := -1
	for i := range list {
		if c := in.Observed.Find(list[i].Name); c != nil && c.SandboxID == sandboxID && !c.Discarded {
			here[i], last = c, i
		}
	}
	if initialized(in.Pod, in.Observed, sandboxID) {
		last = len(list)
	}
	for i := range list {
		c := &list[i]
		switch {
		case i > last:
			again(in, p, c, Init, in.Observed.Find(c.Name))
			return false
		case podquery.IsSidecar(c):
			if !sidecar(in, p, c, in.Observed.Find(c.Name), here[i]) && i == last {
				return false
			}
		case i == last && !completed(in, p, c, here[i]):
			return false
		}
	}
	return true
}

// completed plans the init container that was created last, and reports whether it
// has completed.
func completed(in Input, p *Plan, c *v1.Container, here *cri.Container) bool {
	const killed = 137
	exitCode := here.ExitCode
	switch {
	case here.State == cri.Unknown:
		exitCode = killed // now
	case exitCode == 0 && here.Reason == "OOMKilled" && ShouldRestart(in.Pod, c, killed):
		exitCode = killed // one of its processes was: its work may not be done
	}
	switch {
	case here.State == cri.Running:
	case here.State == cri.Exited && exitCode == 0:
		return true
	case here.State != cri.Created && !ShouldRestart(in.Pod, c, exitCode):
		p.KillPod, p.Start, p.Kill = true, nil, nil
	default:
		if here.State == cri.Unknown {
			p.Kill = append(p.Kill, unknownInit(c, here))
		}
		again(in, p, c, Init, here)
	}
	return false
}

// unknownInit kills an instance of an init container whose state the runtime does
// not know: its process may run.
func unknownInit(c *v1.Container, here *cri.Container) Kill {
	return Kill{ID: here.ID, Name: c.Name, Reason: ReasonUnknown,
		Message: fmt.Sprintf("Init container is in %q state, try killing it before restart", "Unknown")}
}

// sidecar plans one sidecar and reports whether it has started, so that the
// next container may. One that is killed for its liveness has started before.
func sidecar(in Input, p *Plan, c *v1.Container, newest, here *cri.Container) bool {
	if here == nil || here.State != cri.Running {
		if here != nil && here.State == cri.Unknown {
			p.Kill = append(p.Kill, unknownInit(c, here))
		}
		again(in, p, c, Init, newest)
		return false
	}
	if kill, restart := mustKill(in, c, here); kill != nil {
		p.Kill = append(p.Kill, *kill)
		if restart {
			again(in, p, c, Init, here)
		}
	}
	return c.StartupProbe == nil || in.Startup == nil || in.Startup(here.ID) == Success
}

// regular plans the regular containers and returns how many keep running.
func regular(in Input, sandboxID string, p *Plan) (kept int) {
	for i := range in.Pod.Spec.Containers {
		c := &in.Pod.Spec.Containers[i]
		newest := in.Observed.Find(c.Name)
		if newest == nil || newest.State == cri.Created {
			unlessWaiting(in, p, Start{Container: c, Kind: Regular, RestartCount: nextCount(newest)})
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

// mustKill returns how to kill a running container, nil if it stays, and
// whether it restarts.
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
