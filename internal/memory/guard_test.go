package memory

import (
	"math"
	"sync"
	"testing"
	"time"
)

const mb = 1 << 20

func TestGuard(t *testing.T) {
	lives := int64(100 * mb)
	now := time.Unix(1000, 0)
	g := NewGuard(1000 * mb)
	g.measure = func() int64 { return lives }
	reserve := func(want bool, need Need) Held {
		t.Helper()
		now = now.Add(time.Second)
		h, ok := g.Reserve(need, now)
		if ok != want {
			t.Errorf("%+v beside %d MB: %v, want %v", need, g.used/mb, ok, want)
		}
		return h
	}
	first := reserve(true, Need{Own: 400 * mb})
	reserve(false, Need{Own: 400 * mb})
	first.Release()
	first.Release()
	second := reserve(true, Need{Own: 400 * mb})
	second.Release()

	// What is shared counts once, and until the last has gone.
	a := reserve(true, Need{Own: mb, Shared: 600 * mb, Key: "pods"})
	b := reserve(true, Need{Own: mb, Shared: 600 * mb, Key: "pods"})
	reserve(false, Need{Own: mb, Shared: 600 * mb, Key: "configmaps"})
	a.Release()
	reserve(false, Need{Own: 200 * mb})
	b.Release()
	c := reserve(true, Need{Own: 200 * mb})
	c.Release()
	if g.used != 0 || len(g.shared) != 0 {
		t.Errorf("%d bytes are still promised", g.used)
	}

	// What lives counts as much, and from some point on nothing is to be added.
	if g.Full(now) {
		t.Error("full with 100 of 1000 MB")
	}
	lives = 950 * mb
	reserve(false, Need{Own: mb})
	if now = now.Add(time.Second); !g.Full(now) {
		t.Error("not full with 950 of 1000 MB")
	}
	lives = 100 * mb
	if !g.Full(now) {
		t.Error("the heap was looked at again at once")
	}
}

// One tenant's requests leave room for those of others, and give back what
// they do not need any more.
func TestGuardOfTenants(t *testing.T) {
	now := time.Unix(1000, 0)
	g := NewGuard(1000 * mb)
	g.measure = func() int64 { return 0 }
	reserve := func(want bool, tenant string, own int64) *Held {
		t.Helper()
		h, ok := g.Reserve(Need{Own: own, Tenant: tenant}, now)
		if ok != want {
			t.Errorf("%d MB for %s beside %d: %v, want %v", own/mb, tenant, g.own[tenant]/mb, ok, want)
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
	for _, h := range []*Held{first, second, third, large} {
		h.Release()
		h.Shrink(0)
	}
	if g.used != 0 || len(g.own) != 0 {
		t.Errorf("%d bytes are still promised, %d tenants have some", g.used, len(g.own))
	}
	new(Held).Shrink(0)
}

// A watch may give back what it was promised while a timer does.
func TestReleaseByMany(t *testing.T) {
	g := NewGuard(1000 * mb)
	g.measure = func() int64 { return 0 }
	for range 1000 {
		h, ok := g.Reserve(Need{Own: mb, Shared: mb, Key: "pods"}, time.Unix(1000, 0))
		if !ok {
			t.Fatal("refused")
		}
		var releases sync.WaitGroup
		for range 4 {
			releases.Go(h.Release)
		}
		releases.Wait()
	}
	if g.used != 0 || len(g.shared) != 0 {
		t.Errorf("%d bytes and %d keys are held by nobody", g.used, len(g.shared))
	}
}

func TestGuardWithoutLimit(t *testing.T) {
	g := NewGuard(math.MaxInt64)
	h, ok := g.Reserve(Need{Own: math.MaxInt64}, time.Now())
	h.Release()
	if !ok || g.Full(time.Now()) {
		t.Error("refused without a limit")
	}
}

func TestLives(t *testing.T) {
	if n := lives(); n <= 0 || n > 1<<40 {
		t.Errorf("%d bytes live", n)
	}
}

func BenchmarkFull(b *testing.B) {
	g := NewGuard(1000 * mb)
	now := time.Now()
	for b.Loop() {
		if g.Full(now) {
			b.Fatal("full")
		}
	}
}

func BenchmarkReserve(b *testing.B) {
	g := NewGuard(1 << 40)
	now := time.Now()
	for b.Loop() {
		h, _ := g.Reserve(Need{Own: mb, Shared: mb, Key: "pods"}, now)
		h.Release()
	}
}

func BenchmarkMeasure(b *testing.B) {
	for b.Loop() {
		lives()
	}
}

// What a tenant's streams and answers keep is bounded for each tenant, beside
// what its requests are promised.
func TestKeep(t *testing.T) {
	g := NewGuard(1000 * mb) // 200 MB a tenant
	keep := func(want bool, tenant string, bytes int64) *Held {
		t.Helper()
		h, ok := g.Keep(tenant, bytes)
		if ok != want {
			t.Errorf("%s keeps %d MB more: %v, want %v", tenant, bytes/mb, ok, want)
		}
		return &h
	}
	first := keep(true, "jane", 150*mb)
	keep(false, "jane", 100*mb)
	if g.KeepsMost("jane") || g.used != 0 {
		t.Errorf("jane keeps most with 150 MB: %v; %d bytes are promised", g.KeepsMost("jane"), g.used)
	}
	second := keep(true, "jane", 50*mb)
	if !g.KeepsMost("jane") || g.KeepsMost("john") {
		t.Error("jane does not keep most with 200 MB, or john does with none")
	}
	other := keep(true, "john", 900*mb) // alone
	keep(true, "", 900*mb)
	for _, h := range []*Held{first, second, other, first} {
		h.Release()
	}
	if len(g.kept) != 0 {
		t.Errorf("%v is kept after all have ended", g.kept)
	}
}
