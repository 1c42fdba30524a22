package queue

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// An event of an indexed plugin asks only about the pods that have its key, once
// for all of them, also after their keys changed. It asks about all keys if that
// of the event is not known.
func TestIndex(t *testing.T) {
	var asked []string
	team := func(p *v1.Pod) string { return p.Labels["team"] }
	hint := framework.On(framework.UnscheduledPod, framework.Add, func(pod *framework.PodInfo, _, other *v1.Pod) framework.QueueingHint {
		asked = append(asked, pod.Pod.Name)
		return framework.QueueIf(team(pod.Pod) == team(other))
	})
	hint.Index = &framework.PodIndex{
		OfPod: func(pod *framework.PodInfo) string { return team(pod.Pod) },
		OfEvent: func(_, obj any) (string, bool) {
			p, ok := obj.(*v1.Pod)
			if !ok {
				return "", false
			}
			return team(p), true
		},
	}
	q := New(Options{
		Clock: clock.RealClock{}, Less: func(a, b framework.QueuedPod) bool { return a.Timestamp.Before(b.Timestamp) },
		Profiles: map[string]Profile{"": {Hints: map[string][]framework.ClusterEventWithHint{"Teams": {hint}}}},
	})
	of := func(name, team string) *v1.Pod {
		p := pod(name, 0)
		p.Labels = map[string]string{"team": team}
		return p
	}
	for i := range 10 {
		q.Add(of(fmt.Sprint("pod-", i), fmt.Sprint("team-", i)))
		reject(q, pop(t, q), "Teams")
	}
	added := framework.ClusterEvent{Resource: framework.UnscheduledPod, Action: framework.Add}
	want := func(when string, obj any, calls, waiting int) {
		t.Helper()
		asked = nil
		q.MoveAllToActiveOrBackoffQueue(added, nil, obj)
		if c := q.Counts(); len(asked) != calls || c.Unschedulable != waiting {
			t.Errorf("%s: the hint was asked about %v, and %d pods wait, want %d calls and %d pods", when, asked, c.Unschedulable, calls, waiting)
		}
	}
	want("a team of nobody", of("x", "other"), 0, 10)
	want("the team of one pod", of("x", "team-3"), 1, 9)
	want("the pod is elsewhere now", of("x", "team-3"), 0, 9)
	q.Add(of("pod-4", "team-5"))
	want("the team that a pod left", of("x", "team-4"), 0, 9)
	want("the team that it joined", of("x", "team-5"), 1, 7)
	q.Delete("pod-6")
	want("the team of a pod that is gone", of("x", "team-6"), 0, 6)
	want("an unknown object", 7, 0, 0)
}

// Pods with one key cost one call of a hint, however many there are.
func TestHintsAreAskedOnceForAKey(t *testing.T) {
	const pods, keys = 1000, 4
	asked := 0
	hint := framework.On(framework.AssignedPod, framework.Delete, func(pod *framework.PodInfo, gone, _ *v1.Pod) framework.QueueingHint {
		asked++
		return framework.QueueIf(pod.Pod.Labels["size"] == gone.Labels["size"])
	})
	q := New(Options{
		Clock: clock.RealClock{}, Less: func(a, b framework.QueuedPod) bool { return a.Timestamp.Before(b.Timestamp) },
		Profiles: map[string]Profile{"": {Hints: map[string][]framework.ClusterEventWithHint{
			"Sizes": framework.Indexed(&framework.PodIndex{OfPod: func(pod *framework.PodInfo) string { return pod.Pod.Labels["size"] }}, []framework.ClusterEventWithHint{hint}),
		}}},
	})
	of := func(name string, size int) *v1.Pod {
		p := pod(name, 0)
		p.Labels = map[string]string{"size": fmt.Sprint(size)}
		return p
	}
	for i := range pods {
		q.Add(of(fmt.Sprint("pod-", i), i%keys))
		reject(q, pop(t, q), "Sizes")
	}
	gone := framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete}
	q.MoveAllToActiveOrBackoffQueue(gone, of("gone", keys), nil)
	if c := q.Counts(); asked != keys || c.Unschedulable != pods {
		t.Errorf("an event that helps nobody: %d calls, %d pods wait, want %d and %d", asked, c.Unschedulable, keys, pods)
	}
	q.MoveAllToActiveOrBackoffQueue(gone, of("gone", 1), nil)
	if c := q.Counts(); asked != 2*keys || c.Backoff != pods/keys || c.Unschedulable != pods-pods/keys {
		t.Errorf("an event that helps some: %d calls, %d pods leave, want %d and %d", asked, c.Backoff, 2*keys, pods/keys)
	}
}

