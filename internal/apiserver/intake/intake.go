// Package intake bounds the memory that the bodies of requests take until they
// are answered:
//
//	0                              all - reserve        all
//	├── bodies of everybody ────────────┼── of who is    │
//	│   a tenant at most a quarter      │   critical     │
//
// Where there is no room for a body, one of the tenant that holds most is cut
// in its favour: one that is still being received, or waits to be served, and
// that has been there for longest. So however many tenants send bodies that do
// not end, each of the others has room for as much as they have.
package intake

import (
	"container/list"
	"sync"
)

// Rank is how much the cluster depends on who sends a body.
type Rank int8

// Ranks. A body is cut only for one of the same rank or a higher one.
const (
	Ordinary   Rank = iota
	Critical        // has the reserve, too
	Privileged      // has no bound but that of all, and is never cut
	ranks
)

// Unit is what bodies are counted in, in bytes: the least that a request takes,
// with its share of the connection and its goroutine.
const Unit = 16 << 10

// Intake is the bodies of one server. Its methods may be called from any
// goroutine.
type Intake struct {
	limit, reserve, perTenant int

	mu      sync.Mutex // guards the following, and the bodies
	held    int        // bytes of all
	tenants [ranks]map[string]*tenant
}

// tenant is those who share a bound.
type tenant struct {
	held   int       // bytes
	bodies list.List // of *Body that can be cut, as they came
}

// New bounds all bodies together, in bytes.
func New(limit int) *Intake {
	i := &Intake{limit: limit, reserve: limit / 8, perTenant: limit / 4}
	for rank := range i.tenants {
		i.tenants[rank] = map[string]*tenant{}
	}
	return i
}

// Body is what one request has sent. It must be released.
type Body struct {
	intake *Intake
	rank   Rank
	tenant string
	cut    func()

	// The intake's mutex guards the following.
	held     int
	place    *list.Element // among the bodies that can be cut; nil for none
	isCut    bool
	released bool
}

// Begin announces a body of a tenant. cut is called, from another goroutine,
// if the body has to go; it must not block.
func (i *Intake) Begin(name string, rank Rank, cut func()) *Body {
	return &Body{intake: i, rank: rank, tenant: name, cut: cut}
}

// Hold makes room for a body of so many bytes so far. It returns false if there
// is none, or if the body has been cut.
func (b *Body) Hold(bytes int) bool {
	i := b.intake
	i.mu.Lock()
	defer i.mu.Unlock()
	more := (bytes+Unit-1)/Unit*Unit - b.held
	if b.isCut || b.released || more <= 0 {
		return !b.isCut && !b.released
	}
	mine := i.tenants[b.rank][b.tenant]
	has := 0
	if mine != nil {
		has = mine.held
	}
	if b.rank < Privileged && has+more > i.perTenant {
		return false
	}
	if !i.makeRoom(b, has, more) {
		return false
	}
	if mine == nil {
		mine = &tenant{}
		i.tenants[b.rank][b.tenant] = mine
	}
	i.held += more
	mine.held += more
	b.held += more
	if b.place == nil && b.rank < Privileged {
		b.place = mine.bodies.PushBack(b)
	}
	return true
}

// makeRoom cuts bodies until there is room for more bytes of a body, whose
// tenant has so much already. It returns false if there are not enough to cut.
// Callers hold mu.
func (i *Intake) makeRoom(b *Body, has, more int) bool {
	room := i.limit
	if b.rank == Ordinary {
		room -= i.reserve
	}
	for i.held+more > room {
		victim := i.victim(b, has+more)
		if victim == nil {
			return false
		}
		victim.isCut = true
		i.drop(victim)
		victim.cut()
	}
	return true
}

// victim is the body to cut for another, whose tenant is about to have so much;
// nil if there is none. Callers hold mu.
func (i *Intake) victim(b *Body, would int) *Body {
	for rank := Ordinary; rank <= b.rank; rank++ {
		var most *tenant
		for _, t := range i.tenants[rank] {
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

// Served says that the body is whole and is about to be served: it is not cut
// any more. It returns false if it has been.
func (b *Body) Served() bool {
	b.intake.mu.Lock()
	defer b.intake.mu.Unlock()
	b.leaveBodies()
	return !b.isCut
}

// Cut says that the body had to go.
func (b *Body) Cut() bool {
	b.intake.mu.Lock()
	defer b.intake.mu.Unlock()
	return b.isCut
}

// Release gives back what the body held. More calls do nothing.
func (b *Body) Release() {
	b.intake.mu.Lock()
	defer b.intake.mu.Unlock()
	b.released = true
	b.intake.drop(b)
}

// drop takes a body out. Callers hold mu.
func (i *Intake) drop(b *Body) {
	b.leaveBodies()
	t := i.tenants[b.rank][b.tenant]
	if b.held == 0 {
		return
	}
	i.held -= b.held
	if t.held -= b.held; t.held == 0 {
		delete(i.tenants[b.rank], b.tenant)
	}
	b.held = 0
}

// leaveBodies takes a body from those that can be cut. Callers hold mu.
func (b *Body) leaveBodies() {
	if b.place != nil {
		b.intake.tenants[b.rank][b.tenant].bodies.Remove(b.place)
		b.place = nil
	}
}
