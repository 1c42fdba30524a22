package queue

import (
	"container/list"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// flights holds the pods that were popped and have not come back, with the
// events since the first of them was popped:
//
//	events   e1  e2  e3  e4  e5
//	             ▲ pod A popped  ▲ end: A missed e2 to e5
//
// Events that every pod in flight is past are dropped. Flights are ordered by
// the time of their begin, so that the first one misses most.
type flights struct {
	pods   map[types.UID]*flight
	order  *list.List // of *flight
	events []recorded
	base   uint64 // number of the first of events
}

type flight struct {
	latest *framework.PodInfo // the newest version of the pod
	from   uint64             // number of the first event that it misses
	lost   bool               // events were dropped that it missed
	place  *list.Element      // in the order
}

// recorded is an event. With a target it is for that pod alone.
type recorded struct {
	event    framework.ClusterEvent
	old, new any
	target   types.UID
	scope    scope
}

func newFlights() flights { return flights{pods: map[types.UID]*flight{}, order: list.New()} }

func (f *flights) has(uid types.UID) bool   { return f.pods[uid] != nil }
func (f *flights) of(uid types.UID) *flight { return f.pods[uid] }

func (f *flights) add(it *QueuedPodInfo) {
	one := &flight{latest: it.PodInfo, from: f.base + uint64(len(f.events))}
	one.place = f.order.PushBack(one)
	f.pods[it.Pod.UID] = one
}

// record notes an event for the pods in flight.
func (f *flights) record(r recorded) {
	if len(f.pods) == 0 {
		return
	}
	if len(f.events) == maxRecordedEvents {
		for _, one := range f.pods {
			one.lost = one.lost || one.from < f.base+uint64(len(f.events))
			one.from = f.base + uint64(len(f.events))
		}
		f.base += uint64(len(f.events))
		f.events = nil
	}
	f.events = append(f.events, r)
}

// missed returns the events since the pod was popped; they are valid until the
// next call of another method. lost reports that there were others.
func (f *flights) missed(uid types.UID) (events []recorded, lost bool) {
	one := f.pods[uid]
	return f.events[one.from-f.base:], one.lost
}

// remove ends a flight and drops the events that no pod needs any more.
func (f *flights) remove(uid types.UID) {
	one, ok := f.pods[uid]
	if !ok {
		return
	}
	delete(f.pods, uid)
	f.order.Remove(one.place)
	first := f.base + uint64(len(f.events))
	if oldest := f.order.Front(); oldest != nil {
		first = oldest.Value.(*flight).from
	}
	if first == f.base {
		return
	}
	n := copy(f.events, f.events[first-f.base:])
	clear(f.events[n:])
	f.events, f.base = f.events[:n], first
}
