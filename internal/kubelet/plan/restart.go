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
	"github.com/coracle-io/coracle/internal/podquery"
)

// ShouldRestart reports whether the kubelet restarts a container that exited with
// the given code.
func ShouldRestart(pod *v1.Pod, c *v1.Container, exitCode int32) bool {
	return pod.DeletionTimestamp == nil && podquery.Restarts(&pod.Spec, c, exitCode)
}

// Discard determines the pod's round and marks the containers of earlier rounds.
// A round ends when one of its containers exits with a code that restarts all
// containers (KEP-5532), no matter when the others were created. In the next
// round all init and regular containers run again, including those that had
// completed. The sandbox and the ephemeral containers stay.
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
	c := podquery.Container(&pod.Spec, ended.Name)
	if c == nil {
		return false
	}
	rule := podquery.RestartRule(c, ended.ExitCode)
	return rule != nil && rule.Action == v1.ContainerRestartRuleActionRestartAllContainers
}

func isEphemeral(pod *v1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c v1.EphemeralContainer) bool { return c.Name == name })
}

// killDiscarded plans to kill the discarded containers that still run, without
// grace periods, and reports whether there are any.
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

// Hash returns a hash of the fields of a container that cannot change without a
// restart: its name and image.
func Hash(c *v1.Container) string {
	raw, err := json.Marshal(map[string]string{"image": c.Image, "name": c.Name})
	if err != nil {
		return ""
	}
	h := fnv.New32a()
	_, _ = h.Write(raw)
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// stableAfter is how long a container has to run until its back-off begins anew,
// whatever the longest back-off is, as in upstream.
const stableAfter = 10 * time.Minute

// BackOff is the back-off between restarts of the containers of one pod:
// Initial at first, doubled with each restart up to Max, and reset after a
// container has run for ten minutes. The zero value with Initial and Max set is
// ready to use. It belongs to one goroutine.
type BackOff struct {
	Initial time.Duration
	Max     time.Duration

	entries map[string]backOffEntry
}

type backOffEntry struct {
	delay   time.Duration
	updated time.Time
	// until is the answer for the exit at finished.
	finished, until time.Time
}

// Until returns when the container may restart after it exited at the given
// time, and the current back-off. The clock may be set while a container waits:
// the time that has passed since the exit is computed once, and is never
// negative.
func (b *BackOff) Until(key string, finished, now time.Time) (time.Time, time.Duration) {
	entry, ok := b.entries[key]
	if !ok || finished.Sub(entry.updated) > stableAfter {
		return now, 0
	}
	if !entry.finished.Equal(finished) {
		entry.finished, entry.until = finished, now.Add(entry.delay-max(now.Sub(finished), 0))
		b.entries[key] = entry
	}
	return entry.until, entry.delay
}

// Started records a restart, which doubles the next back-off.
func (b *BackOff) Started(key string, finished, now time.Time) {
	if b.entries == nil {
		b.entries = make(map[string]backOffEntry)
	}
	entry, ok := b.entries[key]
	if !ok || finished.Sub(entry.updated) > stableAfter {
		entry.delay = b.Initial
	} else {
		entry.delay = min(2*entry.delay, b.Max)
	}
	entry.updated, entry.finished = now, time.Time{}
	b.entries[key] = entry
}
