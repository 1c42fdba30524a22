package plan

import (
	"encoding/json"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
)

// ShouldRestart says whether a container that ended with the given code is to
// run again: by its own rules and policy (KEP-5307), else by the pod's.
func ShouldRestart(pod *v1.Pod, c *v1.Container, exitCode int32) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	for _, rule := range c.RestartPolicyRules {
		if rule.ExitCodes == nil {
			continue
		}
		in := slices.Contains(rule.ExitCodes.Values, exitCode)
		if in == (rule.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
			return true
		}
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
