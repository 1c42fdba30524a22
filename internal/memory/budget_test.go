package memory

import (
	"math"
	"sync"
	"testing"
	"time"
)

const mb = 1 << 20

func TestReserve(t *testing.T) {
	used := int64(100 * mb)
	now := time.Unix(1000, 0)
	budget := NewBudget(1000 * mb)
	budget.measure = func() int64 { return used }
	reserve := func(want bool, need Need) Reservation {
		t.Helper()
		now = now.Add(time.Second)
		h, ok := budget.Reserve(need, now)
		if ok != want {
			t.Errorf("%+v beside %d MB: %v, want %v", need, budget.reserved/mb, ok, want)
		}
		return h
	}
	first := reserve(true, Need{Own: 400 * mb})
	reserve(false, Need{Own: 400 * mb})
	first.Release()
	first.Release()
	second := reserve(true, Need{Own: 400 * mb})
	second.Release()

	// Shared memory counts once, until its last user has released it.
	a := reserve(true, Need{Own: mb, Shared: 600 * mb, Key: "pods"})
	b := reserve(true, Need{Own: mb, Shared: 600 * mb, Key: "pods"})
	reserve(false, Need{Own: mb, Shared: 600 * mb, Key: "configmaps"})
	a.Release()
	reserve(false, Need{Own: 200 * mb})
	b.Release()
	c := reserve(true, Need{Own: 200 * mb})
	c.Release()
	if budget.reserved != 0 || len(budget.shared) != 0 {
		t.Errorf("%d bytes are still reserved", budget.reserved)
	}

	// Memory in use counts too, and the budget is full from some point on.
	if budget.Full(now) {
		t.Error("full with 100 of 1000 MB")
	}
	used = 950 * mb
	reserve(false, Need{Own: mb})
	if now = now.Add(time.Second); !budget.Full(now) {
		t.Error("not full with 950 of 1000 MB")
	}
	if err := budget.Shortage(now); err == nil || err.Error() != "the process uses 950 MiB of memory, and its limit is 1000 MiB" {
		t.Errorf("the shortage is %v", err)
	}
	used = 100 * mb
	if !budget.Full(now) {
		t.Error("the heap was measured again at once")
	}
}

// The reservations of one tenant leave room for reservations of others, and shrink
// to what the requests still need.
func TestReserveByTenant(t *testing.T) {
	now := time.Unix(1000, 0)
	budget := NewBudget(1000 * mb)
	budget.measure = func() int64 { return 0 }
	reserve := func(want bool, tenant string, own int64) *Reservation {
		t.Helper()
		h, ok := budget.Reserve(Need{Own: own, Tenant: tenant}, now)
		if ok != want {
			t.Errorf("%d MB for %s beside %d: %v, want %v", own/mb, tenant, budget.own[tenant]/mb, ok, want)
		}
		return &h
	}
	first := reserve(true, "greedy", 100*mb)
	second := reserve(true, "greedy", 100*mb)
	reserve(false, "greedy", mb)
	large := reserve(true, "other", 300*mb) // alone, it may be larger
	reserve(false, "other", mb)
	reserve(true, "third", 100*mb).Release()

	first.Shrink(200 * mb)
	reserve(false, "greedy", mb)
	first.Shrink(40 * mb)
	third := reserve(true, "greedy", 60*mb)
	reserve(false, "greedy", mb)
	for _, h := range []*Reservation{first, second, third, large} {
		h.Release()
		h.Shrink(0)
	}
	if budget.reserved != 0 || len(budget.own) != 0 {
		t.Errorf("%d bytes are still reserved, by %d tenants", budget.reserved, len(budget.own))
	}
	new(Reservation).Shrink(0)
}

