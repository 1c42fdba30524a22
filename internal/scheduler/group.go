package scheduler

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/podgroup"
	"github.com/coracle-io/coracle/internal/scheduler/queue"
)

// groupUnfit is why pods are rejected that would fit alone.
const groupUnfit = "too few pods of its group can be scheduled together"

// groupCycle is one turn of a group.
type groupCycle struct {
	s        *Scheduler
	plugin   framework.PodGroupPlugin
	first    *framework.PodInfo     // the popped pod
	untried  []*queue.QueuedPodInfo // in the order in which they are decided
	placed   []*attempt             // that have a node
	unfit    []unfit
	reserved []framework.PendingPreemption // for those that are unfit
	making   int                           // pods without a node for which room is reserved
	began    time.Time
}

// unfit is an attempt that failed.
type unfit struct {
	*attempt
	result *framework.PostFilterResult
	err    error
}

// hasFailed reports whether the attempt ended by an error, before room was sought.
func (u unfit) hasFailed() bool {
	var fit *framework.FitError
	return !errors.As(u.err, &fit)
}

// scheduleGroup runs the scheduling cycles of the pods of a group that wait, one
// after another and without other pods in between (KEP-4671), until the group
// has enough of them or can no longer have:
//
//	popped pod, others of its group ──► decide one: it counts on its node for the next
//	              ▲                           │
//	              └── too few so far ─────────┤
//	                                          ├─ enough ──► binding cycles; the untried are next in the queue
//	                                          └─ too few ─► all of them go back to the queue
//
// So a group that does not fit reserves no resources, and no two groups each
// get half of what they need. Room is made, and kept, only if the group has
// enough pods with it.
func (s *Scheduler) scheduleGroup(ctx context.Context, first *queue.QueuedPodInfo, plugin framework.PodGroupPlugin) {
	g := &groupCycle{s: s, plugin: plugin, first: first.PodInfo, untried: []*queue.QueuedPodInfo{first}, began: time.Now()}
	if missing, _ := plugin.Missing(first.PodInfo); missing > 1 {
		group, _ := podgroup.Of(first.Pod)
		members := s.groups.Members(group)
		g.untried = slices.DeleteFunc(s.queue.PopMembers(first, members), func(pod *queue.QueuedPodInfo) bool {
			if !s.cache.HasPod(pod.Pod.UID) {
				return false
			}
			s.queue.Done(pod.Pod.UID) // an update made before the binding under way came late
			return true
		})
		for _, pod := range members { // that stay in the queue until their victims are gone
			if pod.Spec.NodeName == "" && s.nominator.NominatedNode(pod.UID) != "" && !s.queue.Expects(pod.UID) {
				g.making++
			}
		}
	}
	for {
		g.decideNext(ctx)
		missing, together := plugin.Missing(g.first)
		if together && missing == 0 {
			g.dropDeleted(ctx)
			missing, together = plugin.Missing(g.first)
		}
		switch {
		case together && missing == 0:
			g.bind(ctx)
			return
		case !together, len(g.untried) == 0, missing > len(g.untried)+g.making, ctx.Err() != nil:
			g.withdraw(ctx, together && missing <= g.making && ctx.Err() == nil)
			return
		}
	}
}

func (g *groupCycle) decideNext(ctx context.Context) {
	pod := g.untried[0]
	uid := pod.Pod.UID
	g.untried = g.untried[1:]
	a, result, err := g.s.try(ctx, pod, func(p framework.PendingPreemption) { g.reserved = append(g.reserved, p) })
	switch {
	case a == nil:
	case err == nil:
		g.placed = append(g.placed, a)
	case a.node != "": // it holds the node until it has failed
		g.s.fail(ctx, a, err, result)
	default:
		var fit *framework.FitError
		if errors.As(err, &fit) { // the attempt ends after others of the group are decided
			fit.Settle()
		}
		g.unfit = append(g.unfit, unfit{a, result, err})
		if g.s.nominator.NominatedNode(uid) != "" && (result == nil || result.KeepsNomination || result.NominatedNodeName != "") {
			g.making++
		}
	}
}

