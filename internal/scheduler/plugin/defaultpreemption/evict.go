package defaultpreemption

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/poddisruption"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/supervise"
)

const (
	// evictionTries is how often an eviction is tried. The pauses between
	// tries double, beginning with evictionPause.
	evictionTries = 3
	evictionPause = time.Second
	// maxEvictions is how many victims are evicted at a time.
	maxEvictions = 64
)

// reserve nominates the pod, and takes the victims for terminating.
func (p *plugin) reserve(pod *framework.PodInfo, c *candidate) {
	p.handle.Nominator.AddNominatedPod(pod, c.node)
	if len(c.victims) > 0 {
		p.begin(pod.Pod.UID, c)
	}
}

// preempt evicts the victims in a goroutine. Until that is done the pod is gated.
// Pods of lower priority that are nominated for the node lose their nomination. group is
// whether the pod is decided with its group.
func (p *plugin) preempt(ctx context.Context, pod *framework.PodInfo, c *candidate, group bool) {
	if p.handle.Preemptions != nil {
		p.handle.Preemptions.Chosen(group, len(c.victims), c.violations)
	}
	for _, other := range p.handle.Nominator.NominatedPodsForNode(c.node) {
		if other.Priority < pod.Priority && other.Pod.UID != pod.Pod.UID {
			p.handle.Nominator.DeleteNominatedPod(other.Pod.UID)
			if p.handle.WriteNomination != nil {
				p.handle.WriteNomination(ctx, other)
			}
		}
	}
	if len(c.victims) == 0 {
		return
	}
	supervise.Go(ctx, func() {
		left, began := c.victims, time.Now()
		defer func() {
			p.end(pod.Pod, left)
			if p.handle.Preemptions != nil {
				p.handle.Preemptions.Executed(group, len(left) == 0, time.Since(began))
			}
		}()
		for _, victim := range c.victims {
			if !p.tryToEvict(ctx, pod.Pod, victim.Pod, c.node) {
				return
			}
			left = left[1:]
		}
	})
}

// begin notes the victims of a preemption and gates the pod.
func (p *plugin) begin(preemptor types.UID, c *candidate) {
	p.mu.Lock()
	p.preempting[preemptor] = &preemption{}
	r := &room{node: c.node, victims: make(map[types.UID]bool, len(c.victims))}
	for _, one := range c.victims {
		p.gone(one.Pod.UID) // an extender may choose it a second time
		p.evicting[one.Pod.UID] = victim{c.node, preemptor}
		p.evictingOn[c.node]++
		r.victims[one.Pod.UID] = true
	}
	p.rooms[preemptor] = r
	p.mu.Unlock()
	view := p.budgets.view()
	for _, victim := range c.victims {
		view.take(victim.Pod)
	}
}

// withdraw undoes reserve.
func (p *plugin) withdraw(pod types.UID, c *candidate) {
	p.handle.Nominator.DeleteNominatedPod(pod)
	if len(c.victims) == 0 {
		return
	}
	for _, victim := range c.victims {
		p.budgets.giveBack(victim.Pod)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, victim := range c.victims {
		p.gone(victim.Pod.UID)
	}
	delete(p.preempting, pod)
}

// end notes that a preemption is over, and that the victims that are left were
// not evicted. If there are any, or the pod was gated, the pod is tried again
// at once; otherwise the deletion of the victims wakes it.
func (p *plugin) end(preemptor *v1.Pod, left []*framework.PodInfo) {
	for _, victim := range left {
		p.budgets.giveBack(victim.Pod)
	}
	p.mu.Lock()
	for _, victim := range left {
		p.gone(victim.Pod.UID)
	}
	ended := p.preempting[preemptor.UID] // nil if an earlier preemption for the same pod has removed it
	delete(p.preempting, preemptor.UID)
	p.mu.Unlock()
	if len(left) > 0 || ended != nil && ended.gated {
		p.handle.Queue.Activate(preemptor)
	}
}

// tryToEvict evicts a victim, if need be in several tries. It gives up when
// the node is no longer reserved for the preemptor, which was deleted or lost
// the node to a pod of higher priority.
func (p *plugin) tryToEvict(ctx context.Context, preemptor, victim *v1.Pod, node string) bool {
	pause := evictionPause
	for try := 1; ; try++ {
		if ctx.Err() != nil || p.handle.Nominator.NominatedNode(preemptor.UID) != node {
			return false
		}
		err := p.evict(ctx, preemptor, victim, node)
		if err == nil {
			return true
		}
		if try == evictionTries {
			klog.FromContext(ctx).Error(err, "Preemption failed", "pod", klog.KObj(preemptor), "node", node)
			return false
		}
		supervise.Pause(ctx, pause)
		pause *= 2
	}
}

// lost takes a victim that ended before it was evicted from the preemptor's room:
// its end may have been seen before it was chosen, so that no event follows.
func (p *plugin) lost(preemptor, victim types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(preemptor, victim)
}

// interrupt sends a victim back to the queue whose binding has not begun. It returns
// false if the victim must be deleted.
func (p *plugin) interrupt(victim types.UID) bool {
	if w := p.handle.WaitingPods.Get(victim); w != nil && w.Preempt(Name, "preempted") {
		p.mu.Lock()
		p.gone(victim) // it may be assumed again
		p.mu.Unlock()
		return true
	}
	// The end of its attempt is an event, with which it is gone: until then it holds
	// its room, and must not be chosen again.
	return p.handle.CancelPreBind != nil && p.handle.CancelPreBind(victim, Name, "preempted")
}

// evict marks a victim and deletes it, or interrupts its attempt. A victim that is
// gone or was replaced is no error.
func (p *plugin) evict(ctx context.Context, pod, victim *v1.Pod, node string) error {
	if p.interrupt(victim.UID) {
		p.budgets.giveBack(victim) // it does not run
		p.handle.Recorder.Eventf(victim, pod, v1.EventTypeNormal, "Preempted", "Preempting",
			"Preempted by pod %v on node %v (in kube-scheduler memory).", pod.UID, node)
		klog.FromContext(ctx).V(1).Info("Preempted pod in memory", "victim", klog.KObj(victim), "node", node, "for", klog.KObj(pod))
		return nil
	}
	p.evictions <- struct{}{}
	defer func() { <-p.evictions }()
	p.budgets.evicting(victim)
	found, err := poddisruption.Evict(ctx, p.handle.Client, victim, v1.PodReasonPreemptionByScheduler,
		p.handle.ProfileName+": preempting to accommodate a higher priority pod")
	if err != nil {
		p.budgets.view().take(victim)
		return fmt.Errorf("evict victim %s: %w", klog.KObj(victim), err)
	}
	if !found {
		p.lost(pod.UID, victim.UID)
		return nil
	}
	p.handle.Recorder.Eventf(victim, pod, v1.EventTypeNormal, "Preempted", "Preempting", "Preempted by pod %v on node %v", pod.UID, node)
	klog.FromContext(ctx).V(1).Info("Preempted pod", "victim", klog.KObj(victim), "node", node, "for", klog.KObj(pod))
	return nil
}
