// Package bodylimit bounds the memory that request bodies take until their
// requests are answered:
//
//	0                                limit - reserve      limit
//	├── all bodies ───────────────────────┼── Critical and  │
//	│   at most a quarter for one tenant  │   Privileged    │
//
// If there is no room for a body, the Limiter aborts bodies of the tenant that
// holds the most memory. It aborts the oldest body that is still being received
// or waits to be served. So tenants that send endless bodies leave each other
// tenant as much room as they take themselves.
package bodylimit

import (
	"container/list"
	"sync"
)

// Rank orders senders of bodies by how much the cluster depends on them.
type Rank int8

// Ranks, lowest first. A body is aborted only for one of the same or a higher
// rank.
const (
	Ordinary   Rank = iota
	Critical        // may use the reserve
	Privileged      // bounded only by the limit of all bodies, never aborted
	ranks
)

// Unit is the granularity in bytes in which bodies are counted. It is the least
// memory that a request takes with its connection and its goroutine.
const Unit = 16 << 10

// Limiter accounts for the bodies of one server. Its methods are safe for
// concurrent use.
type Limiter struct {
	limit, reserve, perTenant int

	mu      sync.Mutex // guards the fields below and the fields of the bodies
	held    int        // bytes of all bodies
	tenants [ranks]map[string]*tenant
}

// tenant is a group of senders that share a bound.
type tenant struct {
	held   int       // bytes
	bodies list.List // of *Body that may be aborted, oldest first
}

// New returns a Limiter that lets all bodies together take limit bytes.
func New(limit int) *Limiter {
	l := &Limiter{limit: limit, reserve: limit / 8, perTenant: limit / 4}
	for rank := range l.tenants {
		l.tenants[rank] = map[string]*tenant{}
	}
	return l
}

// Body accounts for the body of one request. The caller must Release it.
type Body struct {
	limiter *Limiter
	rank    Rank
	tenant  string
	abort   func()

	// limiter.mu guards the fields below.
	held     int           // bytes
	element  *list.Element // in the tenant's bodies; nil if the body may not be aborted
	aborted  bool
	released bool
}

// Begin returns an empty Body of a tenant. If the body must make room for
// another one, the Limiter calls abort, perhaps from another goroutine. abort
// must not block.
func (l *Limiter) Begin(name string, rank Rank, abort func()) *Body {
	return &Body{limiter: l, rank: rank, tenant: name, abort: abort}
}

// Reserve reserves room for a total of bytes. It returns false if there is no
// room or if the body was aborted.
func (b *Body) Reserve(bytes int) bool {
	l := b.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	more := (bytes+Unit-1)/Unit*Unit - b.held
	if b.aborted || b.released || more <= 0 {
		return !b.aborted && !b.released
	}
	mine := l.tenants[b.rank][b.tenant]
	has := 0
	if mine != nil {
		has = mine.held
	}
	if b.rank < Privileged && has+more > l.perTenant {
		return false
	}
	if !l.makeRoom(b, has, more) {
		return false
	}
	if mine == nil {
		mine = &tenant{}
		l.tenants[b.rank][b.tenant] = mine
	}
	l.held += more
	mine.held += more
	b.held += more
	if b.element == nil && b.rank < Privileged {
		b.element = mine.bodies.PushBack(b)
	}
	return true
}

// makeRoom aborts bodies until there is room for more bytes of b, whose tenant
// holds has bytes already. It returns false if it cannot abort enough of them.
// Callers hold mu.
func (l *Limiter) makeRoom(b *Body, has, more int) bool {
	room := l.limit
	if b.rank == Ordinary {
		room -= l.reserve
	}
	for l.held+more > room {
		victim := l.victim(b, has+more)
		if victim == nil {
			return false
		}
		victim.aborted = true
		l.remove(victim)
		victim.abort()
	}
	return true
}

// victim returns the body to abort in favor of b, or nil if there is none. would
// is the number of bytes that b's tenant would hold then. Callers hold mu.
func (l *Limiter) victim(b *Body, would int) *Body {
	for rank := Ordinary; rank <= b.rank; rank++ {
		var most *tenant
		for _, t := range l.tenants[rank] {
			if t.bodies.Len() > 0 && (most == nil || t.held > most.held) {
				most = t
			}
		}
		if most != nil && (rank < b.rank || most.held > would) {
			return most.bodies.Front().Value.(*Body)
		}
	}
	return nil
}

// Protect marks a complete body whose request is about to be served, so that
// the Limiter no longer aborts it. It returns false if the body was aborted
// before.
func (b *Body) Protect() bool {
	b.limiter.mu.Lock()
	defer b.limiter.mu.Unlock()
	b.protect()
	return !b.aborted
}

// Aborted reports whether the Limiter aborted the body.
func (b *Body) Aborted() bool {
	b.limiter.mu.Lock()
	defer b.limiter.mu.Unlock()
	return b.aborted
}

// Release frees what the body reserved. Further calls do nothing.
func (b *Body) Release() {
	b.limiter.mu.Lock()
	defer b.limiter.mu.Unlock()
	b.released = true
	b.limiter.remove(b)
}

// remove frees what b reserved. Callers hold mu.
func (l *Limiter) remove(b *Body) {
	b.protect()
	t := l.tenants[b.rank][b.tenant]
	if b.held == 0 {
		return
	}
	l.held -= b.held
	if t.held -= b.held; t.held == 0 {
		delete(l.tenants[b.rank], b.tenant)
	}
	b.held = 0
}

// protect removes b from the bodies that may be aborted. Callers hold mu.
func (b *Body) protect() {
	if b.element != nil {
		b.limiter.tenants[b.rank][b.tenant].bodies.Remove(b.element)
		b.element = nil
	}
}
