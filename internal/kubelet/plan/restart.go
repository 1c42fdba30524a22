package plan

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

// ShouldRestart says whether a container that ended with the given code is to
// run again: by its own rules and policy (KEP-5307), else by the pod's.
func ShouldRestart(pod *v1.Pod, c *v1.Container, exitCode int32) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	if ruleFor(c, exitCode) != nil {
		return true
	}
	policy := pod.Spec.RestartPolicy
	if c.RestartPolicy != nil {
		policy = v1.RestartPolicy(*c.RestartPolicy)
	}
	switch policy {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return exitCode != 0
	}
	return true
}

// ruleFor is the first of the container's rules that the exit code meets, nil
// if none does.
func ruleFor(c *v1.Container, exitCode int32) *v1.ContainerRestartRule {
	for i := range c.RestartPolicyRules {
		rule := &c.RestartPolicyRules[i]
		if rule.ExitCodes == nil {
			continue
		}
		in := slices.Contains(rule.ExitCodes.Values, exitCode)
		if in == (rule.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
			return rule
		}
	}
	return nil
}

// Discard finds the pod's round and marks the containers of earlier ones. A
// round is over when one of its containers ends with a code that restarts all
// of them (KEP-5532), whenever the others were made. The sandbox stays; the
// init containers run once more, and so does what had ended for good. Ephemeral
// containers are left alone.
//
//	init ─ main ──────────────╳ killed     round 0
//	     └ watcher ── exit 88 │
//	                          └ init' ─ main', watcher'     round 1
func Discard(pod *v1.Pod, observed *cri.Pod) {
	sandbox := observed.ReadySandbox()
	for _, c := range observed.Containers {
		round := c.Round
		if sandbox != nil && pod.DeletionTimestamp == nil && c.State == cri.Exited && c.SandboxID == sandbox.ID && restartsAll(pod, c) {
			if next := observed.Find(c.Name); next == c || next.Round > c.Round { // or else it was made without rounds
				round++
			}
		}
		observed.Round = max(observed.Round, round)
	}
	for _, c := range observed.Containers {
		c.Discarded = c.Round < observed.Round && !isEphemeral(pod, c.Name)
	}
}

func restartsAll(pod *v1.Pod, ended *cri.Container) bool {
	c := podutil.Container(&pod.Spec, ended.Name)
	if c == nil {
		return false
	}
	rule := ruleFor(c, ended.ExitCode)
	return rule != nil && rule.Action == v1.ContainerRestartRuleActionRestartAllContainers
}

func isEphemeral(pod *v1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c v1.EphemeralContainer) bool { return c.Name == name })
}

// killDiscarded plans to kill the discarded containers that still run, without
// their grace periods, and says whether there are any.
func killDiscarded(observed *cri.Pod, p *Plan) bool {
	none := int64(0)
	for _, c := range observed.Running() {
		if c.Discarded {
			p.Kill = append(p.Kill, Kill{ID: c.ID, Name: c.Name, Reason: ReasonRestartAll, Grace: &none,
				Message: fmt.Sprintf("Stopping container %s, all containers of the pod are restarted", c.Name)})
		}
	}
	return len(p.Kill) > 0
}

// Hash identifies what of a container's specification cannot change without
// a restart: its name and image.
func Hash(c *v1.Container) string {
	raw, err := json.Marshal(map[string]string{"image": c.Image, "name": c.Name})
	if err != nil {
		return ""
	}
	h := fnv.New32a()
	_, _ = h.Write(raw)
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// BackOff remembers how long the containers of one pod wait between restarts:
// 10 s at first, twice as long each time up to Max, and from the beginning
// after a container has run for twice that long. The zero value with Initial
// and Max set is ready. It belongs to one goroutine.
type BackOff struct {
	Initial time.Duration
	Max     time.Duration

	entries map[string]backOffEntry
}

type backOffEntry struct {
	delay   time.Duration
	updated time.Time
}

// Until returns when the container may start again after it ended at the
// given time, and the delay in force.
func (b *BackOff) Until(key string, finished time.Time) (time.Time, time.Duration) {
	entry, ok := b.entries[key]
	if !ok || finished.Sub(entry.updated) > 2*b.Max {
		return finished, 0
	}
	return finished.Add(entry.delay), entry.delay
}

// Started notes a restart at the given time, which lengthens the next delay.
func (b *BackOff) Started(key string, finished, now time.Time) {
	if b.entries == nil {
		b.entries = make(map[string]backOffEntry)
	}
	entry, ok := b.entries[key]
	if !ok || finished.Sub(entry.updated) > 2*b.Max {
		entry.delay = b.Initial
	} else {
		entry.delay = min(2*entry.delay, b.Max)
	}
	entry.updated = now
	b.entries[key] = entry
}
