// Package queue holds the pods that wait for a node.
//
//	Add ──► PreEnqueue ──► active ──Pop──► in flight ──Done──► bound or gone
//	           │ ▲           ▲ ▲              │ AddUnschedulable
//	     gated ▼ │ event     │ │ expired      ▼
//	         gated           │ back-off ◄─── a recorded event helps, or an error
//	                         │   ▲            │ no event helps
//	                         │   │ event      ▼
//	                         └───┴───────── unschedulable (at most five minutes)
//
// The active queue is ordered by QueueSort. Back-off ends in windows of one
// second, so that pods whose back-off ends together are taken by priority. It
// ends early for pods that an event may have helped if there are no active pods
// (KEP-5142), but not after an error.
// Gated and unschedulable pods are indexed by the plugins that rejected them: an
// event visits only the pods of plugins that registered it. A plugin with a
// PodIndex divides them further, and its hints are asked once for each key.
//
// While a pod is in flight, the events that plugins registered are recorded. A pod
// that comes back is judged by those that it missed.
package queue

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Defaults of kube-scheduler's flags and configuration.
const (
	defaultInitialBackoff   = time.Second
	defaultMaxBackoff       = 10 * time.Second
	defaultMaxUnschedulable = 5 * time.Minute
)

const (
	// backoffWindow is the granularity of the end of back-offs.
	backoffWindow = time.Second
	// maxRecordedEvents bounds the events recorded for pods in flight.
	maxRecordedEvents = 10_000
	// maxFlushed bounds the unschedulable pods, and the gated ones, that are moved at
	// a time because they waited too long. Informers wait meanwhile.
	maxFlushed = 1000
	// sampleEvery is of how many calls of PreEnqueue one is measured plugin by plugin.
	sampleEvery = 10
)

// Profile holds the plugins and hints of a scheduling profile that the queue
// uses.
type Profile struct {
	PreEnqueue   []framework.PreEnqueuePlugin
	EventFilters []framework.EventFilterPlugin
	// Hints are the events that each plugin registered, by the plugin's name.
	Hints map[string][]framework.ClusterEventWithHint
}

// Options are the settings of a queue. Zero durations are the defaults.
type Options struct {
	Clock            clock.WithTicker
	Less             func(a, b framework.QueuedPod) bool
	Profiles         map[string]Profile // by schedulerName
	InitialBackoff   time.Duration
	MaxBackoff       time.Duration
	MaxUnschedulable time.Duration
	// PopFromBackoff is the feature SchedulerPopFromBackoffQ.
	PopFromBackoff bool
	// Incoming, if set, is called with a pod, the queue that it entered and the
	// event that caused it.
	Incoming func(pod *v1.Pod, queue, event string)
	// ObserveHint, if set, is called with the time that the hints of a plugin took
	// for an event, and with what they said. They are measured for one pod of each
	// event.
	ObserveHint func(plugin, event string, hint framework.QueueingHint, took time.Duration)
	// ObservePreEnqueue, if set, is called with the time that the PreEnqueue plugins of
	// a profile took for a pod.
	ObservePreEnqueue func(profile string, code framework.Code, took time.Duration)
	// ObservePlugin, if set, is called with the time that a PreEnqueue plugin took. One
	// pod in ten is measured plugin by plugin.
	ObservePlugin func(point, plugin string, code framework.Code, took time.Duration)
}

// place is where a pod is.
type place uint8

const (
	nowhere place = iota
	active
	backoff
	errorBackoff
	unschedulable
	gated
)

// QueuedPodInfo is a pod on its way through the queue. The caller of Pop owns it
// until it gives the pod back.
type QueuedPodInfo struct {
	*framework.PodInfo
	// InitialAttemptTimestamp is when the pod first came into the active queue.
	InitialAttemptTimestamp time.Time
	// Attempts counts the pops.
	Attempts int
	// UnschedulablePlugins and PendingPlugins rejected the pod last.
	UnschedulablePlugins, PendingPlugins []string
	// Flushed says that the attempt is made because the pod waited too long for
	// an event.
	Flushed bool

	timestamp    time.Time // of the last move, for the order
	sequence     uint64    // of the first Add: the order of equals
	backoff      podBackoff
	gatingPlugin string
	deadline     time.Time // end of the stay among the unschedulable or gated
	place        place
	index        int         // in the heap that holds it
	rejections   []rejection // while it is unschedulable or gated
	move         uint64      // Queue.moves when an event moved it last
}