// dropDeleted ends the attempts of pods that were deleted during the turn: they
// must not count.
func (g *groupCycle) dropDeleted(ctx context.Context) {
	kept := g.placed[:0]
	for _, a := range g.placed {
		if g.s.queue.Expects(a.pod.Pod.UID) {
			kept = append(kept, a)
		} else {
			g.reject(ctx, a, false)
		}
	}
	g.placed = kept
}

// bind begins the binding cycles of the pods that have their nodes.
func (g *groupCycle) bind(ctx context.Context) {
	decided := time.Since(g.began)
	defer func() { g.attempted(scheduled, decided) }()
	g.endUnfit(ctx, true)
	g.s.queue.PutBack(g.untried)
	for _, a := range g.placed {
		if w := a.profile.Waiting.Get(a.pod.Pod.UID); w != nil {
			w.Allow(g.plugin.Name())
		}
		g.s.beginBinding(ctx, a)
	}
}

// withdraw takes all decisions back. makes is whether the group has enough pods
// once the room is made that is reserved.
func (g *groupCycle) withdraw(ctx context.Context, makes bool) {
	decided, result := time.Since(g.began), unschedulable
	if slices.ContainsFunc(g.unfit, unfit.hasFailed) {
		result = failed
	}
	defer func() { g.attempted(result, decided) }()
	g.endUnfit(ctx, makes)
	for _, a := range g.placed {
		g.reject(ctx, a, makes)
	}
	for _, pod := range g.untried {
		a := &attempt{pod: pod, profile: g.s.profiles[pod.Pod.Spec.SchedulerName], began: time.Now()}
		a.nominated = g.s.nominator.NominatedNode(pod.Pod.UID)
		g.reject(ctx, a, makes)
	}
}

// attempted measures the turn, of which the decisions took so long.
func (g *groupCycle) attempted(result string, decisions time.Duration) {
	g.s.metrics.workloads.attempted(result, g.first.Pod.Spec.SchedulerName, decisions, time.Since(g.began))
}

// endUnfit ends the attempts of pods that no node can take, and executes or
// cancels their preemptions.
func (g *groupCycle) endUnfit(ctx context.Context, makes bool) {
	victims := 0
	for _, p := range g.reserved {
		if makes {
			victims += p.NumVictims()
			p.Execute(ctx)
		} else {
			p.Cancel()
		}
	}
	if slices.ContainsFunc(g.unfit, func(u unfit) bool { return !u.hasFailed() }) { // room was sought for those
		g.s.metrics.workloads.preempted(makes && len(g.reserved) > 0, victims)
	}
	for _, u := range g.unfit {
		if !makes && u.result != nil {
			u.result = &framework.PostFilterResult{}
		}
		g.s.fail(ctx, u.attempt, u.err, u.result)
	}
}

// reject ends an attempt for the reason that its group lacks pods, unless
// another plugin has rejected it already. keeps is whether the pod keeps its node,
// or the room that was made for it, while room is made for others of the group.
func (g *groupCycle) reject(ctx context.Context, a *attempt, keeps bool) {
	status, pod := framework.NewStatus(framework.Unschedulable, g.plugin.Name(), groupUnfit), a.pod.Pod
	a.withdrawn = true
	if w := a.profile.Waiting.Get(pod.UID); w != nil {
		w.Reject(g.plugin.Name(), groupUnfit)
		if other := a.profile.WaitOnPermit(ctx, a.pod.PodInfo); other.Plugin() != g.plugin.Name() && !other.IsSuccess() {
			status, a.withdrawn = other, false
		}
	}
	result := &framework.PostFilterResult{}
	if a.withdrawn && keeps {
		result.NominatedNodeName = cmp.Or(a.node, a.nominated)
	}
	g.s.fail(ctx, a, rejection(status), result)
	if a.withdrawn && a.node != "" && g.s.nominator.NominatedNode(pod.UID) != a.nominated {
		g.s.nominationEnded(a.nominated, pod)
	}
}
