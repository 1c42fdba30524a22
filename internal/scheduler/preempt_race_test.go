package scheduler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// one is a running pod that requests one of a node's two CPUs.
func one(name, node string, prio int32, options ...podOption) *v1.Pod {
	return running(pod(name, append(options, requests("1", "1Gi"), priority(prio))...), node)
}

func preemptor(name, cpu string, prio int32) *v1.Pod {
	p := pod(name, requests(cpu, "1Gi"), priority(prio))
	p.Spec.SchedulerName = DefaultName
	return p
}

// The controller's replacements of the victims do not take the room that was
// made, nor are they evicted again.
func TestReplacementsDoNotTakeTheRoom(t *testing.T) {
	nodes := []*v1.Node{node("a"), node("b")}
	simulate(t, func(s *simulation) { s.replace = true }, func(s *simulation) {
		for i := range 2 {
			s.add(preemptor(fmt.Sprint("p", i), "1", 10))
		}
		advance(10 * time.Minute)
		for i := range 2 {
			if name := fmt.Sprint("p", i); s.get(name).Spec.NodeName == "" {
				t.Errorf("%s has no node: %+v", name, s.get(name).Status)
			}
		}
		if got := s.deleted(); len(got) != 2 {
			t.Errorf("evicted %v, want two pods", got)
		}
		for name, n := range s.deleted() {
			if n != 1 {
				t.Errorf("%s was evicted %d times", name, n)
			}
		}
		s.check(nodes...)
	}, nodes[0], nodes[1], one("a1", "a", 1), one("a2", "a", 1), one("b1", "b", 1), one("b2", "b", 1))
}

// A victim that ends by itself between the decision and its eviction is no
// failure: the pod gets the room.
func TestAVictimLeavesBeforeItsEviction(t *testing.T) {
	simulate(t, func(s *simulation) {
		s.onPatch = func(name string) error {
			if name == "low" {
				s.remove(name)
			}
			return nil
		}
	}, func(s *simulation) {
		s.add(preemptor("p", "1", 10))
		advance(time.Minute)
		if got := s.get("p").Spec.NodeName; got != "a" {
			t.Errorf("on node %q", got)
		}
		if got := s.deleted(); len(got) != 0 {
			t.Errorf("evicted %v", got)
		}
		s.check()
	}, node("a"), one("low", "a", 1), one("middle", "a", 5))
}

// A preemptor that is deleted between the decision and the evictions takes
// nobody with it, and nothing stays reserved for it.
func TestAPreemptorLeavesBeforeTheEvictions(t *testing.T) {
	simulate(t, func(s *simulation) {
		s.onPatch = func(name string) error {
			if name == "low" || name == "middle" {
				s.remove("p")
				return errors.New("not now")
			}
			return nil
		}
	}, func(s *simulation) {
		s.add(preemptor("p", "2", 10))
		advance(time.Minute)
		if got := s.deleted(); len(got) != 0 {
			t.Errorf("evicted %v", got)
		}
		if n := s.scheduler.nominator.NominatedPodsForNode("a"); len(n) != 0 {
			t.Errorf("%d pods are nominated", len(n))
		}
	}, node("a"), one("low", "a", 1), one("middle", "a", 5))
}

// Room is not reserved for a pod that was deleted during its attempt.
func TestNominatingADeletedPod(t *testing.T) {
	s, _, stop := preempting(t, func(*fake.Clientset) {})
	defer stop()
	p := preemptor("p", "1", 1)
	s.queue.Add(p)
	it, err := s.queue.Pop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.deleteUnassigned(p)
	s.nominate(it.PodInfo, "a")
	if got := s.nominator.NominatedNode(p.UID); got != "" {
		t.Errorf("nominated for %q", got)
	}
}

