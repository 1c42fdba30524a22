package scheduler

import (
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/scheduler/config"
)

// claiming uses a claim that the class "waits" provisions.
func claiming(name string) podOption {
	return func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
	}
}

func openClaim(name string) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "claim", ResourceVersion: "1"},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("waits"), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

func waitingClass() *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "waits"}, Provisioner: "example.com/disks",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
}

// A pod whose binding takes a while says where it goes (KEP-5278). A pod that
// is bound at once gets no nomination, and no pod does with the feature gate
// off.
func TestNominatedWhileItWaits(t *testing.T) {
	for gates, want := range map[string]string{"": "a", "NominatedNodeNameForExpectation=false": ""} {
		t.Run(gates, func(t *testing.T) {
			features, err := feature.Parse(strings.Fields(gates))
			if err != nil {
				t.Fatal(err)
			}
			simulate(t, func(s *simulation) { s.config.Features = features }, func(s *simulation) {
				s.add(pod("slow", requests("1", "1Gi"), claiming("c")))
				s.add(pod("fast", requests("1", "1Gi")))
				advance(10 * time.Second)
				if got := s.get("slow").Status.NominatedNodeName; got != want || s.get("slow").Spec.NodeName != "" {
					t.Errorf("nominated for %q, want %q", got, want)
				}
				if n := s.wrote("fast", "nominatedNodeName"); n != 0 || s.get("fast").Spec.NodeName != "a" {
					t.Errorf("the pod that does not wait is on %q, and its nominated node was written %d times", s.get("fast").Spec.NodeName, n)
				}
				advance(15 * time.Minute) // the wait ends without a volume
				if s.get("slow").Spec.NodeName != "" {
					t.Error("bound without a volume")
				}
			}, node("a"), waitingClass(), openClaim("c"))
		})
	}
}

// A victim whose volumes are being bound goes back to the queue: it is not deleted,
// and an event says where it was preempted.
func TestAVictimInPreBindStays(t *testing.T) {
	simulate(t, func(*simulation) {}, func(s *simulation) {
		s.add(pod("slow", requests("2", "1Gi"), priority(1), claiming("c")))
		advance(10 * time.Second)
		s.add(pod("urgent", requests("2", "1Gi"), priority(10)))
		advance(time.Minute)
		if got := s.get("urgent").Spec.NodeName; got != "a" {
			t.Errorf("the preemptor is on %q", got)
		}
		if n := s.deleted()["slow"]; n != 0 || s.get("slow") == nil {
			t.Fatalf("the victim was deleted %d times", n)
		}
		events, err := s.c.EventsV1().Events("default").List(s.t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var notes []string
		for i := range events.Items {
			if e := &events.Items[i]; e.Regarding.Name == "slow" && e.Reason == "Preempted" {
				notes = append(notes, e.Note)
			}
		}
		if len(notes) != 1 || !strings.HasSuffix(notes[0], "on node a (in kube-scheduler memory).") {
			t.Errorf("events %q", notes)
		}
		if s.scheduler.cache.HasPod("slow") {
			t.Error("the victim holds its node")
		}
		s.remove("urgent")
		advance(time.Minute)
		if !s.scheduler.cache.HasPod("slow") {
			t.Error("the victim is not tried again")
		}
	}, node("a"), waitingClass(), openClaim("c"))
}

// An attempt for a pod that was replaced by another of its name does not touch that one.
func TestAnAttemptOfAReplacedPod(t *testing.T) {
	simulate(t, func(*simulation) {}, func(s *simulation) {
		s.add(pod("slow", requests("1", "1Gi"), claiming("c")))
		advance(10 * time.Second)
		s.remove("slow")
		s.add(pod("slow", requests("1", "1Gi"), func(p *v1.Pod) { p.UID, p.Spec.SchedulerName = "another", "elsewhere" }))
		advance(15 * time.Minute) // the wait for a volume ends
		if got := s.get("slow").Status; len(got.Conditions) > 0 || got.NominatedNodeName != "" {
			t.Errorf("conditions %v, nominated for %q", got.Conditions, got.NominatedNodeName)
		}
		if n := s.tracked(); n != 0 || s.scheduler.cache.HasPod("slow") {
			t.Errorf("%d pods are tracked; the one that is gone has its node: %t", n, s.scheduler.cache.HasPod("slow"))
		}
	}, node("a"), waitingClass(), openClaim("c"))
}

// A nomination by somebody else, such as an autoscaler, ends like one of the scheduler
// when no node takes the pod: its room is there for others again.
func TestForeignNominationEnds(t *testing.T) {
	simulate(t, func(*simulation) {}, func(s *simulation) {
		s.add(pod("large", requests("2", "1Gi"), priority(1)))
		advance(5 * time.Second)
		nominated := s.get("large")
		nominated.Status.NominatedNodeName = "b"
		s.update(nominated)
		advance(10 * time.Minute) // it is tried again
		if got := s.get("large").Status.NominatedNodeName; got != "" {
			t.Errorf("nominated for %q", got)
		}
		if err := s.objects.Create(nodesResource, node("b", sized("1", "4Gi")), ""); err != nil {
			t.Fatal(err)
		}
		s.add(pod("small", requests("1", "1Gi"), priority(1)))
		advance(time.Minute)
		if got := s.get("small").Spec.NodeName; got != "b" {
			t.Errorf("on node %q", got)
		}
		s.check()
	}, node("a"), one("x", "a", 1), one("y", "a", 1))
}

// The nomination for a node that is gone ends when there are no others.
func TestNominationEndsWithTheLastNode(t *testing.T) {
	simulate(t, func(s *simulation) { s.grace = time.Minute }, func(s *simulation) {
		s.add(preemptor("p", "2", 10))
		advance(5 * time.Second)
		if got := s.get("p").Status.NominatedNodeName; got != "a" {
			t.Fatalf("nominated for %q", got)
		}
		if err := s.objects.Delete(nodesResource, "", "a"); err != nil {
			t.Fatal(err)
		}
		advance(10 * time.Minute)
		if got := s.get("p").Status.NominatedNodeName; got != "" {
			t.Errorf("nominated for %q", got)
		}
	}, node("a"), one("low", "a", 1))
}

// A nomination from before a restart, whose pod no node takes any more, does not
// keep the room from others: it may be of the scheduler before.
func TestOldNominationEnds(t *testing.T) {
	old := preemptor("old", "1", 5)
	old.Status.NominatedNodeName, old.Spec.NodeSelector = "a", map[string]string{"disk": "gone"}
	peaceful := preemptor("peaceful", "1", 5)
	peaceful.Status.NominatedNodeName, peaceful.Spec.NodeSelector = "a", map[string]string{"disk": "gone"}
	never(peaceful)
	simulate(t, func(*simulation) {}, func(s *simulation) {
		advance(time.Minute)
		s.add(preemptor("next", "2", 5))
		advance(10 * time.Minute)
		if got := s.get("next").Spec.NodeName; got != "a" {
			t.Errorf("on node %q", got)
		}
		for _, name := range []string{"old", "peaceful"} {
			if got := s.get(name).Status.NominatedNodeName; got != "" {
				t.Errorf("%s is nominated for %q", name, got)
			}
		}
	}, node("a"), old, peaceful)
}

// The room of a pod whose nomination could not be written is given back when no
// node takes the pod.
func TestUnwrittenNominationEnds(t *testing.T) {
	simulate(t, func(s *simulation) {
		s.onPatch = func(name string) error {
			if name == "p" {
				return errors.New("injected")
			}
			return nil
		}
	}, func(s *simulation) {
		s.add(preemptor("p", "2", 10))
		advance(2 * time.Second)
		if err := s.objects.Update(nodesResource, node("a", tainted("k", v1.TaintEffectNoSchedule)), ""); err != nil {
			t.Fatal(err)
		}
		next := preemptor("next", "2", 10)
		next.Spec.Tolerations = []v1.Toleration{{Key: "k", Operator: v1.TolerationOpExists}}
		s.add(next)
		advance(20 * time.Minute)
		if got := s.get("next").Spec.NodeName; got != "a" {
			t.Errorf("on node %q", got)
		}
	}, node("a"), one("low", "a", 1))
}

// The same in a profile that makes no room for pods.
func TestOldNominationEndsWithoutPreemption(t *testing.T) {
	old := preemptor("old", "1", 5)
	old.Status.NominatedNodeName, old.Spec.NodeSelector = "a", map[string]string{"disk": "gone"}
	for _, disabled := range []string{"*", "DefaultPreemption"} {
		t.Run(disabled, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				s.config.Profiles = []config.Profile{{SchedulerName: DefaultName, Plugins: config.Plugins{PostFilter: config.PluginSet{Disabled: []string{disabled}}}}}
			}, func(s *simulation) {
				advance(time.Minute)
				s.add(preemptor("next", "2", 5))
				advance(10 * time.Minute)
				if got := s.get("next").Spec.NodeName; got != "a" {
					t.Errorf("on node %q", got)
				}
				if got := s.get("old").Status.NominatedNodeName; got != "" {
					t.Errorf("nominated for %q", got)
				}
			}, node("a"), old)
		})
	}
}

