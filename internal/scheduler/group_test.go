package scheduler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/podquery"
)

func gang(name string, least int32) *schedulingapi.PodGroup {
	g := &schedulingapi.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	g.Spec.SchedulingPolicy.Gang = &schedulingapi.GangSchedulingPolicy{MinCount: least}
	return g
}

func inGang(name string) podOption {
	return func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name} }
}

// withGangs simulates a scheduler with the feature GenericWorkload.
func withGangs(t *testing.T, work func(*simulation), objects ...runtime.Object) {
	t.Helper()
	features, err := feature.Parse([]string{"GenericWorkload=true"})
	if err != nil {
		t.Fatal(err)
	}
	simulate(t, func(s *simulation) { s.config.Features, s.metrics = features, NewMetrics(prometheus.NewRegistry()) }, work, objects...)
}

// placed returns which pods have a node.
func (s *simulation) placed(format string, n int) string {
	var out []byte
	for i := range n {
		p := s.get(fmt.Sprintf(format, i))
		switch {
		case p == nil:
			out = append(out, '-')
		case p.Spec.NodeName == "":
			out = append(out, '.')
		default:
			out = append(out, 'x')
		}
	}
	return string(out)
}

// attemptSeconds returns the sum of the times of all attempts that found no node.
func attemptSeconds(m *Metrics) float64 {
	var sum dto.Metric
	if err := m.attempt.WithLabelValues(unschedulable, DefaultName).(prometheus.Metric).Write(&sum); err != nil {
		return math.Inf(1)
	}
	return sum.GetHistogram().GetSampleSum()
}

// A gang that does not fit reserves no resources: other pods are bound while it
// waits, and it is bound once it fits. It is not tried again without a reason.
func TestAGangThatDoesNotFit(t *testing.T) {
	withGangs(t, func(s *simulation) {
		for i := range 4 {
			s.add(pod(fmt.Sprint("member-", i), requests("1", "1Gi"), inGang("gang")))
		}
		advance(time.Second)
		s.add(pod("alone-0", requests("2", "1Gi")))
		advance(10 * time.Second)
		if got, want := s.placed("member-%d", 4)+s.placed("alone-%d", 1), "....x"; got != want {
			t.Fatalf("placed %s, want %s", got, want)
		}
		if took := attemptSeconds(s.metrics); took > 60 {
			t.Errorf("the attempts took %v seconds", took)
		}
		before := testutil.ToFloat64(s.metrics.attempts.WithLabelValues(unschedulable, DefaultName))
		advance(4 * time.Minute)
		if after := testutil.ToFloat64(s.metrics.attempts.WithLabelValues(unschedulable, DefaultName)); after != before {
			t.Errorf("%v attempts while nothing changed", after-before)
		}
		if err := s.objects.Create(nodesResource, node("b"), ""); err != nil {
			t.Fatal(err)
		}
		advance(15 * time.Second)
		if got, want := s.placed("member-%d", 4), "...."; got != want {
			t.Errorf("with room for two: placed %s, want %s", got, want)
		}
		s.remove("alone-0")
		advance(15 * time.Second)
		if got, want := s.placed("member-%d", 4), "xxxx"; got != want {
			t.Errorf("with room for all: placed %s, want %s", got, want)
		}
		for i := range 4 {
			if n := s.wrote(fmt.Sprint("member-", i), "nominatedNodeName"); n != 0 {
				t.Errorf("the nominated node of member %d, which is bound at once, was written %d times", i, n)
			}
		}
	}, node("a"), gang("gang", 4))
}

// If two gangs fit only one after the other, one of them is bound at once.
func TestTwoGangs(t *testing.T) {
	withGangs(t, func(s *simulation) {
		for i := range 3 {
			s.add(pod(fmt.Sprint("first-", i), requests("1", "1Gi"), inGang("first")))
			s.add(pod(fmt.Sprint("second-", i), requests("1", "1Gi"), inGang("second")))
		}
		advance(30 * time.Second)
		if got := s.placed("first-%d", 3) + s.placed("second-%d", 3); got != "xxx..." && got != "...xxx" {
			t.Errorf("placed %s", got)
		}
		for i := range 3 {
			s.remove(fmt.Sprint("first-", i))
		}
		advance(30 * time.Second)
		if got, want := s.placed("second-%d", 3), "xxx"; got != want {
			t.Errorf("placed %s, want %s", got, want)
		}
	}, node("a"), node("b"), gang("first", 3), gang("second", 3))
}

