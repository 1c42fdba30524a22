package scheduler

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/queue"
)

// shortly is less than what brings waiting pods back without an event.
const shortly = time.Minute

func sized(cpu, memory string) nodeOption {
	return func(n *v1.Node) {
		n.Status.Allocatable[v1.ResourceCPU], n.Status.Allocatable[v1.ResourceMemory] = resource.MustParse(cpu), resource.MustParse(memory)
	}
}

func (s *simulation) wantOn(name, node string) {
	s.t.Helper()
	if got := s.get(name).Spec.NodeName; got != node {
		s.t.Errorf("%s is on node %q, want %q", name, got, node)
	}
}

// A gang is tried again if one of its pods gets room elsewhere, and so leaves its
// node to another of them that had no room.
func TestAGangWakesForRoomOfItsOtherPod(t *testing.T) {
	for name, free := range map[string]func(*simulation){
		"a pod leaves": func(s *simulation) { s.remove("g") },
		"a new node": func(s *simulation) {
			if err := s.objects.Create(nodesResource, node("new", sized("2", "4Gi")), ""); err != nil {
				s.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			withGangs(t, func(s *simulation) {
				s.add(pod("a", requests("1", "1Gi"), inGang("gang"), priority(0)))
				s.add(pod("b", requests("4", "1Gi"), inGang("gang"), priority(0)))
				advance(shortly)
				s.wantOn("a", "")
				free(s)
				advance(shortly)
				s.wantOn("b", "n")
			}, node("n", sized("8", "8Gi")), node("m"), gang("gang", 2),
				running(pod("f", requests("4", "7Gi"), priority(0)), "n"), running(pod("g", requests("2", "1Gi"), priority(0)), "m"))
		})
	}
}

// A preemptor whose room another pod took loses its nomination when its last
// victim has ended.
func TestALostRoomEndsTheNomination(t *testing.T) {
	simulate(t, func(s *simulation) { s.grace = 40 * time.Minute }, func(s *simulation) {
		s.add(preemptor("p", "2", 10))
		advance(time.Second)
		small := preemptor("small", "1", 5)
		never(small)
		s.add(small)
		advance(shortly)
		s.remove("v1")
		advance(10 * time.Second)
		s.add(preemptor("high", "1", 100))
		advance(shortly)
		s.wantOn("high", "a")
		s.remove("v2")
		advance(shortly)
		s.wantOn("small", "a")
		if got := s.get("p").Status.NominatedNodeName; got != "" {
			t.Errorf("the preemptor is nominated for %q", got)
		}
	}, node("a"), one("v1", "a", 1), one("v2", "a", 1))
}

// A preemptor that takes another node leaves the room that was reserved for it.
func TestANominatedPodTakesAnotherNode(t *testing.T) {
	simulate(t, func(s *simulation) { s.grace = 40 * time.Minute }, func(s *simulation) {
		s.add(preemptor("p", "2", 10))
		advance(time.Second)
		small := pod("small", requests("1", "2Gi"), priority(5)) // more memory than b has
		never(small)
		s.add(small)
		advance(shortly)
		s.remove("important")
		advance(shortly)
		s.wantOn("p", "b")
		s.wantOn("small", "a")
	}, node("a"), node("b", sized("2", "1Gi")), one("low", "a", 1), running(pod("important", requests("2", "1Gi"), priority(100)), "b"))
}

// A preemptor that makes room on another node leaves the room that was reserved for
// it before.
func TestANominationMoves(t *testing.T) {
	simulate(t, func(s *simulation) { s.grace = 40 * time.Minute }, func(s *simulation) {
		s.add(preemptor("p", "2", 10))
		advance(time.Second)
		small := pod("small", requests("500m", "2Gi"), priority(5)) // more memory than b has
		never(small)
		s.add(small)
		advance(shortly)
		if err := s.objects.Update(nodesResource, node("a", sized("1", "4Gi")), ""); err != nil {
			t.Fatal(err)
		}
		advance(shortly)
		s.wantOn("small", "")
		if err := s.objects.Create(nodesResource, node("b", sized("2", "1Gi")), ""); err != nil {
			t.Fatal(err)
		}
		advance(shortly)
		if got := s.get("p").Status.NominatedNodeName; got != "b" {
			t.Errorf("the preemptor is nominated for %q", got)
		}
		s.wantOn("small", "a")
	}, node("a"), running(pod("low", requests("500m", "1Gi"), priority(1)), "a"), one("low2", "b", 1))
}