// A nomination that was written, although the answer to that was lost, is the
// scheduler's own: it ends when no node takes the pod.
func TestNominationWithALostAnswerEnds(t *testing.T) {
	simulate(t, func(s *simulation) {
		lost := false
		s.onPatch = func(name string) error {
			if name != "p" || lost {
				return nil
			}
			lost = true
			nominated := s.get("p")
			nominated.Status.NominatedNodeName = "a"
			s.update(nominated)
			return errors.New("connection reset")
		}
	}, func(s *simulation) {
		s.add(preemptor("p", "2", 10))
		advance(2 * time.Second)
		if err := s.objects.Update(nodesResource, node("a", tainted("k", v1.TaintEffectNoSchedule)), ""); err != nil {
			t.Fatal(err)
		}
		next := preemptor("next", "2", 10)
		next.Spec.Tolerations = []v1.Toleration{{Key: "k", Operator: v1.TolerationOpExists}}
		s.add(next)
		advance(20 * time.Minute)
		if got := s.get("next").Spec.NodeName; got != "a" {
			t.Errorf("on node %q", got)
		}
		if got := s.get("p").Status.NominatedNodeName; got != "" {
			t.Errorf("nominated for %q", got)
		}
	}, node("a"), one("low", "a", 1))
}

// Whose nomination a watch event shows depends on whether an own write may have
// had that effect.
func TestWhoseNomination(t *testing.T) {
	refusal := apierrors.NewForbidden(podsResource.GroupResource(), "p", errors.New("no"))
	timeout := apierrors.NewTimeoutError("no answer in time", 1)
	for name, test := range map[string]struct {
		err     error
		foreign bool
	}{"written": {nil, false}, "refused": {refusal, true}, "timeout": {timeout, false}, "no answer": {errors.New("reset"), false}} {
		s, p := newPodStatuses(func(types.UID) bool { return true }), pod("p")
		undo := s.writing(p, "a")
		if test.err != nil {
			undo(refused(test.err))
		}
		p.Status.NominatedNodeName = "a"
		if own := s.observe(p); own == test.foreign || s.nominated(p) != "a" {
			t.Errorf("%s: own %t, nominated for %q", name, own, s.nominated(p))
		}
	}
}
