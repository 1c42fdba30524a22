package l2announce

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// wire is a link in virtual time, on which nodes announce one address.
type wire struct {
	*testing.T
	now    time.Time
	nodes  []*member
	random *rand.Rand
	loss   float64 // the part of packets that is lost
}

// member is a node on a wire. One that is not alive hears and says nothing.
type member struct {
	claim *claim
	rank  int
	alive bool
	sent  int // packets
	took  int // how often it took the address because nobody answered
}

func newWire(t *testing.T, ranks ...int) *wire {
	w := &wire{T: t, now: time.Unix(1e9, 0), random: rand.New(rand.NewPCG(1, 0))}
	for _, rank := range ranks {
		w.nodes = append(w.nodes, &member{rank: rank})
	}
	for i := range w.nodes {
		w.start(i)
	}
	return w
}

// hardwareOf returns the hardware address of a node: a node has a lower one than those
// after it.
func hardwareOf(node int) hardware { return hardware{2, 0, 0, 0, 0, byte(node)} }

// start starts a node anew, as after a restart of its machine.
func (w *wire) start(node int) {
	m := w.nodes[node]
	m.alive, m.claim = true, newClaim(m.rank, hardwareOf(node), w.now)
}

// deliver lets a node hear another one, unless that is lost.
func (w *wire) deliver(from, to int) {
	if from != to && w.nodes[to].alive && w.random.Float64() >= w.loss {
		w.nodes[to].claim.hear(hardwareOf(from), w.now)
	}
}

// run lets time pass.
func (w *wire) run(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(5 * time.Millisecond) {
		for i, m := range w.nodes {
			if !m.alive || w.now.Before(m.claim.due()) {
				continue
			}
			do := m.claim.step(w.now)
			if do.took {
				m.took++
			}
			if do.announce || do.probe {
				m.sent++
			}
			for to, other := range w.nodes {
				asked := do.probe && (do.to.isZero() || do.to == hardwareOf(to)) && other.alive && other.claim.holding && w.random.Float64() >= w.loss
				switch {
				case do.announce:
					w.deliver(i, to)
				case asked:
					w.deliver(to, i)
				}
			}
		}
	}
}

// holders returns the nodes that answer for the address.
func (w *wire) holders() (list []int) {
	for i, m := range w.nodes {
		if m.alive && m.claim.holding {
			list = append(list, i)
		}
	}
	return list
}

func (w *wire) expect(what string, want ...int) {
	w.Helper()
	if got := w.holders(); !slices.Equal(got, want) {
		w.Errorf("%s: nodes %v hold the address, want %v", what, got, want)
	}
}

func TestTheFirstNodeHoldsTheAddress(t *testing.T) {
	w := newWire(t, 2, 0, 1)
	w.expect("at once", 1)
	w.run(time.Minute)
	w.expect("later", 1)
}

// TestTakeover checks that a node takes the address within two seconds after the one
// before it has died, whichever others have died with it, and that the first one gets
// it back.
func TestTakeover(t *testing.T) {
	for name, c := range map[string]struct {
		ranks, dead []int
		want        int
	}{
		"the next":       {[]int{0, 1, 2}, []int{0}, 1},
		"the last":       {[]int{0, 1, 2}, []int{0, 1}, 2},
		"by the order":   {[]int{2, 1, 0}, []int{2}, 1},
		"one of many":    {[]int{9, 3, 7, 1, 0, 8, 2, 6, 4, 5}, []int{4, 3, 6}, 1},
		"that was never": {[]int{1, 3, 7}, nil, 0},
	} {
		w := newWire(t, c.ranks...)
		w.run(10*time.Second + 333*time.Millisecond)
		for _, i := range c.dead {
			w.nodes[i].alive = false
		}
		w.run(2 * time.Second)
		w.expect(name, c.want)
		w.run(time.Minute)
		w.expect(name+", later", c.want)
		for _, i := range c.dead {
			w.start(i)
		}
		w.run(time.Second)
		if first := slices.Index(c.ranks, 0); first >= 0 {
			w.expect(name+", when the first one is back", first)
		}
	}
}