// podBackoff is the back-off of a pod, and what its length is computed from.
type podBackoff struct {
	unschedulableCount, consecutiveErrors int
	expiry                                time.Time
}

// rejectors are the plugins that the pod waits for.
func (p *QueuedPodInfo) rejectors() []string {
	if p.place == gated {
		return []string{p.gatingPlugin}
	}
	return slices.Concat(p.UnschedulablePlugins, p.PendingPlugins)
}

// Queue is safe for concurrent use.
type Queue struct {
	options Options
	hints   map[pluginKey][]framework.ClusterEventWithHint
	// registered are the plugins that registered events on a resource.
	registered map[framework.EventResource][]pluginKey
	filters    []eventFilter

	mu            sync.Mutex // guards everything below
	pods          map[types.UID]*QueuedPodInfo
	active        podHeap
	backoff       podHeap
	errorBackoff  podHeap // of pods whose attempts failed by errors
	unschedulable podHeap // by deadline
	gated         podHeap // likewise
	rejected      map[pluginKey]*rejectedPods
	flights       flights
	sequence      uint64
	moves         uint64        // how many events moved pods
	checks        uint64        // how many pods PreEnqueue was asked about
	helped        []helpedPod   // by the current event
	changed       chan struct{} // closed and replaced when Pop must look again
	waiting       bool          // a Pop waits for changed
}

// pluginKey is a plugin of a profile.
type pluginKey struct{ profile, plugin string }

// eventFilter is an EventFilter plugin of a profile.
type eventFilter struct {
	profile string
	framework.EventFilterPlugin
}

// New returns an empty queue.
func New(o Options) *Queue {
	o.InitialBackoff = cmp.Or(o.InitialBackoff, defaultInitialBackoff)
	o.MaxBackoff = cmp.Or(o.MaxBackoff, defaultMaxBackoff)
	o.MaxUnschedulable = cmp.Or(o.MaxUnschedulable, defaultMaxUnschedulable)
	if o.Incoming == nil {
		o.Incoming = func(*v1.Pod, string, string) {}
	}
	less := func(a, b *QueuedPodInfo) bool {
		x, y := framework.QueuedPod{PodInfo: a.PodInfo, Timestamp: a.timestamp}, framework.QueuedPod{PodInfo: b.PodInfo, Timestamp: b.timestamp}
		if o.Less(x, y) {
			return true
		}
		return !o.Less(y, x) && a.sequence < b.sequence
	}
	byExpiry := func(a, b *QueuedPodInfo) bool {
		if !a.backoff.expiry.Equal(b.backoff.expiry) {
			return a.backoff.expiry.Before(b.backoff.expiry)
		}
		return less(a, b)
	}
	q := &Queue{
		options: o, hints: map[pluginKey][]framework.ClusterEventWithHint{}, registered: map[framework.EventResource][]pluginKey{},
		pods: map[types.UID]*QueuedPodInfo{}, rejected: map[pluginKey]*rejectedPods{},
		active:        podHeap{less: less},
		backoff:       podHeap{less: byExpiry},
		errorBackoff:  podHeap{less: byExpiry},
		unschedulable: podHeap{less: byDeadline},
		gated:         podHeap{less: byDeadline},
		flights:       newFlights(),
		changed:       make(chan struct{}),
	}
	for profile, p := range o.Profiles {
		for _, f := range p.EventFilters {
			q.filters = append(q.filters, eventFilter{profile, f})
		}
		for plugin, events := range p.Hints {
			key := pluginKey{profile, plugin}
			q.hints[key] = events
			for _, e := range events {
				if keys := q.registered[e.Event.Resource]; !slices.Contains(keys, key) {
					q.registered[e.Event.Resource] = append(keys, key)
				}
			}
		}
	}
	return q
}

func byDeadline(a, b *QueuedPodInfo) bool { return a.deadline.Before(b.deadline) }

// Add takes a new pod, or a newer version of one that it has.
func (q *Queue) Add(pod *v1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.has(pod.UID) {
		q.update(pod)
		return
	}
	q.sequence++
	it := &QueuedPodInfo{PodInfo: framework.NewPodInfo(pod), sequence: q.sequence, index: -1}
	q.pods[pod.UID] = it
	q.activate(it, "UnscheduledPodAdd", q.options.Clock.Now())
}

