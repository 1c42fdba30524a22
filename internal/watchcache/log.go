package watchcache

import (
	"maps"
	"math"
	"slices"
	"sort"
	"time"
)

// EventType is the type of an Event.
type EventType int8

// Kinds of Event.
const (
	Added EventType = iota + 1
	Modified
	Deleted
)

// String returns the type as in watch events of the API.
func (t EventType) String() string {
	switch t {
	case Added:
		return "ADDED"
	case Modified:
		return "MODIFIED"
	}
	return "DELETED"
}

// Event is a change of an object. Entry is the object after the change; for Deleted,
// it is the last state with the resourceVersion of the deletion. Previous is nil for
// Added.
type Event struct {
	Type            EventType
	Entry, Previous *Entry
	Revision        int64
	seconds         int64 // Unix time when it was applied
}

// log holds recent events of a kind or scope. Events have sequence numbers. A cursor
// holds the number of the next event to read:
//
//	sequence   base          base+1        ...   whole        ...   end()
//	events     events[0]     events[1]           events[i]          (to come)
//	           some namespaces only              all events
//
// From whole on, the log is complete. Before whole, it contains only events of
// namespaces with few events, for their cursors.
//
// The slice is appended to and replaced but never changed in place, so that readers
// can use parts of it without a lock. The kind's mutex guards everything else.
type log struct {
	base   int64
	whole  int64
	start  int64 // events up to this revision have been dropped
	floor  int64 // some events up to this revision have been dropped
	cost   int
	events []*Event
	more   chan struct{} // closed by the next append; nil until a cursor waits
}

func (l *log) end() int64 { return l.base + int64(len(l.events)) }

// append adds an event. The caller must call wake afterwards.
func (l *log) append(e *Event) {
	l.events = append(l.events, e)
	l.cost += e.cost()
}

// last returns the revision of the last event, including dropped ones.
func (l *log) last() int64 {
	if n := len(l.events); n > 0 {
		return max(l.floor, l.events[n-1].Revision)
	}
	return l.floor
}

// prepend adds events before the existing ones. They must be all events after floor.
func (l *log) prepend(events []*Event, floor int64) {
	l.start, l.floor = floor, floor
	l.base -= int64(len(events))
	l.whole = l.base
	for _, e := range events {
		l.cost += e.cost()
	}
	l.events = append(events[:len(events):len(events)], l.events...)
}

// cutRevision drops the events up to a revision.
func (l *log) cutRevision(revision int64) { l.cut(l.index(revision)) }

// before returns the number of events that were applied before a time.
func (l *log) before(t time.Time) int {
	seconds := t.Unix()
	return sort.Search(len(l.events), func(i int) bool { return l.events[i].seconds >= seconds })
}

// cut drops the first n events. It copies the others to a new slice, so that the
// dropped ones can be freed.
func (l *log) cut(n int) {
	if n == 0 {
		return
	}
	for _, e := range l.events[:n] {
		l.cost -= e.cost()
	}
	l.start = l.events[n-1].Revision
	l.floor = max(l.floor, l.start)
	l.base += int64(n)
	l.whole = max(l.whole, l.base)
	l.events = append([]*Event(nil), l.events[n:]...)
}

// thin drops the oldest events of the namespaces with the highest cost, until the
// total cost is at most most. It returns the dropped events. Watchers of other
// namespaces keep their history.
func (l *log) thin(most int, cost func(*Event) int) (dropped []*Event) {
	costs := map[string]int{}
	for _, e := range l.events {
		costs[e.Entry.Namespace] += cost(e)
	}
	level := fairShare(costs, most)
	var kept []*Event
	for _, e := range l.events {
		if costs[e.Entry.Namespace] <= level {
			kept = append(kept, e)
			continue
		}
		costs[e.Entry.Namespace] -= cost(e)
		l.cost -= e.cost()
		l.floor = max(l.floor, e.Revision)
		dropped = append(dropped, e)
	}
	l.base += int64(len(dropped))
	l.events = kept
	l.whole = l.base + int64(l.index(l.floor))
	return dropped
}

// cutParts drops the events before the first that is followed by all others.
func (l *log) cutParts() {
	l.cut(l.index(l.floor))
	l.start = l.floor
}

// fairShare returns the maximum cost for each namespace so that the total is at most
// most.
func fairShare(costs map[string]int, most int) int {
	left := len(costs)
	for _, cost := range slices.Sorted(maps.Values(costs)) {
		if cost*left > most {
			return most / left
		}
		most -= cost
		left--
	}
	return math.MaxInt
}

// reset drops all events up to revision, and makes all cursors fail.
func (l *log) reset(revision int64) {
	next := l.end() + 1
	*l = log{base: next, whole: next, start: revision, floor: revision, more: l.more}
}

// index returns the index of the first event after revision.
func (l *log) index(revision int64) int {
	return sort.Search(len(l.events), func(i int) bool { return l.events[i].Revision > revision })
}

// wake wakes the waiting cursors.
func (l *log) wake() {
	if l.more != nil {
		close(l.more)
		l.more = make(chan struct{})
	}
}