// A pod is nominated no longer after an attempt that an error ended, or that found no
// nodes. The error of a plugin that sought room says nothing about the nomination.
func TestAFailedAttemptEndsTheNomination(t *testing.T) {
	for name, cause := range map[string]error{"an error": errors.New("out of order"), "no nodes": &framework.FitError{}} {
		s, _, stop := preempting(t, func(*fake.Clientset) {})
		p := preemptor("p", "1", 1)
		s.queue.Add(p)
		it, err := s.queue.Pop(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a := &attempt{pod: it, profile: s.profiles[DefaultName], nominated: "a"}
		s.nominate(it.PodInfo, "a")
		s.renominate(a, nil)
		if got := s.nominator.NominatedNode(p.UID); got != "a" {
			t.Errorf("without a result: nominated for %q", got)
		}
		s.renominate(a, s.postFilter(t.Context(), a, nil, cause, nil))
		if got := s.nominator.NominatedNode(p.UID); got != "" {
			t.Errorf("%s: nominated for %q", name, got)
		}
		stop()
	}
}

// An eviction that fails is repeated; the decision stays the same.
func TestAnEvictionIsRepeated(t *testing.T) {
	failures := 2
	simulate(t, func(s *simulation) {
		s.onPatch = func(name string) error {
			if name == "low" && failures > 0 {
				failures--
				return errors.New("not now")
			}
			return nil
		}
	}, func(s *simulation) {
		s.add(preemptor("p", "1", 10))
		advance(time.Minute)
		if got := s.get("p").Spec.NodeName; got != "a" {
			t.Errorf("on node %q", got)
		}
		if got := s.deleted(); len(got) != 1 || got["low"] != 1 {
			t.Errorf("evicted %v", got)
		}
	}, node("a"), one("low", "a", 1), one("middle", "a", 5))
}

// Each of several preemptors makes its own room, also while the informer does
// not show yet that the victims of the others terminate. None is tried twice.
func TestPreemptorsHaveVictimsOfTheirOwn(t *testing.T) {
	for _, lag := range []time.Duration{time.Millisecond, 5 * time.Second} {
		t.Run(lag.String(), func(t *testing.T) {
			nodes := []*v1.Node{node("a"), node("b")}
			simulate(t, func(s *simulation) { s.lag = func() time.Duration { return lag } }, func(s *simulation) {
				for i := range 3 {
					s.add(preemptor(fmt.Sprint("p", i), "1", 10))
				}
				advance(5 * time.Minute)
				for i := range 3 {
					if s.get(fmt.Sprint("p", i)).Spec.NodeName == "" {
						t.Errorf("p%d has no node", i)
					}
					if n := s.wrote(fmt.Sprint("p", i), `"nominatedNodeName":"`); n != 1 {
						t.Errorf("the nominated node of p%d was written %d times", i, n)
					}
				}
				total := 0
				for _, n := range s.deleted() {
					total += n
				}
				if total != 3 || len(s.deleted()) != 3 {
					t.Errorf("evicted %v, want three pods", s.deleted())
				}
				s.check(nodes...)
			}, nodes[0], nodes[1], one("a1", "a", 1), one("a2", "a", 1), one("b1", "b", 1), one("b2", "b", 1))
		})
	}
}

// Pods that terminate anyway are waited for, not evicted.
func TestTerminatingPodsAreNoVictims(t *testing.T) {
	simulate(t, func(*simulation) {}, func(s *simulation) {
		s.terminate(s.get("leaves"))
		advance(time.Second)
		s.add(preemptor("p", "1", 10))
		advance(10 * time.Second)
		if got := s.get("p").Status.NominatedNodeName; got != "a" {
			t.Errorf("nominated for %q", got)
		}
		advance(time.Minute)
		if got := s.get("p").Spec.NodeName; got != "a" {
			t.Errorf("on node %q", got)
		}
		if got := s.deleted(); len(got) != 0 {
			t.Errorf("evicted %v", got)
		}
		s.check()
	}, node("a"), one("leaves", "a", 5), one("stays", "a", 1))
}

// A victim that does not end is waited for, however long.
func TestALingeringVictimIsWaitedFor(t *testing.T) {
	simulate(t, func(s *simulation) { s.grace = 20 * time.Minute }, func(s *simulation) {
		s.add(preemptor("p", "1", 10))
		advance(19 * time.Minute)
		if got := s.deleted(); len(got) != 1 {
			t.Errorf("evicted %v, want one pod", got)
		}
		advance(2 * time.Minute)
		if s.get("p").Spec.NodeName == "" {
			t.Error("no node")
		}
		s.check()
	}, node("a"), node("b"), one("a1", "a", 1), one("a2", "a", 1), one("b1", "b", 1), one("b2", "b", 1))
}

// oneDisruption is a version of a budget of the pods of the app db.
func oneDisruption(version string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "budget", ResourceVersion: version},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1},
	}
}

// A budget that allows one disruption loses one pod, although its status is
// not current when the second decision is made.
func TestTwoPreemptorsShareABudget(t *testing.T) {
	web := labeled("app", "db")
	simulate(t, func(*simulation) {}, func(s *simulation) {
		s.add(preemptor("p0", "1", 10))
		s.add(preemptor("p1", "1", 10))
		advance(5 * time.Minute)
		protected := 0
		for name := range s.deleted() {
			if name[0] == 'a' {
				protected++
			}
		}
		if len(s.deleted()) != 2 || protected != 1 {
			t.Errorf("evicted %v, want one of each node", s.deleted())
		}
	}, oneDisruption("7"), node("a"), node("b"), one("a1", "a", 1, web), one("a2", "a", 1, web), one("b1", "b", 5), one("b2", "b", 5))
}

