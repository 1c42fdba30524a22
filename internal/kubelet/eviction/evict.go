// Package eviction decides when a node is short of memory, disk or processes and
// which pod has to go first, and evicts it. It stands for upstream's eviction
// manager.
//
//	machine ─► thresholds ─► State ─► conditions of the node
//	                           └────► FreeImages, or Rank ─► Evict
package eviction

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/kubelet/node"
)

// The signals that thresholds watch.
const (
	MemoryAvailable   = "memory.available"
	NodeFsAvailable   = "nodefs.available"
	NodeFsInodesFree  = "nodefs.inodesFree"
	ImageFsAvailable  = "imagefs.available"
	ImageFsInodesFree = "imagefs.inodesFree"
	PIDAvailable      = "pid.available"
)

// What can run short and nobody can request.
const (
	PIDs   v1.ResourceName = "pids"
	Inodes v1.ResourceName = "inodes"
)

// Threshold is one limit of a signal.
type Threshold struct {
	Signal  string
	Value   resource.Quantity // absolute, unless Percent is set
	Percent float64           // of the total
	// Grace is how long the limit must be passed before pods go; 0 is hard.
	Grace time.Duration
	// Reclaim is how far above the limit what is left must be before a limit
	// that was passed counts as kept again; a part of the total if
	// ReclaimPercent is set.
	Reclaim        resource.Quantity
	ReclaimPercent float64
}

// Parse reads thresholds as KubeletConfiguration has them: signal to quantity
// or percentage, with the grace periods of soft ones.
func Parse(values, grace map[string]string) ([]Threshold, error) {
	var out []Threshold
	for signal, text := range values {
		t := Threshold{Signal: signal}
		switch signal {
		case MemoryAvailable, NodeFsAvailable, NodeFsInodesFree, ImageFsAvailable, ImageFsInodesFree, PIDAvailable:
		default:
			return nil, fmt.Errorf("unsupported eviction signal %v", signal)
		}
		var err error
		if t.Value, t.Percent, err = quantityOrPart("eviction threshold", signal, text); err != nil {
			return nil, err
		}
		if t.Percent == 0 && t.Value.IsZero() {
			continue
		}
		if grace != nil {
			d, err := time.ParseDuration(grace[signal])
			if err != nil || d <= 0 {
				return nil, fmt.Errorf("grace period must be specified for the soft eviction threshold %v", signal)
			}
			t.Grace = d
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b Threshold) int { return strings.Compare(a.Signal, b.Signal) })
	return out, nil
}