func (q *Queue) has(uid types.UID) bool {
	_, waits := q.pods[uid]
	return waits || q.flights.has(uid)
}

// update takes a newer version of a pod that is here, with the lock held.
func (q *Queue) update(pod *v1.Pod) {
	if f := q.flights.of(pod.UID); f != nil {
		old := f.latest
		f.latest = old.Update(pod)
		for _, e := range PodEvents(framework.TargetPod, old.Pod, pod) {
			q.flights.record(recorded{event: e, old: old.Pod, new: pod, target: pod.UID})
		}
		return
	}
	it := q.pods[pod.UID]
	old := it.Pod
	q.leaveIndex(it)
	it.PodInfo = it.Update(pod)
	q.enterIndex(it)
	switch it.place {
	case active:
		q.active.fix(it)
	case backoff:
		q.backoff.fix(it)
	case errorBackoff:
		q.errorBackoff.fix(it)
	case gated, unschedulable:
		for _, e := range PodEvents(framework.TargetPod, old, pod) {
			if s := q.strategy(it, e, old, pod); s != stay {
				q.requeue(it, s, e.Name(), q.options.Clock.Now())
				return
			}
		}
	}
}

// Delete forgets a pod.
func (q *Queue) Delete(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flights.remove(uid)
	if it, ok := q.pods[uid]; ok {
		q.take(it)
		delete(q.pods, uid)
	}
}

// DeleteUnassigned forgets a pod that is gone or has a node now, unless it came again
// from there and waits for its resize: the two are told by different watches.
func (q *Queue) DeleteUnassigned(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if f := q.flights.of(uid); f != nil && !f.latest.IsResizing() {
		q.flights.remove(uid)
	}
	if it := q.pods[uid]; it != nil && !it.IsResizing() {
		q.take(it)
		delete(q.pods, uid)
	}
}

// Expects reports whether a pod in flight still wants a node: it was not
// deleted since it was popped.
func (q *Queue) Expects(uid types.UID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.flights.has(uid)
}

// Has reports whether a pod waits or is in flight.
func (q *Queue) Has(uid types.UID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.has(uid)
}

// Done ends the flight of a pod that was bound or is not to be bound.
func (q *Queue) Done(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flights.remove(uid)
}

// AddUnschedulable takes back a popped pod. The plugins that rejected it are
// in UnschedulablePlugins and PendingPlugins; with neither, the attempt failed
// by an error and is repeated after a back-off.
func (q *Queue) AddUnschedulable(it *QueuedPodInfo) {
	q.mu.Lock()
	defer q.mu.Unlock()
	uid := it.Pod.UID
	f := q.flights.of(uid)
	if f == nil {
		return // deleted meanwhile
	}
	it.PodInfo, it.Flushed = f.latest, false
	s := q.judge(it)
	q.flights.remove(uid)
	q.pods[uid] = it
	now := q.options.Clock.Now()
	const event = "ScheduleAttemptFailure"
	if len(it.UnschedulablePlugins)+len(it.PendingPlugins) == 0 {
		it.backoff.consecutiveErrors++
		it.backoff.expiry = q.expiry(now, it.backoff.consecutiveErrors)
		q.pushBackoff(it, event, now)
		return
	}
	it.backoff.consecutiveErrors = 0
	it.backoff.unschedulableCount++
	it.backoff.expiry = q.expiry(now, it.backoff.unschedulableCount)
	if s != stay {
		q.requeue(it, s, event, now)
		return
	}
	it.timestamp = now
	it.deadline = now.Add(q.options.MaxUnschedulable)
	it.place = unschedulable
	q.unschedulable.push(it)
	q.enterIndex(it)
	q.options.Incoming(it.Pod, "unschedulable", event)
	q.wake()
}

// judge says what the events that a pod in flight missed mean to it.
func (q *Queue) judge(it *QueuedPodInfo) strategy {
	missed, lost := q.flights.missed(it.Pod.UID)
	s := stay
	if lost {
		s = afterBackoff
	}
	for _, r := range missed {
		if (r.target == "" || r.target == it.Pod.UID) && r.scope.includes(it) {
			s = max(s, q.strategy(it, r.event, r.old, r.new))
		}
	}
	return s
}

