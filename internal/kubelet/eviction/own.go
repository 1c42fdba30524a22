package eviction

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/podquery"
)

// Own is the memory of the kubelet's own process, which is not that of its pods.
type Own struct {
	Limit int64 // in bytes
	// Shortage returns why the kubelet has no room for more; nil if it has.
	Shortage func() error
	// Kept returns roughly how many bytes the kubelet keeps for a pod.
	Kept func(pod *v1.Pod) int64
}

const (
	// ownShare divides the limit: a pod for which the kubelet keeps less than that
	// part does not cause the shortage, and is not evicted for it. Any user can make a
	// pod critical: such a pod may cost more, but not any amount.
	ownShare, ownShareOfCritical = 256, 16
	// ownPause is the least time between two evictions for the kubelet's memory. Go
	// collects garbage at least once in it, which shows what the last one has freed.
	ownPause = 2 * time.Minute
	// ownSignal is the label of these evictions in metrics.
	ownSignal = "kubelet.memory"
)

// costliest returns the pod for which the kubelet keeps the most, and how much, if
// that is at least an ownShare-th of the limit; nil if there is none.
func (o *Own) costliest(pods []*v1.Pod) (worst *v1.Pod, bytes int64) {
	for _, p := range pods {
		least := o.Limit / ownShare
		if podquery.IsCritical(p) {
			least = o.Limit / ownShareOfCritical
		}
		if kept := o.Kept(p); kept >= least && kept > bytes {
			worst, bytes = p, kept
		}
	}
	return worst, bytes
}

// relieveOwn evicts the pod for which the kubelet keeps the most, because of a
// shortage of its own memory. All other pods stay.
func (m *Manager) relieveOwn(ctx context.Context, shortage error) {
	if m.ending(immediateGracePeriod) || time.Since(m.ownAt) < ownPause {
		return
	}
	worst, bytes := m.config.Own.costliest(m.config.Pods.Evictable(immediateGracePeriod, true))
	if worst == nil {
		klog.FromContext(ctx).Info("The kubelet is short of memory, and no pod is the reason: no further pods start", "err", shortage)
		return
	}
	m.config.Recorder.Eventf(node.Reference(m.config.NodeName), v1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim memory of the kubelet")
	m.ownAt = time.Now()
	m.note(worst, immediateGracePeriod)
	m.evict(worst, eviction{
		signal: ownSignal, grace: immediateGracePeriod, disrupted: true,
		message: fmt.Sprintf("The kubelet was low on memory: %v. It kept about %s for this pod, more than for any other. ",
			shortage, resource.NewQuantity(bytes, resource.BinarySI)),
	})
}
