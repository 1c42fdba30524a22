package queue

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// gates is a PreEnqueue plugin that counts its calls.
type gates struct {
	calls int
	open  bool // whatever the pods have
}

func (*gates) Name() string { return "Gates" }

func (g *gates) PreEnqueue(_ context.Context, pod *framework.PodInfo) *framework.Status {
	g.calls++
	if g.open || len(pod.Pod.Spec.SchedulingGates) == 0 {
		return nil
	}
	return framework.NewStatus(framework.UnschedulableAndUnresolvable, "Gates", "gated")
}

func newTestQueue(hintCalls *int) (*Queue, *gates) {
	g := &gates{}
	return New(Options{
		Clock: clock.RealClock{},
		Less: func(a, b framework.QueuedPod) bool {
			if a.Priority != b.Priority {
				return a.Priority > b.Priority
			}
			return a.Timestamp.Before(b.Timestamp)
		},
		Profiles: map[string]Profile{"": {
			PreEnqueue: []framework.PreEnqueuePlugin{g},
			Hints: map[string][]framework.ClusterEventWithHint{
				"Gates": {{Event: framework.ClusterEvent{Resource: framework.TargetPod, Action: framework.UpdatePodSchedulingGatesEliminated}}},
				"Labels": {framework.On(framework.Node, framework.Add, func(_ *framework.PodInfo, _, node *v1.Node) framework.QueueingHint {
					*hintCalls++
					return framework.QueueIf(node.Labels["good"] == "yes")
				})},
				"Other": {{Event: framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete}}},
			},
		}},
	}), g
}

func pod(name string, priority int32) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{Priority: &priority}}
}

func pop(t *testing.T, q *Queue) *QueuedPodInfo {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	p, err := q.Pop(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func reject(q *Queue, p *QueuedPodInfo, plugins ...string) {
	p.UnschedulablePlugins = plugins
	q.AddUnschedulable(p)
}

func good() *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"good": "yes"}}}
}

func nodeAdd() framework.ClusterEvent {
	return framework.ClusterEvent{Resource: framework.Node, Action: framework.Add}
}

func TestPopsByPriorityThenAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newTestQueue(new(int))
		for _, p := range []*v1.Pod{pod("low", 1), pod("old", 5), pod("young", 5)} {
			q.Add(p)
			time.Sleep(time.Millisecond)
		}
		for _, want := range []string{"old", "young", "low"} {
			if got := pop(t, q).Pod.Name; got != want {
				t.Errorf("popped %s, want %s", got, want)
			}
		}
	})
}

// Pods whose back-off ends in the same second are taken by priority.
func TestBackoffEndsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newTestQueue(new(int))
		q.Add(pod("high", 5))
		q.Add(pod("low", 1))
		high, low := pop(t, q), pop(t, q)
		time.Sleep(100 * time.Millisecond) // both back-offs end between two seconds
		reject(q, low)
		time.Sleep(300 * time.Millisecond)
		reject(q, high)
		if got := pop(t, q).Pod.Name; got != "high" {
			t.Errorf("popped %s, want high", got)
		}
	})
}

// Without active pods, the back-off of pods that an event helped ends early
// (KEP-5142). The back-off of pods that failed by an error does not.
func TestBackoffEndsEarlyWithoutActivePods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, calls := time.Now(), 0
		q, gates := newTestQueue(&calls)
		q.options.PopFromBackoff = true
		for _, name := range []string{"error", "low", "high"} {
			priority := int32(1)
			if name == "high" {
				priority = 2
			}
			q.Add(pod(name, priority))
		}
		failed := map[string]*QueuedPodInfo{}
		for range 3 {
			p := pop(t, q)
			failed[p.Pod.Name] = p
		}
		for name, p := range failed {
			if name == "error" {
				reject(q, p)
			} else {
				reject(q, p, "Labels")
			}
		}
		if waits := q.Counts(); waits.Unschedulable != 2 || waits.Backoff != 1 {
			t.Fatalf("%+v", waits)
		}
		q.MoveAllToActiveOrBackoffQueue(nodeAdd(), nil, good())
		q.Add(pod("new", 1))
		for _, want := range []string{"new", "high", "low"} {
			if got := pop(t, q).Pod.Name; got != want || !time.Now().Equal(began) {
				t.Errorf("popped %s after %v, want %s at once", got, time.Since(began), want)
			}
		}
		if got := pop(t, q).Pod.Name; got != "error" || time.Since(began) < defaultInitialBackoff {
			t.Errorf("popped %s after %v", got, time.Since(began))
		}
		// A pod that PreEnqueue keeps back does not end the wait.
		gated := pod("gated", 1)
		gates.open = true
		gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "g"}}
		q.Add(gated)
		reject(q, pop(t, q), "Labels")
		gates.open = false
		q.MoveAllToActiveOrBackoffQueue(nodeAdd(), nil, good())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if p, err := q.Pop(ctx); err == nil {
			t.Errorf("popped %s", p.Pod.Name)
		}
		if waits := q.Counts(); waits.Gated != 1 {
			t.Errorf("%+v", waits)
		}
	})
}

func TestOnlyEventsThatHelpWakeAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		q, _ := newTestQueue(&calls)
		q.Add(pod("a", 0))
		q.Add(pod("b", 0))
		reject(q, pop(t, q), "Labels")
		reject(q, pop(t, q), "Other")
		time.Sleep(10 * time.Second)
		q.MoveAllToActiveOrBackoffQueue(nodeAdd(), nil, &v1.Node{})
		if n := q.Counts(); n.Unschedulable != 2 || calls != 1 {
			t.Errorf("%+v after an event that does not help, %d hints asked", n, calls)
		}
		q.MoveAllToActiveOrBackoffQueue(nodeAdd(), nil, good())
		if n := q.Counts(); n.Unschedulable != 1 || n.Active != 1 {
			t.Errorf("%+v after one that helps", n)
		}
		if got := pop(t, q).Pod.Name; got != "a" {
			t.Errorf("popped %s, want a", got)
		}
	})
}

// An event that comes while a pod is being decided is not lost, nor are those
// that nobody could record.
func TestEventsDuringAFlight(t *testing.T) {
	for name, events := range map[string]int{"recorded": 1, "too many": maxRecordedEvents + 1} {
		t.Run(name, func(t *testing.T) {
			q, _ := newTestQueue(new(int))
			q.Add(pod("a", 0))
			a := pop(t, q)
			q.MoveAllToActiveOrBackoffQueue(nodeAdd(), nil, good())
			for range events - 1 {
				q.MoveAllToActiveOrBackoffQueue(nodeAdd(), nil, &v1.Node{})
			}
			reject(q, a, "Labels")
			if n := q.Counts(); n.Backoff != 1 {
				t.Errorf("%+v, want the pod in back-off", n)
			}
			if len(q.flights.events) != 0 {
				t.Errorf("%d events are kept for no pod", len(q.flights.events))
			}
		})
	}
}

func TestUnschedulablePodsAreTriedAfterFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newTestQueue(new(int))
		q.Add(pod("a", 0))
		reject(q, pop(t, q), "Other")
		began := time.Now()
		flushed := pop(t, q)
		if waited := time.Since(began); waited != defaultMaxUnschedulable || !flushed.Flushed {
			t.Errorf("waited %v, flushed %t", waited, flushed.Flushed)
		}
		reject(q, flushed, "Other")
		q.MoveAllToActiveOrBackoffQueue(framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete}, pod("b", 0), nil)
		if again := pop(t, q); again.Flushed {
			t.Error("a pod that an event woke counts as flushed")
		}
		q.MoveAllToActiveOrBackoffQueue(framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete}, pod("b", 0), nil)
		if n := q.Counts().InFlightEvents; n["AssignedPodDelete"] != 1 {
			t.Errorf("events for the pod in flight: %v", n)
		}
	})
}

// PreEnqueue plugins are asked about gated pods again after some time, as for
// unschedulable pods.
func TestGatedPodsAreAskedAboutAfterFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, g := newTestQueue(new(int))
		p := pod("a", 0)
		p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "wait"}}
		q.Add(p)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), defaultMaxUnschedulable+time.Second)
		defer cancel()
		if it, err := q.Pop(ctx); err == nil {
			t.Errorf("%s left the queue in spite of its gate", it.Pod.Name)
		}
		if n := q.Counts(); n.Gated != 1 || g.calls != 2 {
			t.Errorf("%+v, %d calls of PreEnqueue, want 2", n, g.calls)
		}
		g.open = true
		pop(t, q)
		if waited := time.Since(began); waited != 2*defaultMaxUnschedulable {
			t.Errorf("waited %v", waited)
		}
	})
}

