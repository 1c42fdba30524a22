package memory

import (
	"fmt"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// reservableShare is the percentage of the limit up to which reservations
	// are granted. The rest is for memory that is not reserved.
	reservableShare = 80
	// fullShare is the percentage of the limit from which nothing more should
	// be stored.
	fullShare = 90
	// tenantFraction divides the reservable memory: a tenant may have one
	// tenantFraction-th of it. A tenant's only request may need more.
	tenantFraction = 4
	// measureEvery bounds how often the heap is measured.
	measureEvery = 50 * time.Millisecond
)

// Budget compares what requests are about to use, and the memory that is in
// use already, with a limit. It is safe for concurrent use.
type Budget struct {
	limit   int64
	measure func() int64 // returns the bytes in use

	inUse    atomic.Int64 // as last measured
	measured atomic.Int64 // when that was, in nanoseconds of the clock

	mu       sync.Mutex // guards the following
	reserved int64
	shared   map[any]*sharedUse
	own      map[string]int64 // reserved, by tenant
	retained map[string]int64 // by the streams and unread responses of each tenant
}

// sharedUse is memory that several requests use together.
type sharedUse struct {
	bytes int64
	users int
}

// NewBudget returns a budget with a limit in bytes. math.MaxInt64 is no limit.
func NewBudget(limit int64) *Budget {
	return &Budget{limit: limit, measure: inUse, shared: map[any]*sharedUse{}, own: map[string]int64{}, retained: map[string]int64{}}
}

// ProcessLimit returns the limit of the process's garbage collector
// (GOMEMLIMIT) in bytes; math.MaxInt64 is no limit.
func ProcessLimit() int64 { return debug.SetMemoryLimit(-1) }

// inUse returns the bytes that the last garbage collection left, and those that
// the runtime uses itself, mainly for stacks.
func inUse() int64 {
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

// Need is the memory that a request is about to use, in bytes. Own is for the
// request alone. Shared is used by all requests with the same Key together.
type Need struct {
	Own, Shared int64
	Key         any    // comparable
	Tenant      string // whose bound Own counts against; "" has none
	Critical    bool   // no other bound counts
}

// Reservation is memory that a Budget has granted. The zero value is empty.
type Reservation struct {
	budget *Budget
	need   Need
	// The budget's mutex guards the following.
	retained bool // already a part of the memory in use
	released bool
}

// Reserve reserves what a request needs. It returns false if that does not fit
// beside the memory in use and all reservations, unless it is critical, or beside
// the reservations of the same tenant. The caller must release the reservation.
func (b *Budget) Reserve(need Need, now time.Time) (Reservation, bool) {
	if b.limit == math.MaxInt64 {
		return Reservation{}, true
	}
	used := b.used(now)
	b.mu.Lock()
	defer b.mu.Unlock()
	more := need.Own
	s := b.shared[need.Key]
	if s == nil {
		more += need.Shared
	}
	if !need.Critical && used+b.reserved+more > b.limit/100*reservableShare {
		return Reservation{}, false
	}
	if has := b.own[need.Tenant]; need.Tenant != "" && has > 0 && has+need.Own > b.tenantLimit() {
		return Reservation{}, false
	}
	b.reserved += more
	charge(b.own, need.Tenant, need.Own)
	if need.Shared > 0 {
		if s == nil {
			s = &sharedUse{bytes: need.Shared}
			b.shared[need.Key] = s
		}
		s.users++
	}
	return Reservation{budget: b, need: need}, true
}

// Retain counts the bytes that a stream or a response of a tenant retains for
// as long as its client takes to read. They are a part of the memory in use
// already, and count against a bound of the tenant alone. Retain returns false
// if they exceed it. The caller must release the reservation.
func (b *Budget) Retain(tenant string, bytes int64) (Reservation, bool) {
	if tenant == "" || b.limit == math.MaxInt64 {
		return Reservation{}, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if has := b.retained[tenant]; has > 0 && has+bytes > b.tenantLimit() {
		return Reservation{}, false
	}
	return b.retain(tenant, bytes), true
}

// RetainUnchecked is Retain for bytes that are counted but never refused.
func (b *Budget) RetainUnchecked(tenant string, bytes int64) Reservation {
	if tenant == "" || b.limit == math.MaxInt64 {
		return Reservation{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.retain(tenant, bytes)
}

// retain counts retained bytes. Callers hold the mutex.
func (b *Budget) retain(tenant string, bytes int64) Reservation {
	charge(b.retained, tenant, bytes)
	return Reservation{budget: b, need: Need{Own: bytes, Tenant: tenant}, retained: true}
}

// AtRetainLimit reports whether a tenant retains as much as it may, or more.
func (b *Budget) AtRetainLimit(tenant string) bool {
	if tenant == "" || b.limit == math.MaxInt64 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.retained[tenant] >= b.tenantLimit()
}

// tenantLimit returns what one tenant may reserve, and what it may retain.
func (b *Budget) tenantLimit() int64 { return b.limit / 100 * reservableShare / tenantFraction }

// charge adds bytes to a tenant's count; negative ones are subtracted.
func charge(tenants map[string]int64, tenant string, bytes int64) {
	if tenant == "" || bytes == 0 {
		return
	}
	if tenants[tenant] += bytes; tenants[tenant] == 0 {
		delete(tenants, tenant)
	}
}

// Shrink reduces the request's own part of the reservation to the given bytes,
// if it is larger. It is safe for concurrent use.
func (r *Reservation) Shrink(bytes int64) {
	b := r.budget
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if less := r.need.Own - bytes; less > 0 && !r.released {
		r.need.Own -= less
		b.reserved -= less
		charge(b.own, r.need.Tenant, -less)
	}
}

// Empty reports whether nothing was reserved.
func (r *Reservation) Empty() bool { return r.budget == nil }

// Release ends the reservation. Further calls do nothing. It is safe for
// concurrent use.
func (r *Reservation) Release() {
	b := r.budget
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.released {
		return
	}
	r.released = true
	if r.retained {
		charge(b.retained, r.need.Tenant, -r.need.Own)
		return
	}
	b.reserved -= r.need.Own
	charge(b.own, r.need.Tenant, -r.need.Own)
	if r.need.Shared == 0 {
		return
	}
	s := b.shared[r.need.Key]
	if s.users--; s.users == 0 {
		b.reserved -= s.bytes
		delete(b.shared, r.need.Key)
	}
}

// Full reports whether the memory in use leaves no room for more objects. It
// measures at most once in measureEvery, and costs two atomic loads otherwise.
func (b *Budget) Full(now time.Time) bool {
	return b.limit != math.MaxInt64 && b.used(now) > b.limit/100*fullShare
}

// Limit returns the limit in bytes; math.MaxInt64 is no limit.
func (b *Budget) Limit() int64 { return b.limit }

// Shortage returns an error with the memory in use and the limit if Full.
func (b *Budget) Shortage(now time.Time) error {
	if !b.Full(now) {
		return nil
	}
	return fmt.Errorf("the process uses %d MiB of memory, and its limit is %d MiB", b.inUse.Load()>>20, b.limit>>20)
}

// used returns the bytes in use, at most measureEvery old.
func (b *Budget) used(now time.Time) int64 {
	at, last := now.UnixNano(), b.measured.Load()
	if at-last > int64(measureEvery) && b.measured.CompareAndSwap(last, at) {
		b.inUse.Store(b.measure())
	}
	return b.inUse.Load()
}