// quantityOrPart reads a quantity or a percentage.
func quantityOrPart(what, signal, text string) (absolute resource.Quantity, part float64, err error) {
	if number, ok := strings.CutSuffix(text, "%"); ok {
		p, err := strconv.ParseFloat(number, 64)
		if err != nil || p < 0 || p > 100 {
			return absolute, 0, fmt.Errorf("%s %v must be a number from 0%% to 100%%: %s", what, signal, text)
		}
		return absolute, p / 100, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 {
		return absolute, 0, fmt.Errorf("%s %v must be a quantity that is not negative: %s", what, signal, text)
	}
	return q, 0, nil
}

// Reclaim gives thresholds the least that is to be freed once they are passed
// (evictionMinimumReclaim: signal to quantity or percentage).
func Reclaim(thresholds []Threshold, minimum map[string]string) ([]Threshold, error) {
	out := slices.Clone(thresholds)
	for signal, text := range minimum {
		absolute, part, err := quantityOrPart("minimum reclaim of", signal, text)
		if err != nil {
			return thresholds, err
		}
		for i := range out {
			if out[i].Signal == signal {
				out[i].Reclaim, out[i].ReclaimPercent = absolute, part
			}
		}
	}
	return out, nil
}

// measure returns what is left and what there is of a signal.
func measure(signal string, f node.Free) (left, total int64) {
	switch signal {
	case MemoryAvailable:
		return f.MemoryBytes, f.MemoryTotal
	case NodeFsAvailable, ImageFsAvailable:
		return f.DiskBytes, f.DiskTotal
	case NodeFsInodesFree, ImageFsInodesFree:
		return f.Inodes, f.InodesTotal
	case PIDAvailable:
		return f.PIDs, f.PIDsTotal
	}
	return 0, 0
}

func (t *Threshold) limit(total int64) int64 {
	if t.Percent > 0 {
		return int64(t.Percent * float64(total))
	}
	return t.Value.Value()
}

// reclaim is what has to be left above the limit for it to be kept again.
func (t *Threshold) reclaim(total int64) int64 {
	if t.ReclaimPercent > 0 {
		return int64(t.ReclaimPercent * float64(total))
	}
	return t.Reclaim.Value()
}

// State remembers since when thresholds are passed. It belongs to one goroutine.
type State struct {
	Transition time.Duration // how long a pressure stays after it was last seen

	since map[Threshold]time.Time
	last  map[string]time.Time
	now   map[string]bool // the conditions of the thresholds passed at the last look
}

// Passed returns the thresholds that are passed now. One that was passed at
// the last look stays so until its minimum is freed above it.
func (s *State) Passed(thresholds []Threshold, f node.Free) []Threshold {
	var out []Threshold
	for _, t := range thresholds {
		left, total := measure(t.Signal, f)
		limit := t.limit(total)
		if _, before := s.since[t]; before {
			limit += t.reclaim(total)
		}
		if total > 0 && left < limit {
			out = append(out, t)
		}
	}
	return out
}

// Look takes the thresholds passed now and returns the one to act on first, if
// any: memory before disk before processes.
func (s *State) Look(passed []Threshold, now time.Time) *Threshold {
	if s.last == nil {
		s.last = map[string]time.Time{}
	}
	since := map[Threshold]time.Time{}
	s.now = map[string]bool{}
	var due *Threshold
	for i, t := range passed {
		begin, ok := s.since[t]
		if !ok {
			begin = now
		}
		since[t] = begin
		s.last[condition(t.Signal)] = now
		s.now[condition(t.Signal)] = true
		if now.Sub(begin) >= t.Grace && (due == nil || t.Signal == MemoryAvailable) {
			due = &passed[i]
		}
	}
	s.since = since
	return due
}

// Under says whether the node is or has just been short of a condition's resource.
func (s *State) Under(c v1.NodeConditionType, now time.Time) bool {
	last, ok := s.last[string(c)]
	return s.now[string(c)] || ok && now.Sub(last) < s.Transition
}

func condition(signal string) string {
	switch signal {
	case MemoryAvailable:
		return string(v1.NodeMemoryPressure)
	case PIDAvailable:
		return string(v1.NodePIDPressure)
	}
	return string(v1.NodeDiskPressure)
}

// Resource is the resource that a signal is about.
func Resource(signal string) v1.ResourceName {
	switch signal {
	case MemoryAvailable:
		return v1.ResourceMemory
	case PIDAvailable:
		return PIDs
	case NodeFsInodesFree, ImageFsInodesFree:
		return Inodes
	}
	return v1.ResourceEphemeralStorage
}

// Candidate is a pod with what it uses of the short resource.
type Candidate struct {
	Pod        *v1.Pod
	Used       int64
	Containers map[string]int64 // of Used, where it is known by container
	Uncounted  error            // why it may use more than Used; nil if it does not
}

// Rank orders candidates by who goes first: those that use more than they
// asked for, then by lower priority, then by how far they are above their
// request. A pod whose use cannot be counted counts as using everything: it
// made the files that hide the rest.
func Rank(candidates []Candidate, name v1.ResourceName) []Candidate {
	excess := func(c Candidate) int64 {
		if c.Uncounted != nil {
			return math.MaxInt64
		}
		requests := resourcehelper.PodRequests(c.Pod, resourcehelper.PodResourcesOptions{})
		q := requests[name]
		return c.Used - amount.Value(q)
	}
	priority := func(c Candidate) int32 {
		if c.Pod.Spec.Priority == nil {
			return 0
		}
		return *c.Pod.Spec.Priority
	}
	out := slices.Clone(candidates)
	slices.SortStableFunc(out, func(a, b Candidate) int {
		x, y := excess(a), excess(b)
		if (x > 0) != (y > 0) {
			if x > 0 {
				return -1
			}
			return 1
		}
		if p, q := priority(a), priority(b); p != q {
			if p < q {
				return -1
			}
			return 1
		}
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return out
}

// Message is what an evicted pod's status says, and the annotations of the
// event about it.
func Message(t *Threshold, f node.Free, c Candidate) (string, map[string]string) {
	left, total := measure(t.Signal, f)
	format := resource.BinarySI
	if t.Signal == PIDAvailable || strings.HasSuffix(t.Signal, "inodesFree") {
		format = resource.DecimalSI
	}
	name := Resource(t.Signal)
	message := fmt.Sprintf("The node was low on resource: %s. Threshold quantity: %s, available: %s. ", name,
		resource.NewQuantity(t.limit(total), format), resource.NewQuantity(left, format))
	var containers, usage []string
	for i := range c.Pod.Spec.Containers {
		container := &c.Pod.Spec.Containers[i]
		used, known := c.Containers[container.Name]
		request := container.Resources.Requests[name]
		if !known || used <= amount.Value(request) {
			continue
		}
		amount := resource.NewQuantity(used, format).String()
		message += fmt.Sprintf("Container %s was using %s, request is %s, has larger consumption of %s. ", container.Name, amount, request.String(), name)
		containers, usage = append(containers, container.Name), append(usage, amount)
	}
	return message, annotations(name, containers, usage)
}