// A pod that was kept back brings the rest of its gang with it, and a pod that
// comes later needs no others.
func TestLateMembersOfAGang(t *testing.T) {
	withGangs(t, func(s *simulation) {
		s.add(pod("member-0", requests("100m", "1Gi"), inGang("gang")))
		s.add(pod("member-1", requests("100m", "1Gi"), inGang("gang")))
		gated := pod("member-2", requests("100m", "1Gi"), inGang("gang"))
		gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "gate"}}
		s.add(gated)
		advance(30 * time.Second)
		if got, want := s.placed("member-%d", 3), "..."; got != want {
			t.Fatalf("placed %s, want %s", got, want)
		}
		open := s.get("member-2")
		open.Spec.SchedulingGates = nil
		s.update(open)
		advance(15 * time.Second)
		if got, want := s.placed("member-%d", 3), "xxx"; got != want {
			t.Fatalf("without the gate: placed %s, want %s", got, want)
		}
		s.add(pod("member-3", requests("100m", "1Gi"), inGang("gang")))
		s.add(pod("member-4", requests("9", "1Gi"), inGang("gang")))
		advance(15 * time.Second)
		if got, want := s.placed("member-%d", 5), "xxxx."; got != want {
			t.Errorf("with two more: placed %s, want %s", got, want)
		}
	}, node("a"), gang("gang", 3))
}

// A gang whose binding fails for one pod comes together again.
func TestAMemberOfAGangIsNotBound(t *testing.T) {
	failures := 2
	features, err := feature.Parse([]string{"GenericWorkload=true"})
	if err != nil {
		t.Fatal(err)
	}
	simulate(t, func(s *simulation) {
		s.config.Features = features
		s.onBind = func(p *v1.Pod, _ string) (bool, error) {
			if p.Name == "member-1" && failures > 0 {
				failures--
				return false, fmt.Errorf("not now")
			}
			return true, nil
		}
	}, func(s *simulation) {
		for i := range 3 {
			s.add(pod(fmt.Sprint("member-", i), requests("100m", "1Gi"), inGang("gang")))
		}
		advance(time.Minute)
		if got, want := s.placed("member-%d", 3), "xxx"; got != want {
			t.Errorf("placed %s, want %s", got, want)
		}
		if _, _, assumed := s.scheduler.cache.Size(); assumed != 0 {
			t.Errorf("%d pods are assumed", assumed)
		}
	}, node("a"), gang("gang", 3))
}

// The pods of a gang of hundreds that does not fit are tried a few times when
// they have come, not once for each of them.
func TestALargeGangIsTriedFewTimes(t *testing.T) {
	const size = 300 // a watch of the tracker holds 1,000 events
	withGangs(t, func(s *simulation) {
		for i := range size {
			s.add(pod(fmt.Sprint("member-", i), requests("1", "1Gi"), inGang("gang")))
		}
		advance(4 * time.Minute)
		if got := testutil.ToFloat64(s.metrics.attempts.WithLabelValues(unschedulable, DefaultName)); got < size || got > 3*size {
			t.Errorf("%v attempts for %d pods", got, size)
		}
		if n := s.scheduler.cache.NumPlaced(types.NamespacedName{Namespace: "default", Name: "gang"}); n != 0 {
			t.Errorf("%d pods are placed", n)
		}
	}, node("a"), gang("gang", size))
}

// deciding calls a function whenever the scheduler chooses between equal nodes.
type deciding func()

func (d deciding) Uint64() uint64 {
	d()
	return 1<<63 + 1<<31
}

