// Package eviction is the eviction manager: it decides when a node is short of
// memory, disk or processes, ranks the pods and evicts the first. It stands for
// upstream's eviction manager.
//
//	machine ─► thresholds ─► thresholdState ─► conditions of the node
//	                           └────► FreeContainers, FreeImages, EndPulls, or rank ─► Evict
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
	"github.com/coracle-io/coracle/internal/podquery"
)

// The signals that thresholds watch.
const (
	memoryAvailable   = "memory.available"
	nodeFsAvailable   = "nodefs.available"
	nodeFsInodesFree  = "nodefs.inodesFree"
	imageFsAvailable  = "imagefs.available"
	imageFsInodesFree = "imagefs.inodesFree"
	pidAvailable      = "pid.available"
	// The file system of the writable layers. Its thresholds are those of another one.
	containerFsAvailable  = "containerfs.available"
	containerFsInodesFree = "containerfs.inodesFree"
	// What all pods together have left of their memory. No configuration names it.
	allocatableMemoryAvailable = "allocatableMemory.available"
)

// Resources that can run short and cannot be requested.
const (
	pids   v1.ResourceName = "pids"
	inodes v1.ResourceName = "inodes"
)

// Threshold is one eviction threshold.
type Threshold struct {
	Signal  string
	Value   resource.Quantity // absolute, unless Percent is set
	Percent float64           // of the total
	// Grace is how long the threshold must be exceeded before pods are evicted.
	// 0 is a hard threshold.
	Grace time.Duration
	// Reclaim is how far the signal must rise above the threshold before it
	// counts as met again. If ReclaimPercent is set, it is that part of the
	// total.
	Reclaim        resource.Quantity
	ReclaimPercent float64
}

// parseThresholds reads thresholds in the form of KubeletConfiguration: from signal to
// quantity or percentage, with the grace periods of soft thresholds. As
// upstream does, it ignores 0, 0% and 100%, and containerfs.
func parseThresholds(values, grace map[string]string) ([]Threshold, error) {
	var out []Threshold
	periods := make(map[string]time.Duration, len(grace))
	for signal, text := range grace {
		if err := checkSignal(signal); err != nil {
			return nil, fmt.Errorf("grace period: %w", err)
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return nil, fmt.Errorf("invalid eviction grace period specified: %s %q must be a duration that is not negative", signal, text)
		}
		periods[signal] = d
	}
	for signal, text := range values {
		t := Threshold{Signal: signal}
		if err := checkSignal(signal); err != nil {
			return nil, err
		}
		var err error
		if t.Value, t.Percent, err = quantityOrPart("eviction threshold", signal, text); err != nil {
			return nil, err
		}
		if t.Percent == 0 && t.Value.IsZero() || t.Percent == 1 {
			continue
		}
		if grace != nil {
			period, ok := periods[signal]
			if !ok {
				return nil, fmt.Errorf("grace period must be specified for the soft eviction threshold %v", signal)
			}
			t.Grace = period
		}
		if !isContainerFs(signal) {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b Threshold) int { return strings.Compare(a.Signal, b.Signal) })
	return out, nil
}

// checkSignal returns an error for a signal that no threshold can watch.
func checkSignal(signal string) error {
	switch signal {
	case memoryAvailable, nodeFsAvailable, nodeFsInodesFree, imageFsAvailable, imageFsInodesFree, containerFsAvailable, containerFsInodesFree, pidAvailable:
		return nil
	}
	return fmt.Errorf("unsupported eviction signal %v", signal)
}

// quantityOrPart parses a quantity or a percentage.
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