// What is critical is bounded by its tenant alone, and counts for all.
func TestCriticalReservations(t *testing.T) {
	now := time.Unix(1000, 0)
	budget := NewBudget(1000 * mb)
	budget.measure = func() int64 { return 900 * mb }
	for _, step := range []struct {
		need Need
		want bool
	}{
		{Need{Own: mb}, false},
		{Need{Own: 500 * mb, Critical: true}, true},
		{Need{Own: 500 * mb, Critical: true}, true},
		{Need{Own: 150 * mb, Critical: true, Tenant: "node"}, true},
		{Need{Own: 100 * mb, Critical: true, Tenant: "node"}, false},
		{Need{Own: 100 * mb, Critical: true, Tenant: "other"}, true},
		{Need{Own: mb, Tenant: "third"}, false},
	} {
		if _, ok := budget.Reserve(step.need, now); ok != step.want {
			t.Errorf("%+v: %v", step.need, ok)
		}
	}
	if want := int64(1250 * mb); budget.reserved != want {
		t.Errorf("%d bytes are reserved, want %d", budget.reserved, want)
	}
}

// Several goroutines may release one reservation, such as a watch and a timer.
func TestConcurrentRelease(t *testing.T) {
	budget := NewBudget(1000 * mb)
	budget.measure = func() int64 { return 0 }
	for range 1000 {
		h, ok := budget.Reserve(Need{Own: mb, Shared: mb, Key: "pods"}, time.Unix(1000, 0))
		if !ok {
			t.Fatal("refused")
		}
		var releases sync.WaitGroup
		for range 4 {
			releases.Go(h.Release)
		}
		releases.Wait()
	}
	if budget.reserved != 0 || len(budget.shared) != 0 {
		t.Errorf("%d bytes and %d keys are still reserved", budget.reserved, len(budget.shared))
	}
}

func TestBudgetWithoutLimit(t *testing.T) {
	budget := NewBudget(math.MaxInt64)
	h, ok := budget.Reserve(Need{Own: math.MaxInt64}, time.Now())
	h.Release()
	if !ok || budget.Full(time.Now()) {
		t.Error("refused without a limit")
	}
}

func TestInUse(t *testing.T) {
	if n := inUse(); n <= 0 || n > 1<<40 {
		t.Errorf("%d bytes are in use", n)
	}
}

func BenchmarkFull(b *testing.B) {
	budget := NewBudget(1000 * mb)
	now := time.Now()
	for b.Loop() {
		if budget.Full(now) {
			b.Fatal("full")
		}
	}
}

func BenchmarkReserve(b *testing.B) {
	budget := NewBudget(1 << 40)
	now := time.Now()
	for b.Loop() {
		h, _ := budget.Reserve(Need{Own: mb, Shared: mb, Key: "pods"}, now)
		h.Release()
	}
}

func BenchmarkMeasure(b *testing.B) {
	for b.Loop() {
		inUse()
	}
}

// The memory that streams and responses of a tenant retain is bounded, apart
// from its reservations.
func TestRetain(t *testing.T) {
	budget := NewBudget(1000 * mb) // 200 MB a tenant
	retain := func(want bool, tenant string, bytes int64) *Reservation {
		t.Helper()
		h, ok := budget.Retain(tenant, bytes)
		if ok != want {
			t.Errorf("%s retains %d MB more: %v, want %v", tenant, bytes/mb, ok, want)
		}
		return &h
	}
	first := retain(true, "jane", 150*mb)
	retain(false, "jane", 100*mb)
	if budget.AtRetainLimit("jane") || budget.reserved != 0 {
		t.Errorf("jane is at the limit with 150 MB: %v; %d bytes are reserved", budget.AtRetainLimit("jane"), budget.reserved)
	}
	second := retain(true, "jane", 50*mb)
	if !budget.AtRetainLimit("jane") || budget.AtRetainLimit("john") {
		t.Error("jane is not at the limit with 200 MB, or john is with none")
	}
	other := retain(true, "john", 900*mb) // john's only one
	retain(true, "", 900*mb)
	for _, h := range []*Reservation{first, second, other, first} {
		h.Release()
	}
	if len(budget.retained) != 0 {
		t.Errorf("%v is retained after all were released", budget.retained)
	}
}