// Pods that one event wakes are popped by priority, then in the order in which
// they came.
func TestPodsThatWakeTogetherKeepTheirOrder(t *testing.T) {
	const pods = 100
	var hints int
	q, _ := newTestQueue(&hints)
	for i := range pods {
		q.Add(pod(fmt.Sprint(i), 0))
	}
	for range pods {
		reject(q, pop(t, q), "Labels")
	}
	for _, it := range q.pods {
		it.backoff.expiry = q.options.Clock.Now() // the back-off has ended
	}
	q.MoveAllToActiveOrBackoffQueue(nodeAdd(), nil, good())
	for i := range pods {
		if got := pop(t, q).Pod.Name; got != fmt.Sprint(i) {
			t.Fatalf("pod %s is popped as number %d", got, i)
		}
	}
}

// If an event helps a plugin that the pod waits for in Permit, the pod becomes
// active at once, even if the event helps another plugin for which it would end
// its back-off first.
func TestAPendingPluginIsStronger(t *testing.T) {
	for _, pending := range []string{"Labels", "More"} {
		hint := framework.ClusterEventWithHint{Event: nodeAdd()}
		q := New(Options{
			Clock: clock.RealClock{}, Less: func(a, b framework.QueuedPod) bool { return a.Timestamp.Before(b.Timestamp) },
			Profiles: map[string]Profile{"": {Hints: map[string][]framework.ClusterEventWithHint{"Labels": {hint}, "More": {hint}}}},
		})
		q.Add(pod("p", 0))
		it := pop(t, q)
		it.UnschedulablePlugins, it.PendingPlugins = []string{"Labels", "More"}, []string{pending}
		q.AddUnschedulable(it)
		q.MoveAllToActiveOrBackoffQueue(nodeAdd(), nil, good())
		if c := q.Counts(); c.Active != 1 {
			t.Errorf("%s is pending: the pod is not active: %+v", pending, c)
		}
	}
}

func BenchmarkEventsWithWaitingPods(b *testing.B) {
	for _, waiting := range []int{1000, 20_000} {
		for _, keys := range []int{1, 50} {
			b.Run(fmt.Sprintf("pods=%d,keys=%d", waiting, keys), func(b *testing.B) {
				hint := framework.ClusterEventWithHint{
					Event: framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete},
					Hint:  func(*framework.PodInfo, any, any) framework.QueueingHint { return framework.QueueSkip },
					Index: &framework.PodIndex{OfPod: func(pod *framework.PodInfo) string { return pod.Pod.Labels["key"] }},
				}
				q := New(Options{
					Clock: clock.RealClock{}, Less: func(a, b framework.QueuedPod) bool { return a.Timestamp.Before(b.Timestamp) },
					Profiles: map[string]Profile{"": {Hints: map[string][]framework.ClusterEventWithHint{"Fit": {hint}}}},
				})
				for i := range waiting {
					p := pod(fmt.Sprint(i), 0)
					p.Labels = map[string]string{"key": fmt.Sprint(i % keys)}
					q.Add(p)
					it, err := q.Pop(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					reject(q, it, "Fit")
				}
				gone := pod("gone", 0)
				b.ReportAllocs()
				for b.Loop() {
					q.MoveAllToActiveOrBackoffQueue(hint.Event, gone, nil)
				}
			})
		}
	}
}

// The hints of a plugin that do not share an index are asked about each pod.
func TestHintsOfSeveralIndexes(t *testing.T) {
	size := func(pod *framework.PodInfo) string { return pod.Pod.Labels["size"] }
	byTeam := framework.On(framework.AssignedPod, framework.Delete, func(pod *framework.PodInfo, gone, _ *v1.Pod) framework.QueueingHint {
		return framework.QueueIf(pod.Pod.Labels["team"] == gone.Labels["team"])
	})
	bySize := framework.On(framework.AssignedPod, framework.Add, func(pod *framework.PodInfo, _, other *v1.Pod) framework.QueueingHint {
		return framework.QueueIf(size(pod) == other.Labels["size"])
	})
	bySize.Index = &framework.PodIndex{OfPod: size}
	for name, hints := range map[string][]framework.ClusterEventWithHint{"first": {bySize, byTeam}, "last": {byTeam, bySize}} {
		q := New(Options{
			Clock: clock.RealClock{}, Less: func(a, b framework.QueuedPod) bool { return a.Timestamp.Before(b.Timestamp) },
			Profiles: map[string]Profile{"": {Hints: map[string][]framework.ClusterEventWithHint{"Some": hints}}},
		})
		for i := range 10 {
			p := pod(fmt.Sprint("pod-", i), 0)
			p.Labels = map[string]string{"size": "1", "team": fmt.Sprint(i)}
			q.Add(p)
			reject(q, pop(t, q), "Some")
		}
		gone := pod("gone", 0)
		gone.Labels = map[string]string{"team": "3"}
		q.MoveAllToActiveOrBackoffQueue(framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete}, gone, nil)
		if c := q.Counts(); c.Unschedulable != 9 {
			t.Errorf("the index is %s: %d pods wait, want 9", name, c.Unschedulable)
		}
	}
}
