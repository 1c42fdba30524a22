package watchcache

import (
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
//	sequence   base          base+1        ...   end()
//	events     events[0]     events[1]           (to come)
//
// The slice is appended to and replaced, never written in place, so that
// readers keep parts of it without a lock. The kind's mutex guards the rest.
type log struct {
	base   int64
	floor  int64 // events up to this revision have been dropped
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
		return l.events[n-1].Revision
	}
	return l.floor
}

// prepend puts the events after floor before those that are there.
func (l *log) prepend(events []*Event, floor int64) {
	l.floor = floor
	l.base -= int64(len(events))
	for _, e := range events {
		l.cost += e.cost()
	}
	l.events = append(events[:len(events):len(events)], l.events...)
}

// countFor is how many of the oldest events to drop so that the rest costs at
// most so much.
func (l *log) countFor(most int) int {
	n, cost := 0, l.cost
	for n < len(l.events) && cost > most {
		cost -= l.events[n].cost()
		n++
	}
	return n
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
	l.floor = l.events[n-1].Revision
	l.base += int64(n)
	l.events = append([]*Event(nil), l.events[n:]...)
}

// reset forgets everything up to revision and leaves every cursor behind.
func (l *log) reset(revision int64) {
	*l = log{base: l.end() + 1, floor: revision, more: l.more}
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
