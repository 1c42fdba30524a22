package profile

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// sharedWaiting is the key of WaitingPods among what profiles share.
const sharedWaiting = "WaitingPods"

// WaitingPods implements framework.WaitingPods. All profiles of a scheduler
// share one: the pods of a gang may be of several profiles, and a pod of one
// profile may be the victim of another.
type WaitingPods struct {
	mu   sync.Mutex // guards pods
	pods map[types.UID]*waitingPod
}

func newWaitingPods() *WaitingPods { return &WaitingPods{pods: map[types.UID]*waitingPod{}} }

// Get implements framework.WaitingPods.
func (w *WaitingPods) Get(uid types.UID) framework.WaitingPod {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p, ok := w.pods[uid]; ok {
		return p
	}
	return nil
}

// All implements framework.WaitingPods.
func (w *WaitingPods) All() iter.Seq[framework.WaitingPod] {
	w.mu.Lock()
	pods := slices.Collect(maps.Values(w.pods))
	w.mu.Unlock()
	return func(yield func(framework.WaitingPod) bool) {
		for _, p := range pods {
			if !yield(p) {
				return
			}
		}
	}
}

func (w *WaitingPods) add(pod *framework.PodInfo, node string, waits map[string]time.Duration) {
	p := &waitingPod{pod: pod, node: node, began: time.Now(), pending: maps.Clone(waits), decided: make(chan *framework.Status, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[pod.Pod.UID] = p
}

func (w *WaitingPods) wait(ctx context.Context, uid types.UID) *framework.Status {
	w.mu.Lock()
	p := w.pods[uid]
	w.mu.Unlock()
	if p == nil {
		return nil
	}
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.pods, uid)
	}()
	for {
		timer := time.NewTimer(p.nextTimeout())
		select {
		case s := <-p.decided:
			timer.Stop()
			return s
		case <-timer.C:
			p.rejectTimedOut()
		case <-ctx.Done():
			timer.Stop()
			return framework.AsStatus("", ctx.Err())
		}
	}
}

// waitingPod implements framework.WaitingPod.
type waitingPod struct {
	pod     *framework.PodInfo
	node    string
	began   time.Time
	decided chan *framework.Status

	mu       sync.Mutex               // guards the following
	pending  map[string]time.Duration // how long each plugin waits
	allowed  bool                     // the decision, if there is one
	rejected bool
}

func (p *waitingPod) PodInfo() *framework.PodInfo { return p.pod }
func (p *waitingPod) Node() string                { return p.node }

func (p *waitingPod) PendingPlugins() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.pending))
}

func (p *waitingPod) Allow(plugin string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.pending, plugin); len(p.pending) == 0 {
		p.decide(nil)
	}
}

func (p *waitingPod) Reject(plugin, message string) bool {
	return p.end(framework.NewStatus(framework.Unschedulable, plugin, message))
}

func (p *waitingPod) Preempt(plugin, message string) bool {
	return p.end(framework.NewStatus(framework.Error, plugin, message))
}

// end ends the wait with a status that is no success. It returns false if the pod
// was allowed before.
func (p *waitingPod) end(s *framework.Status) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide(s)
	return p.rejected
}

// decide keeps the first decision, with the lock held.
func (p *waitingPod) decide(s *framework.Status) {
	if p.allowed || p.rejected {
		return
	}
	p.allowed, p.rejected = s.IsSuccess(), !s.IsSuccess()
	p.decided <- s
}

// nextTimeout is the time until the first plugin times out.
func (p *waitingPod) nextTimeout() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := framework.MaxPermitWait
	for _, wait := range p.pending {
		next = min(next, wait)
	}
	return next - time.Since(p.began)
}

// rejectTimedOut rejects the pod for a plugin that has waited long enough.
func (p *waitingPod) rejectTimedOut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, plugin := range slices.Sorted(maps.Keys(p.pending)) {
		if wait := p.pending[plugin]; time.Since(p.began) >= wait {
			p.decide(framework.NewStatus(framework.Unschedulable, plugin, fmt.Sprintf("rejected due to timeout after waiting %v at plugin %v", wait, plugin)))
		}
	}
}
