package watchcache

import (
	"maps"
	"math"
	"slices"
	"sort"
	"time"
)

// EventType is what happened to an object.
type EventType int8

// Kinds of Event.
const (
	Added EventType = iota + 1
	Modified
	Deleted
)

// String is the type as watches say it.
func (t EventType) String() string {
	switch t {
	case Added:
		return "ADDED"
	case Modified:
		return "MODIFIED"
	}
	return "DELETED"
}

// Event is one change. Entry is the object after it; for Deleted it is the
// last state with the resourceVersion of the deletion. Previous is nil for Added.
type Event struct {
	Type            EventType
	Entry, Previous *Entry
	Revision        int64
	seconds         int64 // when it was applied, of the clock
}

// log is a window on the events of a kind, or of one scope of it. Events have
// sequence numbers; a cursor is the number of the next one to read:
//
//	sequence   base          base+1        ...   whole        ...   end()
//	events     events[0]     events[1]           events[i]          (to come)
//	           of some namespaces alone          of all
//
// From whole on it has every event. Before, it may have those of namespaces in
// which little happens, for the cursors of these; the others were dropped.
//
// The slice is appended to and replaced, never written in place, so that
// readers keep parts of it without a lock. The kind's mutex guards the rest.
type log struct {
	base   int64
	whole  int64
	start  int64 // events up to this revision have been dropped
	floor  int64 // some of the events up to this revision have been
	cost   int
	events []*Event
	more   chan struct{} // closed by the next append; nil until somebody waited
}

func (l *log) end() int64 { return l.base + int64(len(l.events)) }

// append adds an event at the end; wake must follow.
func (l *log) append(e *Event) {
	l.events = append(l.events, e)
	l.cost += e.cost()
}

// last is the revision of the last event, dropped ones included.
func (l *log) last() int64 {
	if n := len(l.events); n > 0 {
		return max(l.floor, l.events[n-1].Revision)
	}
	return l.floor
}

// prepend puts the events after floor before those that are there.
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

// before is how many events were applied before a time.
func (l *log) before(t time.Time) int {
	seconds := t.Unix()
	return sort.Search(len(l.events), func(i int) bool { return l.events[i].seconds >= seconds })
}

// cut drops the first n events. The rest moves to a slice of its own, so that
// the dropped ones are free once no reader holds them.
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

// thin drops events, the oldest of a namespace first, of the namespaces whose
// events cost most, until all cost at most so much by a measure. It returns
// them. What happens in one namespace costs watchers of another nothing.
func (l *log) thin(most int, cost func(*Event) int) (dropped []*Event) {
	costs := map[string]int{}
	for _, e := range l.events {
		costs[e.Entry.Namespace] += cost(e)
	}
	level := waterline(costs, most)
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

// cutParts drops the events before those from which on there are all.
func (l *log) cutParts() {
	l.cut(l.index(l.floor))
	l.start = l.floor
}

// waterline is the most that each may keep so that all keep at most so much.
func waterline(costs map[string]int, most int) int {
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

// reset forgets everything up to revision and leaves every cursor behind.
func (l *log) reset(revision int64) {
	next := l.end() + 1
	*l = log{base: next, whole: next, start: revision, floor: revision, more: l.more}
}

// index is the place of the first event after revision.
func (l *log) index(revision int64) int {
	return sort.Search(len(l.events), func(i int) bool { return l.events[i].Revision > revision })
}

// wake tells the waiting cursors to look again.
func (l *log) wake() {
	if l.more != nil {
		close(l.more)
		l.more = make(chan struct{})
	}
}
