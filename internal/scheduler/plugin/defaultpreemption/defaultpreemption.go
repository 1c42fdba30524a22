// Package defaultpreemption makes room for a pod that no node can take, by
// evicting pods of lower priority.
//
//	PostFilter (scheduling cycle): eligible? ─► trials on the snapshot ─► best candidate ─► nominate
//	                                                                          │ victims
//	evict (goroutine): condition DisruptionTarget, delete, event ◄────────────┘
//	PreEnqueue: the preemptor is gated until its victims have been deleted
//	FilterEvent: ends of other preemptors' victims do not wake it until its own have ended
//
// A victim that was chosen but is still without a deletion timestamp in the
// snapshot counts as terminating: no other preemptor chooses it, and its own
// preemptor waits for it.
package defaultpreemption

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "DefaultPreemption"

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.WithArguments(Name, setDefaults, validate, newPlugin)
}

type plugin struct {
	arguments *kubescheduler.DefaultPreemptionArgs
	handle    *framework.Handle
	start     int // index of the node where the next search begins
	known     knownCandidates
	*preemptions
}

// preemptions are those for pods of all profiles.
type preemptions struct {
	budgets   *budgets      // nil: none
	evictions chan struct{} // one for each victim that is being evicted

	mu         sync.Mutex // guards the following
	preempting map[types.UID]*preemption
	// evicting are the victims that were chosen, until they are gone or their
	// eviction is given up.
	evicting map[types.UID]victim
	// evictingOn counts them by node.
	evictingOn map[string]int
	// rooms holds the victims that each preemptor waits for, until the last one
	// is gone.
	rooms   map[types.UID]*room
	ended   types.UID // the victim whose end an event told last: each profile asks about it
	sweepAt int       // the size of evicting at which those that are gone are removed
}

func newPlugin(_ context.Context, a *kubescheduler.DefaultPreemptionArgs, h *framework.Handle) (framework.Plugin, error) {
	shared := framework.Share(h, Name, func() *preemptions {
		return &preemptions{
			evictions:  make(chan struct{}, maxEvictions),
			preempting: map[types.UID]*preemption{}, evicting: map[types.UID]victim{}, evictingOn: map[string]int{}, rooms: map[types.UID]*room{},
		}
	})
	if h.Informers != nil && shared.budgets == nil {
		shared.budgets = newBudgets(h.Informers.Policy().V1().PodDisruptionBudgets().Lister())
	}
	return &plugin{arguments: a, handle: h, preemptions: shared}, nil
}

// preemption is the state of a pod whose victims are being evicted.
type preemption struct {
	gated bool // PreEnqueue has rejected the pod during the evictions
}

// victim is a pod that was chosen to be evicted.
type victim struct {
	node      string
	preemptor types.UID
}

// room holds the node on which a preemptor's victims end, and the victims.
type room struct {
	node    string
	victims map[types.UID]bool // that are still there
}

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

// HandlesDeferredResizes implements framework.DeferredResizePlugin. The nomination of a
// pod that runs on its node says only that a preemption for it is under way: it has no
// effect on filters, and is not written.
func (*plugin) HandlesDeferredResizes() {}

// EventsToRegister implements framework.EnqueueExtensions: a pod that is gated
// while its victims are evicted is activated when they are gone. Deletions of
// other pods do not move it until then.
func (p *plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return []framework.ClusterEventWithHint{{
		Event: framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete},
		Hint: func(pod *framework.PodInfo, old, _ any) framework.QueueingHint {
			if gone, ok := old.(*v1.Pod); ok && pod.Pod.Spec.NodeName != "" && gone.Spec.NodeName != "" && gone.Spec.NodeName != pod.Pod.Spec.NodeName {
				return framework.QueueSkip
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			return framework.QueueIf(p.preempting[pod.Pod.UID] == nil)
		},
	}}, nil
}

// PreEnqueue implements framework.PreEnqueuePlugin.
func (p *plugin) PreEnqueue(_ context.Context, pod *framework.PodInfo) *framework.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	if under := p.preempting[pod.Pod.UID]; under != nil {
		under.gated = true
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, "waiting for the preemption for this pod to be finished")
	}
	return nil
}

