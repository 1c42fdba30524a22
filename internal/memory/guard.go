package memory

import (
	"math"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// ordinaryShare is the part of the limit, in per cent, up to which large
	// requests are let in. The rest is for what nobody announced.
	ordinaryShare = 80
	// fullShare is the part from which nothing more should be stored.
	fullShare = 90
	// tenantShare is the part of what large requests are let in for that those
	// of one tenant have. A request that is alone may need more.
	tenantShare = 4
	// measureEvery bounds how often the heap is looked at.
	measureEvery = 50 * time.Millisecond
)

// Guard weighs what requests are about to use, and what lives already,
// against a limit. Its methods may be called from any goroutine.
type Guard struct {
	limit   int64
	measure func() int64 // what lives, in bytes

	lives    atomic.Int64
	measured atomic.Int64 // when that was, in nanoseconds of the clock

	mu     sync.Mutex // guards the following
	used   int64      // by those who were let in
	shared map[any]*sharing
	own    map[string]int64 // of each tenant's requests
	kept   map[string]int64 // by each tenant's streams and unread answers
}

// sharing is what several requests use together.
type sharing struct {
	bytes int64
	users int
}

// NewGuard returns a guard of a limit in bytes.
func NewGuard(limit int64) *Guard {
	return &Guard{limit: limit, measure: lives, shared: map[any]*sharing{}, own: map[string]int64{}, kept: map[string]int64{}}
}

// ProcessLimit is the limit that the process's garbage collector keeps to
// (GOMEMLIMIT); math.MaxInt64 is none.
func ProcessLimit() int64 { return debug.SetMemoryLimit(-1) }

// lives is what the last garbage collection left, and what the runtime itself
// takes: stacks, above all.
func lives() int64 {
	samples := [...]metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
	}
	metrics.Read(samples[:])
	sum := int64(samples[0].Value.Uint64() + samples[1].Value.Uint64())
	for _, s := range samples[2:] {
		sum -= int64(s.Value.Uint64())
	}
	return sum
}

// Need is what a request is about to use, in bytes. Own is for it alone;
// Shared is used by all requests of the same Key together.
type Need struct {
	Own, Shared int64
	Key         any    // comparable
	Tenant      string // whose bound Own counts for; "" has none
}

// Held is what a request was promised. The zero value is nothing.
type Held struct {
	guard *Guard
	need  Need
	// The guard's mutex guards the following.
	kept     bool // counts as a part of what lives
	released bool
}

// Reserve promises a request what it needs, or returns false if that does not
// fit beside what lives and what others were promised, or beside what others
// of its tenant were. What was promised must be released. now is the time.
func (g *Guard) Reserve(need Need, now time.Time) (Held, bool) {
	if g.limit == math.MaxInt64 {
		return Held{}, true
	}
	lives := g.living(now)
	g.mu.Lock()
	defer g.mu.Unlock()
	more := need.Own
	s := g.shared[need.Key]
	if s == nil {
		more += need.Shared
	}
	room := g.limit / 100 * ordinaryShare
	if lives+g.used+more > room {
		return Held{}, false
	}
	if has := g.own[need.Tenant]; need.Tenant != "" && has > 0 && has+need.Own > g.share() {
		return Held{}, false
	}
	g.used += more
	charge(g.own, need.Tenant, need.Own)
	if need.Shared > 0 {
		if s == nil {
			s = &sharing{bytes: need.Shared}
			g.shared[need.Key] = s
		}
		s.users++
	}
	return Held{guard: g, need: need}, true
}

// Keep counts what a stream or an answer of a tenant keeps in memory for as
// long as its client likes: it is a part of what lives already. It returns
// false if the tenant keeps too much then. What is kept must be released.
func (g *Guard) Keep(tenant string, bytes int64) (Held, bool) {
	if tenant == "" || g.limit == math.MaxInt64 {
		return Held{}, true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if has := g.kept[tenant]; has > 0 && has+bytes > g.share() {
		return Held{}, false
	}
	return g.keep(tenant, bytes), true
}

// KeepAnyway is Keep for what a tenant is not refused, however much it keeps.
func (g *Guard) KeepAnyway(tenant string, bytes int64) Held {
	if tenant == "" || g.limit == math.MaxInt64 {
		return Held{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.keep(tenant, bytes)
}

// keep is called with the mutex held.
func (g *Guard) keep(tenant string, bytes int64) Held {
	charge(g.kept, tenant, bytes)
	return Held{guard: g, need: Need{Own: bytes, Tenant: tenant}, kept: true}
}

// KeepsMost says that a tenant keeps as much as it may, or more.
func (g *Guard) KeepsMost(tenant string) bool {
	if tenant == "" || g.limit == math.MaxInt64 {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.kept[tenant] >= g.share()
}

// share is what one tenant has of the memory for large requests.
func (g *Guard) share() int64 { return g.limit / 100 * ordinaryShare / tenantShare }

// charge counts bytes for a tenant; negative ones are given back.
func charge(tenants map[string]int64, tenant string, bytes int64) {
	if tenant == "" || bytes == 0 {
		return
	}
	if tenants[tenant] += bytes; tenants[tenant] == 0 {
		delete(tenants, tenant)
	}
}

// Shrink gives back what was promised for the request alone but for so many
// bytes: all that it still needs. It may be called from several goroutines.
func (h *Held) Shrink(bytes int64) {
	g := h.guard
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if less := h.need.Own - bytes; less > 0 && !h.released {
		h.need.Own -= less
		g.used -= less
		charge(g.own, h.need.Tenant, -less)
	}
}

// Holds says that something was promised.
func (h *Held) Holds() bool { return h.guard != nil }

// Release gives back what was promised; more calls do nothing. It may be
// called from several goroutines.
func (h *Held) Release() {
	g := h.guard
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.released {
		return
	}
	h.released = true
	if h.kept {
		charge(g.kept, h.need.Tenant, -h.need.Own)
		return
	}
	g.used -= h.need.Own
	charge(g.own, h.need.Tenant, -h.need.Own)
	if h.need.Shared == 0 {
		return
	}
	s := g.shared[h.need.Key]
	if s.users--; s.users == 0 {
		g.used -= s.bytes
		delete(g.shared, h.need.Key)
	}
}

// Full says that what lives leaves no room for more objects. It costs two
// loads where it was asked a moment ago.
func (g *Guard) Full(now time.Time) bool {
	return g.limit != math.MaxInt64 && g.living(now) > g.limit/100*fullShare
}

// living is what lives, as of a moment ago.
func (g *Guard) living(now time.Time) int64 {
	at, last := now.UnixNano(), g.measured.Load()
	if at-last > int64(measureEvery) && g.measured.CompareAndSwap(last, at) {
		g.lives.Store(g.measure())
	}
	return g.lives.Load()
}