// A preemptor that takes the nomination of a less important pod leaves what it does
// not need of that room.
func TestATakenNominationLeavesRoom(t *testing.T) {
	simulate(t, func(s *simulation) { s.grace = 40 * time.Minute }, func(s *simulation) {
		loser := preemptor("loser", "2", 10)
		loser.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse("3Gi")
		s.add(loser)
		advance(time.Second)
		small := pod("small", requests("0", "2Gi"), priority(5))
		never(small)
		s.add(small)
		advance(shortly)
		s.wantOn("small", "")
		s.add(preemptor("winner", "2", 20))
		advance(shortly)
		if got := s.get("winner").Status.NominatedNodeName; got != "a" {
			t.Errorf("the winner is nominated for %q", got)
		}
		s.wantOn("small", "a")
	}, node("a"), one("low", "a", 1))
}

// A nomination by another component that moves leaves the first node to others.
func TestAForeignNominationMoves(t *testing.T) {
	simulate(t, func(*simulation) {}, func(s *simulation) {
		large := preemptor("large", "2", 10)
		large.Spec.NodeSelector = map[string]string{"disk": "none"}
		s.add(large)
		advance(time.Second)
		nominated := s.get("large")
		nominated.Status.NominatedNodeName = "a"
		s.update(nominated)
		advance(time.Second)
		s.add(preemptor("small", "1", 5))
		advance(shortly)
		nominated = s.get("large")
		nominated.Status.NominatedNodeName = "b"
		s.update(nominated)
		advance(shortly)
		s.wantOn("small", "a")
	}, node("a"))
}

// A pod that has ended when it is first seen on its node leaves the room that it was
// assumed to take.
func TestAPodThatIsFirstSeenFinished(t *testing.T) {
	simulate(t, func(s *simulation) {
		s.lost = func(p *v1.Pod) bool { return p.Name == "short" && p.Status.Phase != v1.PodSucceeded }
	}, func(s *simulation) {
		s.add(pod("short", requests("2", "1Gi")))
		advance(time.Second)
		s.add(pod("next", requests("2", "1Gi")))
		advance(time.Second)
		ended := s.get("short")
		ended.Status.Phase = v1.PodSucceeded
		s.update(ended)
		advance(20 * time.Second)
		s.wantOn("next", "a")
	}, node("a"))
}

// A pod that replaced another of its name, which a list shows as an update, wakes
// the pods that wait for one like it.
func TestAReplacedPodWakesOthers(t *testing.T) {
	withGangs(t, func(s *simulation) {
		s.add(pod("member", requests("100m", "1Gi"), inGang("gang")))
		advance(10 * time.Second)
		s.wantOn("member", "")
		old, again := running(pod("other"), "a"), running(pod("other", inGang("gang")), "a")
		old.UID = "earlier"
		s.scheduler.updateAssigned(old, again)
		advance(10 * time.Second)
		s.wantOn("member", "a")
	}, node("a"), gang("gang", 2))
}

// An attempt whose end panics, too, leaves the room that its pod was assumed to take.
func TestAPanicWhileAnAttemptFailsLeavesTheRoom(t *testing.T) {
	simulate(t, func(*simulation) {}, func(s *simulation) {
		info := framework.NewPodInfo(pod("p", requests("2", "1Gi")))
		if err := s.scheduler.cache.Assume(info, "a"); err != nil {
			t.Fatal(err)
		}
		s.add(pod("next", requests("2", "1Gi")))
		advance(10 * time.Second)
		s.wantOn("next", "")
		a := &attempt{pod: &queue.QueuedPodInfo{PodInfo: info}, node: "a"} // without profile, fail panics
		s.scheduler.runAsync(t.Context(), a, func() { panic("out of order") })
		advance(shortly)
		s.wantOn("next", "a")
	}, node("a"))
}