// withMinimumReclaim sets the minimum reclaim of thresholds (evictionMinimumReclaim: from
// signal to quantity or percentage).
func withMinimumReclaim(thresholds []Threshold, minimum map[string]string) ([]Threshold, error) {
	out := slices.Clone(thresholds)
	for signal, text := range minimum {
		if err := checkSignal(signal); err != nil {
			return thresholds, err
		}
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

// ofPods returns thresholds for the memory of all pods together: the hard ones for the
// memory of the machine. Pods are evicted before the kernel kills one that meets the
// limit of all.
func ofPods(thresholds []Threshold) (out []Threshold) {
	for _, t := range thresholds {
		if t.Signal == memoryAvailable && t.Grace == 0 {
			t.Signal = allocatableMemoryAvailable
			out = append(out, t)
		}
	}
	return out
}

// measure returns what is left of a signal, and the total.
func measure(signal string, f node.Free) (left, total int64) {
	switch signal {
	case memoryAvailable:
		return f.MemoryBytes, f.MemoryTotal
	case allocatableMemoryAvailable:
		return f.PodsMemoryBytes, f.PodsMemoryTotal
	case nodeFsAvailable:
		return f.DiskBytes, f.DiskTotal
	case nodeFsInodesFree:
		return f.Inodes, f.InodesTotal
	case imageFsAvailable:
		return f.Images.Bytes, f.Images.Total
	case imageFsInodesFree:
		return f.Images.Inodes, f.Images.InodesTotal
	case containerFsAvailable:
		return f.Containers.Bytes, f.Containers.Total
	case containerFsInodesFree:
		return f.Containers.Inodes, f.Containers.InodesTotal
	case pidAvailable:
		return f.PIDs, f.PIDsTotal
	}
	return 0, 0
}

// limit returns the value of the threshold for a total.
func (t *Threshold) limit(total int64) int64 {
	if t.Percent > 0 {
		return int64(t.Percent * float64(total))
	}
	return t.Value.Value()
}

// reclaim returns how far above the limit a signal must rise again.
func (t *Threshold) reclaim(total int64) int64 {
	if t.ReclaimPercent > 0 {
		return int64(t.ReclaimPercent * float64(total))
	}
	return t.Reclaim.Value()
}

// thresholdState is the state of the thresholds between two observations. It belongs to
// one goroutine.
type thresholdState struct {
	Transition time.Duration // how long a pressure condition stays true after it was last observed

	since map[Threshold]time.Time
	due   map[Threshold]bool // thresholds that were exceeded for their grace periods
	last  map[string]time.Time
	now   map[string]bool // conditions of the thresholds that are exceeded now
}

// thresholdsMet returns the thresholds that are exceeded now. A threshold that was
// exceeded for its grace period at the last observation stays so until its minimum is
// reclaimed.
func (s *thresholdState) thresholdsMet(thresholds []Threshold, f node.Free) []Threshold {
	var out []Threshold
	for _, t := range thresholds {
		left, total := measure(t.Signal, f)
		limit := t.limit(total)
		if s.due[t] {
			limit += t.reclaim(total)
		}
		if total > 0 && left < limit {
			out = append(out, t)
		}
	}
	return out
}

// observe records the thresholds that are exceeded now and returns the one to act
// on first, if any. Memory comes before everything else, and of several thresholds
// the first in met, which has the hard ones before the soft ones.
func (s *thresholdState) observe(met []Threshold, now time.Time) *Threshold {
	if s.last == nil {
		s.last = map[string]time.Time{}
	}
	since, due := map[Threshold]time.Time{}, map[Threshold]bool{}
	s.now = map[string]bool{}
	var first *Threshold
	for i, t := range met {
		begin, ok := s.since[t]
		if !ok {
			begin = now
		}
		since[t] = begin
		s.last[condition(t.Signal)] = now
		s.now[condition(t.Signal)] = true
		if now.Sub(begin) < t.Grace {
			continue
		}
		due[t] = true
		if first == nil || resourceOf(t.Signal) == v1.ResourceMemory && resourceOf(first.Signal) != v1.ResourceMemory {
			first = &met[i]
		}
	}
	s.since, s.due = since, due
	return first
}

// note records a pressure condition that is true now and that no threshold has
// found.
func (s *thresholdState) note(c v1.NodeConditionType, now time.Time) {
	s.last[string(c)], s.now[string(c)] = now, true
}

// hasNodeCondition reports whether a pressure condition is true.
func (s *thresholdState) hasNodeCondition(c v1.NodeConditionType, now time.Time) bool {
	last, ok := s.last[string(c)]
	return s.now[string(c)] || ok && now.Sub(last) < s.Transition
}

func condition(signal string) string {
	switch signal {
	case memoryAvailable, allocatableMemoryAvailable:
		return string(v1.NodeMemoryPressure)
	case pidAvailable:
		return string(v1.NodePIDPressure)
	}
	return string(v1.NodeDiskPressure)
}

// resourceOf returns the resource of a signal.
func resourceOf(signal string) v1.ResourceName {
	switch signal {
	case memoryAvailable, allocatableMemoryAvailable:
		return v1.ResourceMemory
	case pidAvailable:
		return pids
	case nodeFsInodesFree, imageFsInodesFree, containerFsInodesFree:
		return inodes
	}
	return v1.ResourceEphemeralStorage
}

// candidate is a pod with its usage of the resource that is short.
type candidate struct {
	Pod        *v1.Pod
	Used       int64
	Containers map[string]int64 // parts of Used, if known by container
	Uncounted  error            // why the pod may use more than Used; nil if it does not
}

// rank sorts candidates in the order of eviction: first pods that use more than
// their requests, then by priority, then by usage above the request. A pod
// whose usage cannot be counted ranks as using everything, because it made the
// files that hide the rest.
func rank(candidates []candidate, name v1.ResourceName) []candidate {
	excess := make(map[*v1.Pod]int64, len(candidates))
	for _, c := range candidates {
		excess[c.Pod] = math.MaxInt64
		if c.Uncounted == nil {
			requests := resourcehelper.PodRequests(c.Pod, resourcehelper.PodResourcesOptions{})
			excess[c.Pod] = c.Used - amount.Value(requests[name])
		}
	}
	priority := func(c candidate) int32 {
		if c.Pod.Spec.Priority == nil {
			return 0
		}
		return *c.Pod.Spec.Priority
	}
	out := slices.Clone(candidates)
	slices.SortStableFunc(out, func(a, b candidate) int {
		x, y := excess[a.Pod], excess[b.Pod]
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

// evictionMessage returns the status message of an evicted pod, and the annotations of
// its event. They name the containers that use more than they request, and the pod if it
// requests memory as a whole. Ephemeral containers, which request nothing, are not among
// them.
func evictionMessage(t *Threshold, f node.Free, c candidate) (string, map[string]string) {
	left, total := measure(t.Signal, f)
	format := resource.BinarySI
	if t.Signal == pidAvailable || strings.HasSuffix(t.Signal, "inodesFree") {
		format = resource.DecimalSI
	}
	name, threshold := resourceOf(t.Signal), t.Value.DeepCopy()
	if t.Percent > 0 {
		threshold = *resource.NewQuantity(t.limit(total), resource.BinarySI)
	}
	message := fmt.Sprintf("The node was low on resource: %s. Threshold quantity: %s, available: %s. ", name, threshold.String(), resource.NewQuantity(left, format))
	about := map[string]string{starvedResource: string(name)}
	if whole := c.Pod.Spec.Resources; name == v1.ResourceMemory && whole != nil && c.Used > 0 {
		if request, ok := whole.Requests[name]; ok {
			used := resource.NewQuantity(c.Used, format).String()
			message += fmt.Sprintf("Pod %s was using %s, request is %s, has larger consumption of %s. ", c.Pod.Name, used, request.String(), name)
			about[offendingPod], about[offendingPodUsage] = c.Pod.Name, used
		}
	}
	var containers, usage []string
	for container := range podquery.Containers(&c.Pod.Spec) {
		used, known := c.Containers[container.Name]
		request := container.Resources.Requests[name]
		if !known || used <= amount.Value(request) {
			continue
		}
		amount := resource.NewQuantity(used, format).String()
		message += fmt.Sprintf("Container %s was using %s, request is %s, has larger consumption of %s. ", container.Name, amount, request.String(), name)
		containers, usage = append(containers, container.Name), append(usage, amount)
	}
	about[offendingContainers], about[offendingContainersUsage] = strings.Join(containers, ","), strings.Join(usage, ",")
	return message, about
}
