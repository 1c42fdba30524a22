package metricsserver

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// usage holds the usage of a node and of its containers. It is immutable.
type usage struct {
	received time.Time // by this server's clock
	node     window
	pods     map[types.NamespacedName][]window
}

// precedes reports whether the usage was received before an object was created. If the object was
// created in the future, because the clock was set back since, it was not.
func (u *usage) precedes(created time.Time) bool {
	return u.received.Before(created) && !created.After(time.Now())
}

// window is a container, or a node without a name, with its last measurement
// and the one before it.
type window struct {
	name           string
	last, previous point // previous.at is 0 if there is none
}

// The bounds of windows.
const (
	minWindow = time.Second
	// A container that has just started is measured since its start. Before
	// minFresh, the start itself would count too much.
	minFresh = 10 * time.Second
	maxFresh = idlePeriod
)

// next returns the usage after one more sample. before may be nil.
func next(before *usage, s *sample, received time.Time) *usage {
	if before == nil || received.Sub(before.received) > maxAge {
		before = &usage{}
	}
	after := &usage{received: received, node: before.node.then("", s.node), pods: make(map[types.NamespacedName][]window, len(s.pods))}
	for pod, containers := range s.pods {
		// The sum over some containers would be taken for the usage of the pod.
		if slices.ContainsFunc(containers, func(c measured) bool { return !c.complete() }) {
			continue
		}
		windows := make([]window, len(containers))
		for i, c := range containers {
			windows[i] = find(before.pods[pod], c.name).then(c.name, c.point)
		}
		after.pods[pod] = windows
	}
	return after
}

func find(windows []window, name string) window {
	for _, w := range windows {
		if w.name == name {
			return w
		}
	}
	return window{}
}

// then returns the window that ends with p.
func (w window) then(name string, p point) window {
	// Else the container was restarted, or the node's clock set back.
	same := w.last.at != 0 && p.at >= w.last.at && p.start <= w.last.at && p.cpu >= w.last.cpu
	switch {
	case same && p.at-w.last.at >= int64(minWindow):
		return window{name: name, last: p, previous: w.last}
	case same:
		return w // the kubelet repeats itself, or was asked twice
	}
	w = window{name: name, last: p}
	if age := time.Duration(p.at - p.start); p.start > 0 && age >= minFresh && age < maxFresh {
		w.previous = point{at: p.start}
	}
	return w
}

// length returns the length of the window, or 0 if it is not known yet.
func (w *window) length() time.Duration {
	if length := time.Duration(w.last.at - w.previous.at); w.previous.at != 0 && length >= minWindow {
		return length
	}
	return 0
}

// resources returns the use of CPU on the average of the window, and of memory
// at its end. The window must have a length.
func (w *window) resources() corev1.ResourceList {
	nanocores := float64(w.last.cpu-w.previous.cpu) / w.length().Seconds()
	return corev1.ResourceList{
		corev1.ResourceCPU:    *quantity.NewScaledQuantity(int64(min(nanocores, math.MaxInt64/2)), quantity.Nano),
		corev1.ResourceMemory: *quantity.NewQuantity(int64(w.last.memory), quantity.BinarySI),
	}
}