// TestOneLostPacketMovesNothing checks that no standby takes the address because it has
// no answer to one question.
func TestOneLostPacketMovesNothing(t *testing.T) {
	for start := range 100 { // at all times between two questions
		w := newWire(t, 0, 1, 2)
		w.run(10*time.Second + time.Duration(start)*5*time.Millisecond)
		w.loss = 1
		w.run(probeInterval) // in which each standby asks once
		w.loss = 0
		w.run(20 * time.Second)
		if one, two := w.nodes[1].took, w.nodes[2].took; one+two > 0 {
			t.Errorf("from %d ms on: the standbys took the address %d and %d times", start*5, one, two)
		}
	}
}

// TestOrderChanges checks that a node that becomes the first one takes the address,
// and that one that no longer is the first leaves it to the new one.
func TestOrderChanges(t *testing.T) {
	w := newWire(t, 0, 1)
	w.run(5 * time.Second)
	for i, rank := range []int{1, 0} {
		w.nodes[i].claim.setRank(rank, w.now)
	}
	w.run(100 * time.Millisecond)
	w.expect("exchanged", 1)
	w.nodes[1].alive = false // no longer there for either of them
	w.nodes[0].claim.setRank(0, w.now)
	w.run(100 * time.Millisecond)
	w.expect("alone", 0)
}

// TestTwoFirstNodes checks what happens while a node does not hear from the API server
// that another one is the first now: one of them holds the address, always the same.
func TestTwoFirstNodes(t *testing.T) {
	for _, ranks := range [][]int{{0, 0, 1}, {1, 0, 0}} {
		w := newWire(t, ranks...)
		w.run(5 * time.Second)
		holder := slices.Index(ranks, 0)
		w.expect("decided", holder)
		sent := w.nodes[holder].sent
		w.run(time.Minute)
		w.expect("later", holder)
		if got := w.nodes[holder].sent - sent; got > 7 {
			t.Errorf("the holder goes on to insist: %d announcements in a minute", got)
		}
		w.nodes[holder].alive = false
		w.run(2 * time.Second)
		if got := w.holders(); len(got) != 1 {
			t.Errorf("after its death, nodes %v hold the address", got)
		}
	}
}

// TestLossesHeal checks that exactly one node holds the address soon after packets were
// lost and nodes died at random.
func TestLossesHeal(t *testing.T) {
	for seed := range uint64(300) {
		w := newWire(t, 0, 1, 2, 3)
		w.random = rand.New(rand.NewPCG(seed, 1))
		for range 20 {
			w.loss = w.random.Float64()
			if i := w.random.IntN(len(w.nodes)); w.nodes[i].alive {
				w.nodes[i].alive = false
			} else {
				w.start(i)
			}
			w.run(time.Duration(w.random.IntN(2000)) * time.Millisecond)
		}
		w.loss = 0
		if !slices.ContainsFunc(w.nodes, func(m *member) bool { return m.alive }) {
			w.start(w.random.IntN(len(w.nodes)))
		}
		w.run(15 * time.Second)
		got := w.holders()
		if len(got) != 1 || w.nodes[0].alive && !w.nodes[0].claim.ceded && got[0] != 0 {
			t.Fatalf("seed %d: nodes %v hold the address", seed, got)
		}
	}
}

// TestPacketsAreFew checks what holders and standbys send: an announcement in ten
// seconds, and two questions a second.
func TestPacketsAreFew(t *testing.T) {
	w := newWire(t, 0, 1, 2)
	w.run(10 * time.Second)
	before := []int{w.nodes[0].sent, w.nodes[1].sent, w.nodes[2].sent}
	w.run(10 * time.Second)
	for i, m := range w.nodes {
		want := 20
		if i == 0 {
			want = 1
		}
		if got := m.sent - before[i]; got < want-1 || got > want+1 {
			t.Errorf("node %d sent %d packets in ten seconds, want about %d", i, got, want)
		}
	}
}
