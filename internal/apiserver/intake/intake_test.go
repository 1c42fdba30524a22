package intake

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

const mb = 1 << 20

// hall is an intake of 64 MB in a test, and who was cut.
type hall struct {
	*Intake
	t   *testing.T
	cut []string
}

func newHall(t *testing.T) *hall { return &hall{Intake: New(64 * mb), t: t} }

// sends has a tenant send so many bytes in a body, which must be held or not.
func (h *hall) sends(name string, rank Rank, bytes int, want bool) *Body {
	h.t.Helper()
	b := h.Begin(name, rank, func() { h.cut = append(h.cut, name) })
	if got := b.Hold(bytes); got != want {
		h.t.Errorf("%d bytes of %s beside %d: %v, want %v", bytes, name, h.held, got, want)
	}
	return b
}

// wantCut checks who was cut since the last time.
func (h *hall) wantCut(want ...string) {
	h.t.Helper()
	if fmt.Sprint(h.cut) != fmt.Sprint(want) {
		h.t.Errorf("cut were %v, want %v", h.cut, want)
	}
	h.cut = nil
}

func TestBoundOfATenant(t *testing.T) {
	h := newHall(t)
	for range 16 {
		h.sends("greedy", Ordinary, mb, true)
	}
	h.sends("greedy", Ordinary, 1, false)
	h.sends("other", Ordinary, 3*mb, true)
	h.wantCut()
	for range 40 {
		h.sends("admin", Privileged, mb, true)
	}
}

func TestManyTenantsLeaveRoomForOthers(t *testing.T) {
	h := newHall(t)
	var served *Body
	for i := range 100 {
		if b := h.sends(fmt.Sprint("greedy", i%10), Ordinary, mb, i < 56); i == 0 {
			served = b
		}
	}
	h.wantCut()
	if !served.Served() {
		t.Error("a body was cut for nobody")
	}
	h.sends("other", Ordinary, 10, true)
	if len(h.cut) != 1 {
		t.Errorf("%v were cut for a small body", h.cut)
	}
	h.cut = nil
	h.sends("other", Ordinary, 3*mb, true)
	if len(h.cut) != 3 {
		t.Errorf("%v were cut for 3 MB", h.cut)
	}
	h.cut = nil
	// The reserve is for those on whom the cluster depends.
	for range 8 {
		h.sends("node", Critical, mb, true)
	}
	h.wantCut()
	h.sends("node", Critical, mb, true)
	if len(h.cut) != 1 {
		t.Errorf("%v were cut for the node", h.cut)
	}
	h.cut = nil
	for range 20 {
		h.sends("admin", Privileged, 3*mb, true)
	}
	h.sends("admin", Privileged, 9*mb, false)
	h.sends("admin", Privileged, 3*mb, true)
	h.sends("node", Critical, mb, false)
}

// What is being served is not cut, nor is what holds less than the newcomer.
func TestWhoIsNotCut(t *testing.T) {
	h := newHall(t)
	for i := range 56 {
		if b := h.sends(fmt.Sprint("greedy", i%10), Ordinary, mb, true); i%2 == 0 && !b.Served() {
			t.Error("a body was cut for nobody")
		}
	}
	for range 3 {
		h.sends("other", Ordinary, mb, true)
	}
	for _, name := range h.cut {
		if (name[len(name)-1]-'0')%2 == 0 {
			t.Errorf("a body of %s was cut, of whom all are served", name)
		}
	}
	h.sends("other", Ordinary, 3*mb, false)
}

func TestCutBodies(t *testing.T) {
	h := newHall(t)
	modest := h.sends("modest", Ordinary, mb, true)
	var greedy []*Body
	for i := range 55 {
		greedy = append(greedy, h.sends(fmt.Sprint("greedy", i%4), Ordinary, mb, true))
	}
	h.sends("other", Ordinary, 10, true)
	cut := 0
	for i, b := range greedy {
		if !b.Cut() {
			continue
		}
		cut++
		if i > 3 || b.Hold(2*mb) || b.Served() {
			t.Errorf("body %d goes on after it was cut, or is not the oldest", i)
		}
	}
	if cut != 1 || modest.Cut() {
		t.Errorf("%d bodies were cut; of the tenant with least: %v", cut, modest.Cut())
	}
	before := h.held
	modest.Release()
	modest.Release()
	if modest.Hold(mb) || h.held != before-mb {
		t.Errorf("%d bytes are held after %d", h.held, before)
	}
}

// Whatever happens, what is counted is what is held.
func TestNothingIsLost(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	i := New(mb)
	var bodies []*Body
	for range 20_000 {
		switch n := random.IntN(10); {
		case n < 4 || len(bodies) == 0:
			b := i.Begin(fmt.Sprint(random.IntN(8)), Rank(random.IntN(int(ranks))), func() {})
			b.Hold(1 + random.IntN(5*Unit))
			bodies = append(bodies, b)
		case n < 6:
			bodies[random.IntN(len(bodies))].Hold(random.IntN(10 * Unit))
		case n < 7:
			bodies[random.IntN(len(bodies))].Served()
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
