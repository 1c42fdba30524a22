// Package pods answers questions about pods that several controllers have:
// readiness and availability, which pods to delete first, the pods of a node
// and the Services of a pod.
package pods

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/podquery"
)

// ReadySince returns when a pod became ready, or zero if it is not ready.
func ReadySince(p *v1.Pod) metav1.Time {
	if c := podquery.Condition(&p.Status, v1.PodReady); c != nil && c.Status == v1.ConditionTrue {
		return c.LastTransitionTime
	}
	return metav1.Time{}
}

// AvailableIn returns the time from now until a pod has been ready for
// minReadySeconds, or 0 if it is already available. ok is false if the pod is
// not ready.
func AvailableIn(p *v1.Pod, minReadySeconds int32, now time.Time) (wait time.Duration, ok bool) {
	if !podquery.IsReady(p) {
		return 0, false
	}
	if minReadySeconds == 0 {
		return 0, true
	}
	since := ReadySince(p)
	if since.IsZero() {
		return 0, false
	}
	return max(0, since.Add(time.Duration(minReadySeconds)*time.Second).Sub(now)), true
}

// IsAvailable reports whether a pod has been ready for minReadySeconds.
func IsAvailable(p *v1.Pod, minReadySeconds int32, now time.Time) bool {
	wait, ready := AvailableIn(p, minReadySeconds, now)
	return ready && wait == 0
}
