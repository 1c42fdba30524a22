package queue

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// strategy says where a pod moves after an event.
type strategy uint8

const (
	stay strategy = iota
	afterBackoff
	immediately
)

// strategy asks the hints of the plugins that rejected the pod.
func (q *Queue) strategy(it *QueuedPodInfo, e framework.ClusterEvent, old, new any) strategy {
	best := stay
	for _, plugin := range it.rejectors() {
		if isOwn(it, e, old) || !q.helps(it, plugin, e, old, new) {
			continue
		}
		if s := it.after(plugin); s > best {
			best = s
		}
	}
	return best
}

// isOwn reports whether an event is that the assumption of the pod itself was
// taken back, which does not help it.
func isOwn(it *QueuedPodInfo, e framework.ClusterEvent, old any) bool {
	gone, ok := old.(*v1.Pod)
	return ok && e.Resource == framework.AssignedPod && gone.UID == it.Pod.UID
}

// after says what becomes of the pod when an event helps it as far as a plugin
// is concerned.
func (p *QueuedPodInfo) after(plugin string) strategy {
	if slices.Contains(p.PendingPlugins, plugin) {
		return immediately
	}
	return afterBackoff
}

func (q *Queue) helps(it *QueuedPodInfo, plugin string, e framework.ClusterEvent, old, new any) bool {
	if e.Resource == framework.WildCard {
		return true
	}
	return slices.ContainsFunc(q.hints[pluginKey{it.Pod.Spec.SchedulerName, plugin}], func(h framework.ClusterEventWithHint) bool {
		return h.Event.Matches(e) && (h.Hint == nil || h.Hint(it.PodInfo, old, new) == framework.Queue)
	})
}

// measuredHelps is helps, and tells how long that took.
func (q *Queue) measuredHelps(it *QueuedPodInfo, plugin string, e framework.ClusterEvent, old, new any) bool {
	if q.options.ObserveHint == nil {
		return q.helps(it, plugin, e, old, new)
	}
	began := time.Now()
	helps := q.helps(it, plugin, e, old, new)
	q.options.ObserveHint(plugin, e.Name(), framework.QueueIf(helps), time.Since(began))
	return helps
}

// helpedPod is a pod that an event helps as far as a plugin is concerned.
type helpedPod struct {
	pod      *QueuedPodInfo
	strategy strategy
}

// MoveAllToActiveOrBackoffQueue moves the pods that an event may help. old is
// nil if the object is new, new is nil if it is gone.
func (q *Queue) MoveAllToActiveOrBackoffQueue(e framework.ClusterEvent, old, new any) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.Resource == framework.WildCard {
		q.moveAll(e)
		return
	}
	wanted, scope := false, q.scopeOf(e, old, new)
	q.helped = q.helped[:0] // a hint may have panicked
	for _, resource := range [...]framework.EventResource{e.Resource, framework.WildCard} {
		for _, key := range q.registered[resource] {
			wanted = q.findHelped(key, e, old, new) || wanted
		}
	}
	q.moveHelped(e, old, scope)
	if wanted {
		q.flights.record(recorded{event: e, old: old, new: new, scope: scope})
	}
}

// findHelped adds to helped the pods that a plugin rejected and that an event
// helps. registered reports whether the plugin registered such events. The hints
// of a plugin with an index are asked once for all pods of a key.
func (q *Queue) findHelped(key pluginKey, e framework.ClusterEvent, old, new any) (registered bool) {
	hints, rejected := q.hints[key], q.rejected[key]
	registered = slices.ContainsFunc(hints, func(h framework.ClusterEventWithHint) bool { return h.Event.Matches(e) })
	if !registered || rejected == nil {
		return registered
	}
	helps := q.measuredHelps
	for pods := range rejected.about(old, new) {
		asked := false // for all of them
		for _, it := range pods {
			ask := helps
			helps = q.helps
			if !asked && !ask(it, key.plugin, e, old, new) {
				if rejected.index != nil {
					break
				}
				continue
			}
			asked = rejected.index != nil
			q.helped = append(q.helped, helpedPod{it, it.after(key.plugin)})
		}
	}
	return true
}

// moveHelped moves the pods of helped, each once. A plugin that it waits for
// sends it on at once, even if another would have it end its back-off.
func (q *Queue) moveHelped(e framework.ClusterEvent, old any, scope scope) {
	if len(q.helped) == 0 {
		return
	}
	q.moves++
	name, now := e.Name(), q.options.Clock.Now()
	for _, s := range [...]strategy{immediately, afterBackoff} {
		for _, h := range q.helped {
			if h.strategy != s || h.pod.move == q.moves {
				continue
			}
			h.pod.move = q.moves
			if !isOwn(h.pod, e, old) && scope.includes(h.pod) {
				q.requeue(h.pod, s, name, now)
			}
		}
	}
	clear(q.helped)
}

// scope says which pods an event may help, as far as EventFilter plugins know.
type scope []scopeOfProfile

type scopeOfProfile struct {
	profile string
	helps   func(*framework.PodInfo) bool
}

// scopeOf asks the EventFilter plugins of all profiles. nil is every pod.
func (q *Queue) scopeOf(e framework.ClusterEvent, old, new any) (s scope) {
	for _, f := range q.filters {
		if helps := f.FilterEvent(e, old, new); helps != nil {
			s = append(s, scopeOfProfile{f.profile, helps})
		}
	}
	return s
}

func (s scope) includes(it *QueuedPodInfo) bool {
	for _, of := range s {
		if of.profile == it.Pod.Spec.SchedulerName && !of.helps(it.PodInfo) {
			return false
		}
	}
	return true
}

// moveAll moves every pod that is not gated.
func (q *Queue) moveAll(e framework.ClusterEvent) {
	name, now := e.Name(), q.options.Clock.Now()
	for it := q.unschedulable.first(); it != nil; it = q.unschedulable.first() {
		q.requeue(it, afterBackoff, name, now)
	}
	q.flights.record(recorded{event: e})
}

// requeue takes a pod to the active queue, or to back-off if that has not ended.
func (q *Queue) requeue(it *QueuedPodInfo, s strategy, event string, now time.Time) {
	q.take(it)
	if s == afterBackoff && it.backoff.expiry.After(now) {
		q.pushBackoff(it, event, now)
		return
	}
	q.activate(it, event, now)
}