// A budget that changes before the first victim is evicted does not know of the
// victim yet. It loses no second pod.
func TestABudgetChangesBeforeTheEviction(t *testing.T) {
	failures, db := 1, labeled("app", "db")
	simulate(t, func(s *simulation) {
		s.onPatch = func(name string) error {
			if name[0] == 'a' && failures > 0 {
				failures--
				return errors.New("not now")
			}
			return nil
		}
	}, func(s *simulation) {
		s.add(preemptor("p0", "1", 10))
		advance(200 * time.Millisecond)
		if err := s.objects.Update(policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), oneDisruption("8"), "default"); err != nil {
			t.Fatal(err)
		}
		advance(200 * time.Millisecond)
		if got := s.deleted(); len(got) != 0 {
			t.Fatalf("evicted %v before the second try", got)
		}
		s.add(preemptor("p1", "1", 10))
		advance(5 * time.Minute)
		protected := 0
		for name := range s.deleted() {
			if name[0] == 'a' {
				protected++
			}
		}
		if len(s.deleted()) != 2 || protected != 1 {
			t.Errorf("evicted %v, want one of each node", s.deleted())
		}
	}, oneDisruption("7"), node("a"), node("b"), one("a1", "a", 1, db), one("a2", "a", 1, db), one("b1", "b", 5), one("b2", "b", 5))
}

// Waiting pods that a new node helps get it by priority, during their back-off and
// after it: none is evicted again for a more important one.
func TestANewNodeGoesToTheMostImportant(t *testing.T) {
	for _, waited := range []time.Duration{100 * time.Millisecond, 30 * time.Second} {
		t.Run(waited.String(), func(t *testing.T) {
			simulate(t, func(*simulation) {}, func(s *simulation) {
				for i := range 5 {
					s.add(preemptor(fmt.Sprint("p", i), "2", int32(i)))
				}
				advance(waited)
				if err := s.objects.Create(nodesResource, node("b"), ""); err != nil {
					t.Fatal(err)
				}
				advance(time.Minute)
				s.wantOn("p4", "b")
				if got := s.deleted(); len(got) != 0 {
					t.Errorf("evicted %v", got)
				}
			}, node("a"), running(pod("important", requests("2", "1Gi"), priority(100)), "a"))
		})
	}
}

// A scheduler that starts while victims of the one before terminate keeps their room
// for the preemptor, and evicts no others.
func TestARestartKeepsTheRoomThatIsMade(t *testing.T) {
	simulate(t, func(s *simulation) { s.grace, s.replace = 10*time.Minute, true }, func(s *simulation) {
		s.add(preemptor("p", "2", 10))
		advance(5 * time.Second)
		if got := s.get("p").Status.NominatedNodeName; got != "a" {
			t.Errorf("nominated for %q", got)
		}
		s.stop()
		advance(time.Second)
		s.start()
		advance(5 * time.Second)
		s.remove("a1") // the other one lingers
		advance(11 * time.Minute)
		s.wantOn("p", "a")
		if got := s.deleted(); got["a1"] != 1 || got["a2"] != 1 || len(got) != 2 {
			t.Errorf("evicted %v", got)
		}
		s.check()
	}, node("a"), one("a1", "a", 1), one("a2", "a", 1))
}

// A pod that loses a node to a pod of higher priority is no longer nominated
// for it, in the API either.
func TestTheLoserIsNotNominated(t *testing.T) {
	simulate(t, func(*simulation) {}, func(s *simulation) {
		s.add(preemptor("loser", "2", 5))
		advance(5 * time.Second)
		if got := s.get("loser").Status.NominatedNodeName; got != "a" {
			t.Errorf("the first is nominated for %q", got)
		}
		s.add(preemptor("winner", "2", 10))
		advance(5 * time.Minute)
		if got := s.get("winner").Spec.NodeName; got != "a" {
			t.Errorf("the winner is on %q", got)
		}
		if got := s.get("loser").Status.NominatedNodeName; got != "" {
			t.Errorf("the loser is nominated for %q", got)
		}
		if got := s.deleted(); len(got) != 2 {
			t.Errorf("evicted %v", got)
		}
		s.check()
	}, node("a"), one("a1", "a", 1), one("a2", "a", 1))
}