// A member that is deleted while its gang is decided does not count.
func TestAMemberIsDeletedDuringTheTurn(t *testing.T) {
	withGangs(t, func(s *simulation) {
		s.scheduler.algorithm.random = rand.New(deciding(func() {
			if _, _, assumed := s.scheduler.cache.Size(); assumed == 2 && s.get("member-1") != nil {
				gone := s.get("member-1")
				s.remove("member-1")
				s.scheduler.deleteUnassigned(gone)
			}
		}))
		for i := range 3 {
			s.add(pod(fmt.Sprint("member-", i), requests("100m", "1Gi"), inGang("gang")))
		}
		advance(time.Minute)
		if got, want := s.placed("member-%d", 3), ".-."; got != want {
			t.Fatalf("placed %s, want %s", got, want)
		}
		if _, _, assumed := s.scheduler.cache.Size(); assumed != 0 {
			t.Errorf("%d pods are assumed", assumed)
		}
		s.add(pod("member-3", requests("100m", "1Gi"), inGang("gang")))
		advance(time.Minute)
		if got, want := s.placed("member-%d", 4), "x-xx"; got != want {
			t.Errorf("with another member: placed %s, want %s", got, want)
		}
	}, node("a"), node("b"), node("c"), node("d"), gang("gang", 3))
}

// A member for which room was made keeps it while room is being made for others.
func TestAGangKeepsTheRoomThatIsMade(t *testing.T) {
	withGangs(t, func(s *simulation) {
		for i := range 2 {
			s.add(pod(fmt.Sprint("member-", i), requests("2", "1Gi"), priority(10), inGang("gang")))
		}
		advance(5 * time.Second)
		s.remove("low-0") // the other victim takes half a minute to end
		advance(10 * time.Second)
		s.add(pod("next-0", requests("2", "1Gi"), priority(5)))
		advance(5 * time.Second)
		if got, want := s.placed("member-%d", 2)+s.placed("next-%d", 1), "..."; got != want {
			t.Fatalf("while room is made: placed %s, want %s", got, want)
		}
		advance(time.Minute)
		if got, want := s.placed("member-%d", 2)+s.placed("next-%d", 1), "xx."; got != want {
			t.Errorf("placed %s, want %s", got, want)
		}
		if n := s.deleted(); n["low-0"] != 1 || n["low-1"] != 1 || len(n) != 2 {
			t.Errorf("evicted %v", n)
		}
	}, node("a"), node("b"), gang("gang", 2), one("low-0", "a", 1), one("low-1", "b", 1))
}

// While room is made for one member of a gang, another keeps the free node that it fits on. Otherwise
// the victim would be evicted for nothing.
func TestAGangKeepsFreeNodesWhileRoomIsMade(t *testing.T) {
	withGangs(t, func(s *simulation) {
		for i := range 2 {
			s.add(pod(fmt.Sprint("member-", i), requests("2", "1Gi"), priority(10), inGang("gang")))
		}
		advance(5 * time.Second)
		s.add(pod("next-0", requests("2", "1Gi"), priority(10)))
		advance(time.Minute)
		if got, want := s.placed("member-%d", 2)+s.placed("next-%d", 1), "xx."; got != want {
			t.Errorf("placed %s, want %s", got, want)
		}
		if n := s.deleted(); n["low-0"] != 1 || len(n) != 1 {
			t.Errorf("evicted %v", n)
		}
	}, node("a"), node("b"), gang("gang", 2), one("low-0", "b", 1))
}

// A gang that cannot come together gives back the room that was reserved for it,
// and wakes those that wait for it.
func TestAGangGivesBackItsRoom(t *testing.T) {
	nominated := preemptor("member-0", "2", 5)
	inGang("gang")(nominated)
	nominated.Status.NominatedNodeName = "a"
	withGangs(t, func(s *simulation) {
		s.add(preemptor("next-0", "2", 5))
		advance(10 * time.Second)
		if got, want := s.placed("next-%d", 1), "."; got != want {
			t.Fatalf("beside a nominated pod: placed %s, want %s", got, want)
		}
		s.add(pod("member-1", requests("9", "1Gi"), priority(5), inGang("gang")))
		advance(time.Minute)
		if got, want := s.placed("member-%d", 2)+s.placed("next-%d", 1), "..x"; got != want {
			t.Errorf("placed %s, want %s", got, want)
		}
		if got := s.get("member-0").Status.NominatedNodeName; got != "" {
			t.Errorf("nominated for %q", got)
		}
	}, node("a"), gang("gang", 2), nominated)
}

// Nothing is preempted for a gang that lacks a member for which no room can be
// made, whether that is tried first or last.
func TestAGangThatCannotFitPreemptsNothing(t *testing.T) {
	for _, large := range []int{0, 3} {
		t.Run(fmt.Sprint(large), func(t *testing.T) { testAGangThatCannotFit(t, large) })
	}
}

