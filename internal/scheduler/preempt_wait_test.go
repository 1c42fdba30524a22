package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// attempts is how often a pod was tried without success.
func (s *simulation) attempts() int {
	return int(testutil.ToFloat64(s.scheduler.metrics.attempts.WithLabelValues(unschedulable, DefaultName)))
}

// The end of another pod's victim does not wake a preemptor, whose room is
// still being made: each is tried once in vain and once with success.
func TestPreemptorsWaitForTheirOwnVictims(t *testing.T) {
	const preemptors = 4
	var objects []runtime.Object
	for i := range preemptors {
		name := fmt.Sprint("n", i)
		objects = append(objects, node(name), one(name+"-a", name, 1), one(name+"-b", name, 1))
	}
	simulate(t, func(*simulation) {}, func(s *simulation) {
		for i := range preemptors {
			s.add(preemptor(fmt.Sprint("p", i), "2", 10))
			advance(5 * time.Second) // so that the victims end one preemptor after the other
		}
		if got := s.attempts(); got != preemptors {
			t.Errorf("%d attempts in vain, want one of each pod", got)
		}
		advance(time.Minute)
		for i := range preemptors {
			if name := fmt.Sprint("p", i); s.get(name).Spec.NodeName == "" {
				t.Errorf("%s has no node", name)
			}
		}
		if got := s.attempts(); got != preemptors {
			t.Errorf("%d attempts in vain after the victims had ended, want %d", got, preemptors)
		}
		s.check()
	}, objects...)
}

// A preemptor that waits for its victims is bound to another node once it fits
// there: to a new node, or to a node that another pod leaves.
func TestAWaitingPreemptorTakesOtherRoom(t *testing.T) {
	for name, free := range map[string]func(*simulation){
		"a new node": func(s *simulation) {
			if err := s.objects.Create(v1.SchemeGroupVersion.WithResource("nodes"), node("c"), ""); err != nil {
				s.t.Error(err)
			}
		},
		"another pod leaves": func(s *simulation) { s.remove("important") },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(s *simulation) { s.grace = 20 * time.Minute }, func(s *simulation) {
				s.add(preemptor("p", "2", 10))
				advance(time.Minute)
				if len(s.deleted()) != 1 {
					t.Errorf("evicted %v", s.deleted())
				}
				free(s)
				advance(time.Minute)
				if got := s.get("p").Spec.NodeName; got == "" || got == "a" {
					t.Errorf("on node %q", got)
				}
				s.check()
			}, node("a"), node("b"), running(pod("low", requests("2", "1Gi"), priority(1)), "a"), running(pod("important", requests("2", "1Gi"), priority(100)), "b"))
		})
	}
}

// A preemptor whose victims do not end is tried again after five minutes: what
// would have helped it may have been missed.
func TestAWaitingPreemptorIsTriedAgain(t *testing.T) {
	simulate(t, func(s *simulation) { s.grace = 20 * time.Minute }, func(s *simulation) {
		s.add(preemptor("p", "2", 10))
		advance(time.Minute)
		before := s.attempts()
		advance(6 * time.Minute)
		if got := s.attempts(); got <= before {
			t.Errorf("%d attempts, as many as six minutes ago", got)
		}
	}, node("a"), one("a1", "a", 1), one("a2", "a", 1))
}

// A preemptor that relies on the victim of another one, too, is tried when that
// has ended.
func TestAPreemptorSharesAVictim(t *testing.T) {
	simulate(t, func(*simulation) {}, func(s *simulation) {
		s.add(preemptor("p0", "1", 10)) // its victim frees two
		advance(5 * time.Second)
		s.add(preemptor("p1", "1", 10))
		advance(time.Minute)
		for _, name := range []string{"p0", "p1"} {
			if s.get(name).Spec.NodeName != "a" {
				t.Errorf("%s is not on the node", name)
			}
		}
		if got := s.deleted(); len(got) != 1 {
			t.Errorf("evicted %v", got)
		}
		s.check()
	}, node("a"), running(pod("low", requests("2", "1Gi"), priority(1)), "a"))
}

// A preemptor that lost its node to a more important pod takes the node once
// that pod is gone.
func TestTheLoserTakesTheNodeLater(t *testing.T) {
	simulate(t, func(s *simulation) { s.grace = 10 * time.Minute }, func(s *simulation) {
		s.add(preemptor("loser", "2", 5))
		advance(time.Minute)
		if got := s.get("loser").Status.NominatedNodeName; got != "a" {
			t.Errorf("the first is nominated for %q", got)
		}
		s.add(preemptor("winner", "2", 10)) // waits for the same victims
		advance(9*time.Minute + 30*time.Second)
		if got := s.get("winner").Spec.NodeName; got != "a" {
			t.Errorf("the winner is on %q", got)
		}
		s.remove("winner")
		advance(time.Minute)
		if got := s.get("loser").Spec.NodeName; got != "a" {
			t.Errorf("the loser is on %q", got)
		}
		s.check()
	}, node("a"), one("a1", "a", 1), one("a2", "a", 1))
}
