package scheduler

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/queue"
)

// Permit delays a pod of one profile. Pods of another end the wait: the rest of
// its gang, and one that preempts it.
func TestWaitingPodsOfTwoProfiles(t *testing.T) {
	features, err := feature.Parse([]string{"GenericWorkload=true"})
	if err != nil {
		t.Fatal(err)
	}
	gang := &schedulingapi.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gang"}}
	gang.Spec.SchedulingPolicy.Gang = &schedulingapi.GangSchedulingPolicy{MinCount: 2}
	member := func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("gang")} }
	other := func(p *v1.Pod) { p.Spec.SchedulerName = "other" }
	for _, test := range []struct {
		name string
		pods []*v1.Pod
		want map[string]string // nodes of the pods
	}{
		{
			"a gang of both profiles is bound together",
			[]*v1.Pod{pod("first", requests("1", "1Gi"), member), pod("second", requests("1", "1Gi"), member, other)},
			map[string]string{"first": "a", "second": "a"},
		},
		{
			"a waiting pod is preempted and stays",
			[]*v1.Pod{
				pod("waits", requests("2", "1Gi"), member, priority(0)), pod("large", requests("9", "1Gi"), member, priority(0)),
				pod("urgent", requests("2", "1Gi"), priority(10), other),
			},
			map[string]string{"waits": "", "large": "", "urgent": "a"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				s.config = config.Configuration{Features: features, Profiles: []config.Profile{{SchedulerName: DefaultName}, {SchedulerName: "other"}}}
			}, func(s *simulation) {
				for _, p := range test.pods {
					s.add(p)
					advance(10 * time.Second)
				}
				advance(time.Minute)
				for name, want := range test.want {
					if p := s.get(name); p == nil {
						t.Errorf("%s was deleted", name)
					} else if p.Spec.NodeName != want {
						t.Errorf("%s is on %q, want %q", name, p.Spec.NodeName, want)
					}
				}
			}, node("a"), gang)
		})
	}
}

// A pod that is deleted during its attempt, before Permit delays it, does not
// hold its node until the delay ends.
func TestADeletedPodDoesNotWait(t *testing.T) {
	features, err := feature.Parse([]string{"GenericWorkload=true"})
	if err != nil {
		t.Fatal(err)
	}
	gang := &schedulingapi.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gang"}}
	gang.Spec.SchedulingPolicy.Gang = &schedulingapi.GangSchedulingPolicy{MinCount: 2}
	simulate(t, func(s *simulation) { s.config.Features = features }, func(s *simulation) {
		advance(time.Second)
		gone := pod("gone", func(p *v1.Pod) {
			p.Spec.SchedulerName = DefaultName
			p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("gang")}
		})
		s.scheduler.scheduleOne(s.t.Context(), &queue.QueuedPodInfo{PodInfo: framework.NewPodInfo(gone)})
		if !s.scheduler.cache.HasPod(gone.UID) {
			t.Error("the pod was not assumed")
		}
		advance(time.Second)
		if s.scheduler.cache.HasPod(gone.UID) {
			t.Error("the pod holds its node")
		}
	}, node("a"), gang)
}

// Preemptions of two profiles do not take the same disruptions from a budget.
func TestProfilesShareBudgets(t *testing.T) {
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "kept"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1},
	}
	simulate(t, func(s *simulation) {
		s.config = config.Configuration{Profiles: []config.Profile{{SchedulerName: DefaultName}, {SchedulerName: "other"}}}
	}, func(s *simulation) {
		other := preemptor("q", "2", 10)
		other.Spec.SchedulerName = "other"
		s.add(preemptor("p", "2", 10))
		s.add(other)
		advance(10 * time.Minute)
		if got := s.deleted(); got["kept-a"]+got["kept-b"] != 1 || got["free"] != 1 {
			t.Errorf("evicted %v", got)
		}
	}, node("a"), node("b"), node("c"), budget,
		one("kept-a", "a", 1, labeled("app", "kept")), one("kept-b", "b", 1, labeled("app", "kept")), one("free", "c", 5))
}