// Many pods that waited too long are moved in parts, all without delay.
func TestManyPodsAreFlushedInParts(t *testing.T) {
	const many = 2*maxFlushed + 1
	synctest.Test(t, func(t *testing.T) {
		q, g := newTestQueue(new(int))
		for i := range many {
			q.Add(pod(fmt.Sprint("waits-", i), 0))
			reject(q, pop(t, q), "Other")
			p := pod(fmt.Sprint("gated-", i), 0)
			p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "wait"}}
			q.Add(p)
		}
		time.Sleep(defaultMaxUnschedulable)
		g.calls = 0
		began := time.Now()
		if it, _, _ := q.next(); it == nil || !it.Flushed {
			t.Errorf("popped %v, want a pod that waited too long", it)
		}
		if n := q.Counts(); n.Active != maxFlushed-1 || n.Unschedulable != many-maxFlushed || g.calls != 2*maxFlushed {
			t.Errorf("%+v, %d calls of PreEnqueue, want %d", n, g.calls, 2*maxFlushed)
		}
		for range many - 1 {
			pop(t, q)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if it, err := q.Pop(ctx); err == nil {
			t.Errorf("popped %s", it.Pod.Name)
		}
		if waited := time.Since(began); waited != time.Minute || g.calls != 2*many {
			t.Errorf("after %v there were %d calls of PreEnqueue, want %d", waited, g.calls, 2*many)
		}
	})
}

// Gated pods that waited too long are asked about without delay, also if none of a part
// becomes active.
func TestManyGatedPodsAreAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, g := newTestQueue(new(int))
		for i := range maxFlushed + 1 {
			p := pod(fmt.Sprint("gated-", i), 0)
			p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "wait"}}
			q.Add(p)
		}
		g.calls = 0
		ctx, cancel := context.WithTimeout(t.Context(), defaultMaxUnschedulable+time.Second)
		defer cancel()
		if it, err := q.Pop(ctx); err == nil {
			t.Errorf("popped %s", it.Pod.Name)
		}
		if g.calls != maxFlushed+1 {
			t.Errorf("%d calls of PreEnqueue, want %d", g.calls, maxFlushed+1)
		}
	})
}

// A gated pod is not asked about again before its gates are gone.
func TestGatedPodsCostNothing(t *testing.T) {
	q, g := newTestQueue(new(int))
	p := pod("a", 0)
	p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "wait"}}
	q.Add(p)
	for range 10 {
		q.MoveAllToActiveOrBackoffQueue(nodeAdd(), nil, good())
		labeled := p.DeepCopy()
		labeled.Labels = map[string]string{"changed": "yes"}
		q.Add(labeled)
	}
	if n := q.Counts(); n.Gated != 1 || g.calls != 1 {
		t.Errorf("%+v, %d calls of PreEnqueue, want 1", n, g.calls)
	}
	free := p.DeepCopy()
	free.Spec.SchedulingGates, free.Generation = nil, 1
	q.Add(free)
	if n := q.Counts(); n.Gated != 0 || n.Active != 1 {
		t.Errorf("%+v after the gates are gone", n)
	}
}

// A change of a pod's status while it is in flight does not bring it back early.
func TestANominationKeepsTheBackoff(t *testing.T) {
	q, _ := newTestQueue(new(int))
	p := pod("a", 0)
	q.Add(p)
	it := pop(t, q)
	nominated := p.DeepCopy()
	nominated.Status.NominatedNodeName = "n"
	q.Add(nominated)
	reject(q, it, "Other")
	if n := q.Counts(); n.Unschedulable != 1 {
		t.Errorf("%+v, want the pod among the unschedulable", n)
	}
	if it.Pod != nominated {
		t.Error("the pod that came back is not the newest version")
	}
}

// A pod whose own assumption is taken back is not woken by that; others are.
func TestAPodIsNotHelpedByItself(t *testing.T) {
	q, _ := newTestQueue(new(int))
	q.Add(pod("a", 1))
	q.Add(pod("b", 0))
	a, b := pop(t, q), pop(t, q)
	q.MoveAllToActiveOrBackoffQueue(framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete}, a.Pod, nil)
	reject(q, a, "Other")
	reject(q, b, "Other")
	if n := q.Counts(); n.Unschedulable != 1 || n.Backoff != 1 {
		t.Errorf("%+v, want a unschedulable and b in back-off", n)
	}
}

