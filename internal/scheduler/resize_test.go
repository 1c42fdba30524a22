package scheduler

import (
	"maps"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/scheduler/config"
)

// makingRoomForResizes is a configuration with the feature
// InPlacePodVerticalScalingSchedulerPreemption.
func makingRoomForResizes(t *testing.T) config.Configuration {
	features, err := feature.Parse([]string{"InPlacePodVerticalScalingSchedulerPreemption=true"})
	if err != nil {
		t.Fatal(err)
	}
	return config.Configuration{Features: features}
}

// resize changes the requests of a pod on a node, for which the kubelet has no room.
func (s *simulation) resize(name, cpu string) {
	p := s.get(name)
	requests(cpu, "1Gi")(p)
	p.Generation++
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred}}
	s.update(p)
}

// resized is what a kubelet writes that has resized a pod.
func (s *simulation) resized(name string) {
	p := s.get(name)
	p.Status.Conditions = nil
	s.update(p)
}

// tracked is how many pods wait in the queue.
func (s *simulation) tracked() int {
	c := s.scheduler.queue.Counts()
	return c.Active + c.Backoff + c.Unschedulable + c.Gated
}

// disableResizePreemption has a node forbid preemption for resizes.
func disableResizePreemption(n *v1.Node) {
	n.Spec.PodPreemptionPolicy = &v1.NodePodPreemptionPolicy{DisableResizePreemption: []string{"example.com/autoscaler"}}
}

// Room is made for a resize that the kubelet has deferred, on the pod's node and as for
// a new pod. The pod keeps its node, nothing is written to it, and no more room is made
// while the victims end or the kubelet has not resized it yet.
func TestRoomIsMadeForADeferredResize(t *testing.T) {
	half := func(name string, prio int32) *v1.Pod {
		return running(pod(name, requests("500m", "1Gi"), priority(prio)), "a")
	}
	for _, test := range []struct {
		name    string
		off     bool // the feature
		node    []nodeOption
		pods    []*v1.Pod
		cpu     string // that the pod "high" wants
		victims []string
	}{
		{"the least important pod goes", false, nil, []*v1.Pod{half("high", 10), half("low", 1), full("middle", "a", 5)}, "1", []string{"low"}},
		{"as many as are needed", false, nil, []*v1.Pod{half("high", 10), half("low", 1), full("middle", "a", 5)}, "2", []string{"low", "middle"}},
		{"pods of the same priority stay", false, nil, []*v1.Pod{full("high", "a", 10), full("peer", "a", 10)}, "2", nil},
		{"pods on other nodes stay", false, nil, []*v1.Pod{full("high", "a", 10), full("peer", "a", 10), full("low", "b", 1)}, "2", nil},
		{"no eviction makes a node bigger", false, nil, []*v1.Pod{full("high", "a", 10), full("low", "a", 1)}, "3", nil},
		{"a pod may be peaceful", false, nil, []*v1.Pod{full("high", "a", 10, never), full("low", "a", 1)}, "2", nil},
		{"there is room already", false, nil, []*v1.Pod{half("high", 10), half("low", 1)}, "1500m", nil},
		{"whatever its node is like for new pods", false, []nodeOption{cordoned, tainted("x", v1.TaintEffectNoSchedule)}, []*v1.Pod{full("high", "a", 10, onPort(80)), full("low", "a", 1)}, "2", []string{"low"}},
		{"the node forbids it", false, []nodeOption{disableResizePreemption}, []*v1.Pod{full("high", "a", 10), full("low", "a", 1)}, "2", nil},
		{"the feature is off", true, nil, []*v1.Pod{full("high", "a", 10), full("low", "a", 1)}, "2", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				if !test.off {
					s.config = makingRoomForResizes(t)
				}
			}, func(s *simulation) {
				for _, p := range test.pods {
					s.add(p)
				}
				advance(time.Second)
				s.resize("high", test.cpu)
				advance(7 * time.Minute)
				want := map[string]int{}
				for _, victim := range test.victims {
					want[victim] = 1
				}
				if got := s.deleted(); !maps.Equal(got, want) {
					t.Errorf("deletes %v, want %v", slices.Sorted(maps.Keys(got)), test.victims)
				}
				if p := s.get("high"); p.Spec.NodeName != "a" || p.Status.NominatedNodeName != "" || s.wrote("high", "") > 0 {
					t.Errorf("the pod is on %q, nominated for %q, and was written %d times", p.Spec.NodeName, p.Status.NominatedNodeName, s.wrote("high", ""))
				}
				waits := 1
				if test.off {
					waits = 0
				}
				if n := s.tracked(); n != waits {
					t.Errorf("%d pods wait, want %d", n, waits)
				}
				s.resized("high")
				advance(time.Second)
				if n := s.tracked(); n != 0 || s.scheduler.nominator.NominatedNode("high") != "" {
					t.Errorf("%d pods wait after the resize", n)
				}
			}, node("a", test.node...), node("b"))
		})
	}
}

// Room is made once the node no longer forbids it.
func TestDeferredResizesAreTriedAgain(t *testing.T) {
	simulate(t, func(s *simulation) { s.config = makingRoomForResizes(t) }, func(s *simulation) {
		s.add(full("high", "a", 10))
		s.add(full("low", "a", 1))
		s.resize("high", "2")
		advance(time.Second)
		if err := s.objects.Update(nodesResource, node("a"), ""); err != nil {
			t.Fatal(err)
		}
		advance(30 * time.Second)
		if got := s.deleted(); got["low"] != 1 {
			t.Errorf("deletes %v after the node allows it", got)
		}
	}, node("a", disableResizePreemption))
}

// No room is made for a pod that ends, or whose resize is taken back.
func TestEndedResizesAreForgotten(t *testing.T) {
	for name, end := range map[string]func(s *simulation){
		"the pod is deleted": func(s *simulation) { s.remove("high") },
		"the pod terminates": func(s *simulation) { s.terminate(s.get("high")) },
		"the pod has ended": func(s *simulation) {
			p := s.get("high")
			p.Status.Phase = v1.PodSucceeded
			s.update(p)
		},
		"the resize is taken back": func(s *simulation) { s.resized("high") },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(s *simulation) { s.config = makingRoomForResizes(t) }, func(s *simulation) {
				s.add(full("high", "a", 10))
				s.add(full("peer", "a", 10))
				s.resize("high", "2")
				advance(time.Second)
				if n := s.tracked(); n != 1 {
					t.Fatalf("%d pods wait, want 1", n)
				}
				end(s)
				advance(10 * time.Millisecond)
				if n := s.tracked(); n != 0 {
					t.Errorf("%d pods wait, want none", n)
				}
			}, node("a"))
		})
	}
}

// A scheduler that starts later makes room too, and waits for victims of an earlier one.
func TestDeferredResizesAfterARestart(t *testing.T) {
	simulate(t, func(s *simulation) { s.config = makingRoomForResizes(t) }, func(s *simulation) {
		s.add(running(pod("high", requests("500m", "1Gi"), priority(10)), "a"))
		for _, name := range []string{"one", "two"} {
			s.add(running(pod(name, requests("500m", "1Gi"), priority(1)), "a"))
		}
		s.resize("high", "1500m")
		advance(time.Second)
		before := s.deleted()
		s.stop()
		s.start()
		advance(10 * time.Second)
		if after := s.deleted(); len(before) != 1 || !maps.Equal(after, before) {
			t.Errorf("deletes %v before the restart, %v altogether; want one pod", before, after)
		}
	}, node("a"))
}
