package watchcache

import (
	"maps"
	"time"
)

// How long events are kept. Fresh events are kept up to the limit of the whole history,
// so that an interrupted watch can continue. Of older events, only a small amount is
// kept, so that the memory is freed after a load.
//
//	now        freshAge               logAge
//	 │◄─ all events ─►│◄─ restCost a kind ─►│ none
//
// If a limit is exceeded, events of the namespaces with the highest cost are dropped.
//
// Lists at past revisions are not affected: they are read from the store.
const (
	// freshAge is how long all events are kept, within historyCost. It is the same
	// as upstream's.
	freshAge = 75 * time.Second
	// logAge is how long any event is kept.
	logAge = 5 * time.Minute
	// restCost limits the cost of a kind's events that are older than freshAge, in
	// bytes.
	restCost = 1 << 20
	// logCount limits the number of events of a kind.
	logCount = 100_000
	// historyCost limits the cost of the events of all kinds, in bytes.
	historyCost = 256 << 20
	// objectCost is the memory of an object in bytes for each byte of its stored
	// value.
	objectCost = 8
	// floorCount limits the number of scopes with known floors.
	floorCount = 10_000
	// eventCost is the memory of an event without objects, in bytes.
	eventCost = 256
)

// LimitHistory sets the estimated number of bytes of memory for superseded objects.
// It must be called before Run. The default is 256 MiB.
func (c *Cache) LimitHistory(bytes int64) { c.historyLimit = min(bytes, historyCost) }

// cost returns the estimated memory in bytes for keeping an event, which is the memory
// of the superseded object. The new object is in the state or is superseded by another
// event. A deletion also keeps the last state of the object.
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

// trim halves the largest histories until all together are within three quarters of
// the limit.
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

// historyCost returns the cost of the kind's events.
func (k *Kind) historyCost() int {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.log.cost
}

// forget drops the number of oldest events that count returns.
func (k *Kind) forget(count func(*log) int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut(count(&k.log))
}

// thin drops the oldest events of the namespaces with the highest cost until the
// total cost is at most most.
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
				// The events of a field value may be in several namespaces.
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

// cut drops the first n events, also from the logs of scopes. Callers hold mu.
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

// floor returns the revision after which all events of a scope are in the log. key
// is the key of the scope. Callers hold mu.
func (k *Kind) floor(key Scope) int64 {
	if key.Namespace == "" && key.Field == "" {
		return k.log.floor
	}
	key.Name = "" // has the floor of its namespace
	return max(k.log.start, k.floors[key])
}

// expiredCount returns the number of oldest events to drop because of their age.
func (l *log) expiredCount(now time.Time) int {
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
