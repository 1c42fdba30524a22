// Package pods has what controllers of pods share: since when a pod is ready,
// making pods from templates, choosing which to delete, and remembering what
// the cache does not show yet.
package pods

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podutil "github.com/coracle-io/coracle/internal/pod"
)

// ReadySince is when a pod became ready; zero if it is not ready.
func ReadySince(p *v1.Pod) metav1.Time {
	if c := podutil.Condition(&p.Status, v1.PodReady); c != nil && c.Status == v1.ConditionTrue {
		return c.LastTransitionTime
	}
	return metav1.Time{}
}

// AvailableIn says how long it takes, from now, until a pod has been ready
// for minReadySeconds: 0 if it is available already. ok is false if the pod
// is not ready.
func AvailableIn(p *v1.Pod, minReadySeconds int32, now time.Time) (wait time.Duration, ok bool) {
	if !podutil.IsReady(p) {
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
