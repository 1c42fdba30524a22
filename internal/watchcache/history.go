package watchcache

import (
	"maps"
	"time"
)

// How long events are kept. A watch that ended for a moment continues where it
// was, so what is fresh stays however much it is, up to the bound of the whole
// history. What is older stays only while it is little: a server that is left
// alone gives back what a load left behind.
//
//	now        freshAge              logAge
//	 │◄─ all of it ─►│◄─ restCost a kind ─►│ nothing
//
// Where a bound is reached, the namespaces in which most happens pay for it.
//
// Lists of the past reach back as long as the store does all the same.
const (
	// freshAge is how long every event is kept, as long as upstream keeps them.
	freshAge = 75 * time.Second
	// logAge is how long any event is kept.
	logAge = 5 * time.Minute
	// restCost is how much of a kind's events that are no longer fresh is kept, in bytes.
	restCost = 1 << 20
	// logCount bounds the events of a kind.
	logCount = 100_000
	// historyCost bounds the events of all kinds together, in bytes.
	historyCost = 256 << 20
	// objectCost is how many bytes of memory an object takes for each byte that
	// is stored of it.
	objectCost = 8
	// floorCount bounds the scopes whose floors are known.
	floorCount = 10_000
	// eventCost is what an event without objects takes.
	eventCost = 256
)

// LimitHistory sets how many bytes of memory superseded objects may take, by
// estimate. It must be called before Run; the default is 256 MiB.
func (c *Cache) LimitHistory(bytes int64) { c.historyLimit = min(bytes, historyCost) }

// cost is what keeping an event takes: the object that it superseded. The one
// that it brought is the state's, or that of the event that superseded it; the
// last of one that was deleted is about what it was before.
func (e *Event) cost() int {
	cost := eventCost
	if e.Previous != nil {
		cost += objectCost * e.Previous.size
	}
	if e.Type == Deleted {
		cost += objectCost * max(e.Entry.size, e.Previous.size)
	}
	return cost
}

// trim halves the longest histories until all of them together are within
// three quarters of their bound.
func (c *Cache) trim() {
	kinds := c.Kinds()
	for {
		total, most := 0, 0
		var longest *Kind
		for _, k := range kinds {
			cost := k.historyCost()
			total += cost
			if cost > most {
				most, longest = cost, k
			}
		}
		if longest == nil || int64(total) <= c.historyLimit/4*3 {
			c.history = int64(total)
			return
		}
		longest.thin(most/2, (*Event).cost)
	}
}

// historyCost is what the kind's events take.
func (k *Kind) historyCost() int {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.log.cost
}

// forget drops as many of the oldest events as count says.
func (k *Kind) forget(count func(*log) int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut(count(&k.log))
}

// thin has the costliest namespaces forget their oldest events.
func (k *Kind) thin(most int, cost func(*Event) int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.thinLog(most, cost)
}

// thinLog is thin for callers that hold mu.
func (k *Kind) thinLog(most int, cost func(*Event) int) {
	for _, e := range k.log.thin(most, cost) {
		visitScopes(e, k.state.fields, func(scope Scope) {
			if scope.Name == "" {
				// A field's events are of several namespaces, which are cut apart.
				k.floors[scope] = max(k.floors[scope], e.Revision)
			}
		})
	}
	if len(k.floors) > floorCount {
		k.log.cutParts()
		clear(k.floors)
	}
	k.cutScopes()
}

// cut drops the first n events, from the logs of scopes too, so that nothing
// keeps them. Callers hold mu.
func (k *Kind) cut(n int) {
	if n == 0 {
		return
	}
	k.log.cut(n)
	maps.DeleteFunc(k.floors, func(_ Scope, floor int64) bool { return floor <= k.log.start })
	k.cutScopes()
}

func (k *Kind) cutScopes() {
	k.scopes.each(func(key Scope, l *log) { l.cutRevision(k.floor(key)) })
}

// floor is the revision from which on every event of a scope, by its key, is
// still there. Callers hold mu.
func (k *Kind) floor(key Scope) int64 {
	if key.Namespace == "" && key.Field == "" {
		return k.log.floor
	}
	key.Name = "" // goes with its namespace
	return max(k.log.start, k.floors[key])
}

// tooOld is how many of the oldest events are to be forgotten by their age.
func (l *log) tooOld(now time.Time) int {
	n := l.before(now.Add(-logAge))
	stale := l.before(now.Add(-freshAge))
	cost := 0
	for i := stale - 1; i >= n; i-- {
		if cost += l.events[i].cost(); cost > restCost {
			return i + 1
		}
	}
	return n
}