func testAGangThatCannotFit(t *testing.T, large int) {
	withGangs(t, func(s *simulation) {
		for i := range 4 {
			cpu := "2"
			if i == large {
				cpu = "9"
			}
			s.add(pod(fmt.Sprint("member-", i), requests(cpu, "1Gi"), priority(10), inGang("gang")))
		}
		advance(time.Minute)
		if n := s.deleted(); len(n) != 0 {
			t.Errorf("evicted %v", n)
		}
		for i := range 4 {
			p := s.get(fmt.Sprint("member-", i))
			if c := podquery.Condition(&p.Status, v1.PodScheduled); c == nil || c.Reason != v1.PodReasonUnschedulable {
				t.Errorf("%s has the condition %+v", p.Name, c)
			}
			if p.Status.NominatedNodeName != "" {
				t.Errorf("%s is nominated for %s", p.Name, p.Status.NominatedNodeName)
			}
		}
		next := pod("next-0", requests("1", "1Gi"), priority(1))
		s.add(next)
		advance(time.Minute)
		if got, want := s.placed("next-%d", 1), "x"; got != want {
			t.Errorf("placed %s, want %s: room is held that is not made", got, want)
		}
	}, node("a"), node("b"), node("c"), gang("gang", 4), one("low-0", "a", 1), one("low-1", "b", 1), one("low-2", "c", 1))
}

// A member that no node takes says why, though others of its gang were decided after it.
func TestAMemberThatDoesNotFitSaysWhy(t *testing.T) {
	withGangs(t, func(s *simulation) {
		s.add(pod("member-0", requests("1", "1Gi"), priority(10), selects("disk", "ssd"), inGang("gang")))
		for i := range 2 {
			s.add(pod(fmt.Sprint("member-", i+1), requests("1", "1Gi"), priority(0), inGang("gang")))
		}
		advance(5 * time.Second)
		if err := s.objects.Create(nodesResource, node("a"), ""); err != nil { // wakes all of them
			t.Fatal(err)
		}
		advance(30 * time.Second)
		if got, want := s.placed("member-%d", 3), ".xx"; got != want {
			t.Errorf("placed %s, want %s", got, want)
		}
		c := podquery.Condition(&s.get("member-0").Status, v1.PodScheduled)
		if c == nil || !strings.Contains(c.Message, "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.") {
			t.Errorf("condition %+v", c)
		}
	}, gang("gang", 2))
}

// A gang preempts as many pods as it needs, at once.
func TestAGangPreempts(t *testing.T) {
	withGangs(t, func(s *simulation) {
		for i := range 3 {
			s.add(pod(fmt.Sprint("member-", i), requests("2", "1Gi"), priority(10), inGang("gang")))
		}
		advance(time.Second)
		if n := s.deleted(); len(n) != 2 {
			t.Errorf("evicted %v", n)
		}
		advance(time.Minute)
		if got, want := s.placed("member-%d", 3), "xxx"; got != want {
			t.Errorf("placed %s, want %s", got, want)
		}
		if n := s.deleted(); n["low-0"] != 1 || n["low-1"] != 1 || len(n) != 2 {
			t.Errorf("evicted %v", n)
		}
	}, node("a"), node("b"), node("c"), gang("gang", 3), one("low-0", "a", 1), one("low-1", "b", 1))
}

// Once a gang has enough pods, the rest are decided like any others: a pod of a
// higher priority does not wait for them.
func TestTheRestOfAGangIsDecidedAlone(t *testing.T) {
	withGangs(t, func(s *simulation) {
		s.scheduler.algorithm.random = rand.New(deciding(func() {
			if _, _, assumed := s.scheduler.cache.Size(); assumed == 1 && s.get("urgent-0") == nil {
				urgent := pod("urgent-0", requests("2", "1Gi"), priority(10))
				urgent.Spec.SchedulerName = DefaultName
				s.add(urgent)
				s.scheduler.setUnassigned(nil, urgent)
			}
		}))
		for i := range 4 {
			s.add(pod(fmt.Sprint("member-", i), requests("2", "1Gi"), inGang("gang")))
		}
		advance(time.Minute)
		if got, want := s.placed("member-%d", 4)+s.placed("urgent-%d", 1), "xx..x"; got != want {
			t.Errorf("placed %s, want %s", got, want)
		}
	}, node("a"), node("b"), node("c"), gang("gang", 2))
}
