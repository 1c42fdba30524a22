package bodylimit

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

const mb = 1 << 20

// testLimiter has 64 MB, and records whose bodies were aborted.
type testLimiter struct {
	*Limiter
	t       *testing.T
	aborted []string
}

func newTestLimiter(t *testing.T) *testLimiter { return &testLimiter{Limiter: New(64 * mb), t: t} }

// sends has a tenant send so many bytes in a body, which must be held or not.
func (l *testLimiter) sends(name string, rank Rank, bytes int, want bool) *Body {
	l.t.Helper()
	b := l.Begin(name, rank, func() { l.aborted = append(l.aborted, name) })
	if got := b.Reserve(bytes); got != want {
		l.t.Errorf("%d bytes of %s beside %d: %v, want %v", bytes, name, l.held, got, want)
	}
	return b
}

// wantAborted checks whose bodies were aborted since the last time.
func (l *testLimiter) wantAborted(want ...string) {
	l.t.Helper()
	if fmt.Sprint(l.aborted) != fmt.Sprint(want) {
		l.t.Errorf("aborted were %v, want %v", l.aborted, want)
	}
	l.aborted = nil
}

func TestBoundOfATenant(t *testing.T) {
	l := newTestLimiter(t)
	for range 16 {
		l.sends("greedy", Ordinary, mb, true)
	}
	l.sends("greedy", Ordinary, 1, false)
	l.sends("other", Ordinary, 3*mb, true)
	l.wantAborted()
	for range 40 {
		l.sends("admin", Privileged, mb, true)
	}
}

func TestManyTenantsLeaveRoomForOthers(t *testing.T) {
	l := newTestLimiter(t)
	var served *Body
	for i := range 100 {
		if b := l.sends(fmt.Sprint("greedy", i%10), Ordinary, mb, i < 56); i == 0 {
			served = b
		}
	}
	l.wantAborted()
	if !served.Protect() {
		t.Error("a body was aborted without need")
	}
	l.sends("other", Ordinary, 10, true)
	if len(l.aborted) != 1 {
		t.Errorf("%v were aborted for a small body", l.aborted)
	}
	l.aborted = nil
	l.sends("other", Ordinary, 3*mb, true)
	if len(l.aborted) != 3 {
		t.Errorf("%v were aborted for 3 MB", l.aborted)
	}
	l.aborted = nil
	// The reserve is for clients that the cluster depends on.
	for range 8 {
		l.sends("node", Critical, mb, true)
	}
	l.wantAborted()
	l.sends("node", Critical, mb, true)
	if len(l.aborted) != 1 {
		t.Errorf("%v were aborted for the node", l.aborted)
	}
	l.aborted = nil
	for range 20 {
		l.sends("admin", Privileged, 3*mb, true)
	}
	l.sends("admin", Privileged, 9*mb, false)
	l.sends("admin", Privileged, 3*mb, true)
	l.sends("node", Critical, mb, false)
}

// The limiter aborts neither bodies that are being served nor bodies of tenants that hold less than the new
// tenant.
func TestProtectedBodies(t *testing.T) {
	l := newTestLimiter(t)
	for i := range 56 {
		if b := l.sends(fmt.Sprint("greedy", i%10), Ordinary, mb, true); i%2 == 0 && !b.Protect() {
			t.Error("a body was aborted without need")
		}
	}
	for range 3 {
		l.sends("other", Ordinary, mb, true)
	}
	for _, name := range l.aborted {
		if (name[len(name)-1]-'0')%2 == 0 {
			t.Errorf("a body of %s was aborted, but all of its bodies must be served", name)
		}
	}
	l.sends("other", Ordinary, 3*mb, false)
}

func TestAbortedBodies(t *testing.T) {
	l := newTestLimiter(t)
	modest := l.sends("modest", Ordinary, mb, true)
	var greedy []*Body
	for i := range 55 {
		greedy = append(greedy, l.sends(fmt.Sprint("greedy", i%4), Ordinary, mb, true))
	}
	l.sends("other", Ordinary, 10, true)
	aborted := 0
	for i, b := range greedy {
		if !b.Aborted() {
			continue
		}
		aborted++
		if i > 3 || b.Reserve(2*mb) || b.Protect() {
			t.Errorf("body %d goes on after it was aborted, or is not the oldest", i)
		}
	}
	if aborted != 1 || modest.Aborted() {
		t.Errorf("%d bodies were aborted; of the tenant with least: %v", aborted, modest.Aborted())
	}
	before := l.held
	modest.Release()
	modest.Release()
	if modest.Reserve(mb) || l.held != before-mb {
		t.Errorf("%d bytes are held after %d", l.held, before)
	}
}

// The counts equal the sum of all bodies after any sequence of calls.
func TestAccounting(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	i := New(mb)
	var bodies []*Body
	for range 20_000 {
		switch n := random.IntN(10); {
		case n < 4 || len(bodies) == 0:
			b := i.Begin(fmt.Sprint(random.IntN(8)), Rank(random.IntN(int(ranks))), func() {})
			b.Reserve(1 + random.IntN(5*Unit))
			bodies = append(bodies, b)
		case n < 6:
			bodies[random.IntN(len(bodies))].Reserve(random.IntN(10 * Unit))
		case n < 7:
			bodies[random.IntN(len(bodies))].Protect()
		default:
			at := random.IntN(len(bodies))
			bodies[at].Release()
			bodies = append(bodies[:at], bodies[at+1:]...)
		}
		sum := 0
		for _, b := range bodies {
			sum += b.held
		}
		if i.held != sum || i.held > i.limit {
			t.Fatalf("%d bytes are counted, %d held, of %d (seed %d)", i.held, sum, i.limit, seed)
		}
	}
	for _, b := range bodies {
		b.Release()
	}
	for rank, left := range i.tenants {
		if len(left) > 0 || i.held != 0 {
			t.Errorf("%d tenants of rank %d are left, %d bytes (seed %d)", len(left), rank, i.held, seed)
		}
	}
}