// A pod that is put back untried is popped again in its turn, at once and
// without another attempt, unless it was deleted.
func TestPutBack(t *testing.T) {
	q, _ := newTestQueue(new(int))
	for _, name := range []string{"a", "b", "c"} {
		q.Add(pod(name, 1))
	}
	popped := []*QueuedPodInfo{pop(t, q), pop(t, q), pop(t, q)}
	q.Delete("b")
	q.PutBack(popped)
	if n := q.Counts(); n.Active != 2 || len(q.flights.pods) != 0 {
		t.Errorf("%+v, %d in flight", n, len(q.flights.pods))
	}
	for _, want := range []string{"a", "c"} {
		if it := pop(t, q); it.Pod.Name != want || it.Attempts != 1 {
			t.Errorf("popped %s in attempt %d, want %s in the first", it.Pod.Name, it.Attempts, want)
		}
	}
}

// A pod that waits for its resize is not decided with its group, and no PreEnqueue
// plugin keeps it back that judges new pods.
func TestAResizeIsNoMemberOfItsGroup(t *testing.T) {
	q, gates := newTestQueue(new(int))
	resizing := pod("resizing", 1)
	resizing.Spec.NodeName, resizing.Spec.SchedulingGates = "a", []v1.PodSchedulingGate{{Name: "gate"}}
	resizing.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred}}
	first, second := pod("first", 3), pod("second", 2)
	for _, p := range []*v1.Pod{first, second, resizing} {
		q.Add(p)
	}
	if gates.calls != 2 {
		t.Errorf("PreEnqueue was asked %d times, want 2", gates.calls)
	}
	if all := q.PopMembers(pop(t, q), []*v1.Pod{first, second, resizing}); len(all) != 2 || all[1].Pod.Name != "second" {
		t.Errorf("%d members, want two", len(all))
	}
	if it := pop(t, q); it.Pod.Name != "resizing" {
		t.Errorf("popped %s, want the pod that waits for its resize", it.Pod.Name)
	}
}

// The end of the pod without a node may be seen after the resize of the pod on its node.
func TestAResizeOutlivesTheUnassignedPod(t *testing.T) {
	q, _ := newTestQueue(new(int))
	resizing := pod("p", 1)
	resizing.Spec.NodeName = "a"
	resizing.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred}}
	for _, test := range []struct {
		name    string
		pod     *v1.Pod
		flies   bool
		outlive bool
	}{
		{"a resize that waits", resizing, false, true}, {"a resize that is tried", resizing, true, true},
		{"a pod that waits", pod("p", 1), false, false}, {"a pod that is tried", pod("p", 1), true, false},
	} {
		q.Add(test.pod)
		if test.flies {
			pop(t, q)
		}
		if q.DeleteUnassigned("p"); q.Has("p") != test.outlive {
			t.Errorf("%s: it is there: %t", test.name, q.Has("p"))
		}
		q.Delete("p")
	}
}

func TestPopEndsWithItsContext(t *testing.T) {
	q, _ := newTestQueue(new(int))
	q.Add(pod("a", 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if p, err := q.Pop(ctx); err == nil {
		t.Errorf("popped %s after the end of the context", p.Pod.Name)
	}
}

// A back-off lasts at least as long as it is configured, whenever it begins.
func TestBackoffIsNotShortened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newTestQueue(new(int))
		time.Sleep(950 * time.Millisecond)
		q.Add(pod("a", 1))
		p := pop(t, q)
		began := time.Now()
		q.AddUnschedulable(p) // an error: it is tried again after its back-off
		pop(t, q)
		if d := time.Since(began); d < time.Second {
			t.Errorf("the first back-off lasted %v", d)
		}
	})
}

// The longest back-off that can be configured does not overflow into one that
// has ended.
func TestBackoffDoesNotOverflow(t *testing.T) {
	q, _ := newTestQueue(new(int))
	q.options.MaxBackoff = math.MaxInt64
	now, before := time.Now(), time.Time{}
	for failures := 1; failures < 100; failures++ {
		end := q.expiry(now, failures)
		if end.Before(now) || end.Before(before) {
			t.Fatalf("the back-off after %d failures ends at %v", failures, end)
		}
		before = end
	}
}