// expiry is when a back-off that begins now ends, rounded up to whole windows,
// within which pods leave by priority.
func (q *Queue) expiry(now time.Time, failures int) time.Time {
	d, longest := q.options.InitialBackoff, q.options.MaxBackoff
	for i := 1; i < failures && d < longest; i++ {
		d = min(d, longest/2) * 2
	}
	end := now.Add(min(d, longest))
	if window := end.Truncate(backoffWindow); window.Before(end) {
		return window.Add(backoffWindow)
	}
	return end
}

func (q *Queue) pushBackoff(it *QueuedPodInfo, event string, now time.Time) {
	it.timestamp = now
	if len(it.UnschedulablePlugins)+len(it.PendingPlugins) == 0 {
		it.place = errorBackoff
		q.errorBackoff.push(it)
	} else {
		it.place = backoff
		q.backoff.push(it)
	}
	q.options.Incoming(it.Pod, "backoff", event)
	q.wake()
}

// Activate brings waiting pods into the active queue, whatever their back-off.
func (q *Queue) Activate(pods ...*v1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.options.Clock.Now()
	for _, pod := range pods {
		if it, ok := q.pods[pod.UID]; ok && it.place != active {
			q.take(it)
			q.activate(it, "ForceActivate", now)
		} else if q.flights.has(pod.UID) {
			q.flights.record(recorded{event: framework.ClusterEvent{Resource: framework.WildCard, Action: framework.All, Label: "ForceActivate"}, target: pod.UID})
		}
	}
}

// activate runs PreEnqueue and puts a pod that take has removed into the active
// queue or among the gated. Pods that are activated at one time keep the order
// in which they were added.
func (q *Queue) activate(it *QueuedPodInfo, event string, now time.Time) {
	it.timestamp = now
	if plugin := q.preEnqueue(it); plugin != "" {
		it.gatingPlugin, it.place, it.deadline = plugin, gated, now.Add(q.options.MaxUnschedulable)
		q.gated.push(it)
		q.enterIndex(it)
		q.options.Incoming(it.Pod, "gated", event)
		q.wake()
		return
	}
	if it.InitialAttemptTimestamp.IsZero() {
		it.InitialAttemptTimestamp = now
	}
	it.gatingPlugin, it.UnschedulablePlugins, it.PendingPlugins = "", nil, nil
	it.place = active
	q.active.push(it)
	q.options.Incoming(it.Pod, "active", event)
	q.wake()
}

// preEnqueue returns the plugin that keeps a pod out of the active queue, or "".
func (q *Queue) preEnqueue(it *QueuedPodInfo) (plugin string) {
	profile, code, began := it.Pod.Spec.SchedulerName, framework.Success, time.Now()
	q.checks++
	sampled, resizing := q.options.ObservePlugin != nil && q.checks%sampleEvery == 0, it.IsResizing()
	for _, p := range q.options.Profiles[profile].PreEnqueue {
		if resizing && !framework.HandlesDeferredResizes(p) {
			continue
		}
		var asked time.Time
		if sampled {
			asked = time.Now()
		}
		s := p.PreEnqueue(context.Background(), it.PodInfo)
		if sampled {
			q.options.ObservePlugin("PreEnqueue", p.Name(), s.Code(), time.Since(asked))
		}
		if !s.IsSuccess() {
			plugin, code = p.Name(), s.Code()
			break
		}
	}
	if q.options.ObservePreEnqueue != nil {
		q.options.ObservePreEnqueue(profile, code, time.Since(began))
	}
	return plugin
}

// take removes a pod from its place.
func (q *Queue) take(it *QueuedPodInfo) {
	switch it.place {
	case active:
		q.active.remove(it)
	case backoff:
		q.backoff.remove(it)
	case errorBackoff:
		q.errorBackoff.remove(it)
	case unschedulable:
		q.unschedulable.remove(it)
	case gated:
		q.gated.remove(it)
	}
	q.leaveIndex(it)
	it.place = nowhere
}

// wake has Pop look again.
func (q *Queue) wake() {
	if q.waiting {
		close(q.changed)
		q.changed, q.waiting = make(chan struct{}), false
	}
}