// FilterEvent implements framework.EventFilterPlugin: the end of a victim does
// not help preemptors that wait for other victims. Their own victims are still
// ending, and another preemptor gets the resources of this victim.
func (p *plugin) FilterEvent(e framework.ClusterEvent, old, _ any) func(*framework.PodInfo) bool {
	if e.Resource != framework.AssignedPod || e.Action != framework.Delete {
		return nil
	}
	pod, ok := old.(*v1.Pod)
	if !ok {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone(pod.UID) {
		p.ended = pod.UID
	}
	if p.ended != pod.UID || len(p.rooms) == 0 {
		return nil
	}
	return func(pod *framework.PodInfo) bool {
		p.mu.Lock()
		r := p.rooms[pod.Pod.UID]
		p.mu.Unlock()
		return r == nil || p.handle.Nominator.NominatedNode(pod.Pod.UID) != r.node
	}
}

// gone forgets a victim that has ended or is no longer to be evicted, with the
// lock held. It reports whether the pod was a victim.
func (p *plugin) gone(uid types.UID) bool {
	v, was := p.evicting[uid]
	if !was {
		return false
	}
	delete(p.evicting, uid)
	if p.evictingOn[v.node]--; p.evictingOn[v.node] == 0 {
		delete(p.evictingOn, v.node)
	}
	p.leave(v.preemptor, uid)
	return true
}

// leave takes a victim from the room that a preemptor waits for, with the lock
// held.
func (p *plugin) leave(preemptor, victim types.UID) {
	if r := p.rooms[preemptor]; r != nil {
		if delete(r.victims, victim); len(r.victims) == 0 {
			delete(p.rooms, preemptor)
		}
	}
}

// PostFilter implements framework.PostFilterPlugin.
func (p *plugin) PostFilter(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot, nodes *framework.NodeToStatus) (*framework.PostFilterResult, *framework.Status) {
	best, result, status := p.choose(ctx, state, pod, snapshot, nodes, false)
	if best == nil {
		return result, status
	}
	p.reserve(pod, best)
	p.preempt(ctx, pod, best, false)
	return &framework.PostFilterResult{NominatedNodeName: best.node}, framework.NewStatus(framework.Success, Name,
		fmt.Sprintf("preemption: found a potential placement for pod on node %s, preempting %d victims", best.node, len(best.victims)))
}

// PodGroupPostFilter implements framework.PodGroupPostFilterPlugin: pods are
// evicted only if the group has enough pods then.
func (p *plugin) PodGroupPostFilter(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot, nodes *framework.NodeToStatus) (framework.PendingPreemption, *framework.PostFilterResult, *framework.Status) {
	best, result, status := p.choose(ctx, state, pod, snapshot, nodes, true)
	if best == nil {
		return nil, result, status
	}
	p.reserve(pod, best)
	return &reserved{p, pod, best}, &framework.PostFilterResult{NominatedNodeName: best.node}, nil
}

// reserved is a preemption that has not begun.
type reserved struct {
	plugin *plugin
	pod    *framework.PodInfo
	best   *candidate
}

// Execute implements framework.PendingPreemption.
func (r *reserved) Execute(ctx context.Context) { r.plugin.preempt(ctx, r.pod, r.best, true) }

// Cancel implements framework.PendingPreemption.
func (r *reserved) Cancel() { r.plugin.withdraw(r.pod.Pod.UID, r.best) }

// NumVictims implements framework.PendingPreemption.
func (r *reserved) NumVictims() int { return len(r.best.victims) }

// DryRunPostFilter implements framework.DryRunPostFilterPlugin.
func (p *plugin) DryRunPostFilter(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot, nodes *framework.NodeToStatus) (*framework.Preemption, *framework.Status) {
	best, _, status := p.choose(ctx, state, pod, snapshot, nodes, false)
	if best == nil {
		return nil, status
	}
	return &framework.Preemption{NodeName: best.node, Victims: best.victims, NumPDBViolations: best.violations}, nil
}

// choose returns the best candidate. If there is none it returns what becomes
// of the nomination, and why. group is whether the pod is decided with its group.
func (p *plugin) choose(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot, nodes *framework.NodeToStatus, group bool) (*candidate, *framework.PostFilterResult, *framework.Status) {
	rejected := func(reason string) *framework.Status {
		return framework.NewStatus(framework.Unschedulable, Name, "preemption: "+reason)
	}
	nominated := cmp.Or(p.handle.Nominator.NominatedNode(pod.Pod.UID), pod.Pod.Spec.NodeName, pod.Pod.Status.NominatedNodeName)
	if policy := pod.Pod.Spec.PreemptionPolicy; policy != nil && *policy == v1.PreemptNever {
		return nil, &framework.PostFilterResult{}, rejected("not eligible due to preemptionPolicy=Never.")
	}
	p.sweep(snapshot)
	if p.makingRoom(pod, snapshot, nominated, nodes) {
		return nil, &framework.PostFilterResult{KeepsNomination: true}, rejected("not eligible due to a terminating pod on the nominated node.")
	}
	t := &trials{plugin: p, ctx: ctx, state: state, pod: pod, snapshot: snapshot}
	began := time.Now()
	best, why, err := t.best(nodes)
	p.evaluated(group, best, err, began)
	if err != nil {
		return nil, nil, framework.AsStatus(Name, err)
	}
	if best == nil {
		return nil, &framework.PostFilterResult{}, rejected(why)
	}
	return best, nil, nil
}

// evaluated measures the search for a candidate.
func (p *plugin) evaluated(group bool, best *candidate, err error, began time.Time) {
	if p.handle.Preemptions == nil {
		return
	}
	code := framework.Success
	switch {
	case err != nil:
		code = framework.Error
	case best == nil:
		code = framework.Unschedulable
	}
	p.handle.Preemptions.Evaluated(group, code, time.Since(began))
}

// makingRoom reports whether room is being made already: the nominated node
// could still take the pod and has pods of lower priority that terminate
// because they were preempted.
func (p *plugin) makingRoom(pod *framework.PodInfo, snapshot *framework.Snapshot, nominated string, nodes *framework.NodeToStatus) bool {
	n := snapshot.Node(nominated)
	if n == nil || nodes.Of(n).Code() == framework.UnschedulableAndUnresolvable {
		return false
	}
	for _, other := range n.Pods {
		if other.Priority < pod.Priority && (p.isEvicting(other.Pod.UID) || other.Pod.DeletionTimestamp != nil && isPreempted(other.Pod)) {
			return true
		}
	}
	return false
}

// isPreempted reports whether a pod has the condition of a preemption.
func isPreempted(pod *v1.Pod) bool {
	c := podquery.Condition(&pod.Status, v1.DisruptionTarget)
	return c != nil && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonPreemptionByScheduler
}

func (p *plugin) isEvicting(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, is := p.evicting[uid]
	return is
}

func (p *plugin) isEvictingOn(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.evictingOn[node] > 0
}

// sweep removes evicted pods that the snapshot no longer has. It looks only
// once their number has doubled.
func (p *plugin) sweep(snapshot *framework.Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.evicting) <= p.sweepAt {
		return
	}
	for uid, v := range p.evicting {
		if snapshot.PodOn(v.node, uid) == nil {
			p.gone(uid)
		}
	}
	p.sweepAt = 2 * len(p.evicting)
}
