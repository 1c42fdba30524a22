// Package pods answers questions about pods that several controllers have:
// readiness and availability, which pods to delete first, the pods of a node
// and the Services of a pod.
package pods

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/wallclock"
)

// ReadySince returns when a pod became ready, or zero if it is not ready.
func ReadySince(p *v1.Pod) metav1.Time {
	if c := podquery.Condition(&p.Status, v1.PodReady); c != nil && c.Status == v1.ConditionTrue {
		return c.LastTransitionTime
	}
	return metav1.Time{}
}

// Readiness remembers since when the pods of owners are ready, for their availability. Kubelets
// write these times, whose clocks may differ and may be set; see wallclock.Moments. The zero
// value is empty.
type Readiness struct {
	mu     sync.Mutex // guards owners
	owners map[cache.ObjectName]Since
}

// Since holds since when the pods of an owner are ready. It does not change. Of a pod that it
// does not hold, the stored time counts.
type Since map[types.UID]since

type since struct{ stored, at time.Time }

// Of returns since when the pods of an owner are ready, and forgets its other pods. Pods that need
// not be ready for any time are available at once, and nothing is remembered of them.
func (r *Readiness) Of(owner cache.ObjectName, pods []*v1.Pod, minReadySeconds int32, now time.Time) Since {
	if minReadySeconds == 0 {
		r.Forget(owner)
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	next := Since{}
	for _, p := range pods {
		stored := ReadySince(p)
		if stored.IsZero() {
			continue
		}
		known, ok := r.owners[owner][p.UID]
		if !ok || !known.stored.Equal(stored.Time) {
			known = since{stored.Time, wallclock.Past(stored.Time, now)}
		}
		next[p.UID] = known
	}
	if r.owners == nil {
		r.owners = map[cache.ObjectName]Since{}
	}
	r.owners[owner] = next
	return next
}

// Forget drops what is remembered of the pods of an owner.
func (r *Readiness) Forget(owner cache.ObjectName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.owners, owner)
}

// AvailableIn returns the time from now until a pod has been ready for
// minReadySeconds, or 0 if it is already available. ok is false if the pod is
// not ready.
func (s Since) AvailableIn(p *v1.Pod, minReadySeconds int32, now time.Time) (wait time.Duration, ok bool) {
	if !podquery.IsReady(p) {
		return 0, false
	}
	if minReadySeconds == 0 {
		return 0, true
	}
	stored := ReadySince(p)
	if stored.IsZero() {
		return 0, false
	}
	at := stored.Time
	if known, ok := s[p.UID]; ok && known.stored.Equal(at) {
		at = known.at
	}
	return max(0, at.Add(time.Duration(minReadySeconds)*time.Second).Sub(now)), true
}

// IsAvailable reports whether a pod has been ready for minReadySeconds.
func (s Since) IsAvailable(p *v1.Pod, minReadySeconds int32, now time.Time) bool {
	wait, ready := s.AvailableIn(p, minReadySeconds, now)
	return ready && wait == 0
}
