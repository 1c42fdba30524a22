package scheduler

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/all"
)

func priority(n int32) podOption {
	return func(p *v1.Pod) { p.Spec.Priority = &n }
}

func never(p *v1.Pod) {
	policy := v1.PreemptNever
	p.Spec.PreemptionPolicy = &policy
}

func TestPreempt(t *testing.T) {
	full := func(name, node string, prio int32, options ...podOption) *v1.Pod {
		return running(pod(name, append(options, requests("1", "1Gi"), priority(prio))...), node)
	}
	for _, test := range []struct {
		name      string
		nodes     []*v1.Node
		running   []*v1.Pod
		pod       *v1.Pod
		protected []string
		node      string
		victims   []string
		why       string
	}{
		{
			name: "the least important pods go", nodes: []*v1.Node{node("a")},
			running: []*v1.Pod{full("low", "a", 1), full("middle", "a", 5)},
			pod:     pod("p", requests("1", "1Gi"), priority(10)), node: "a", victims: []string{"low"},
		},
		{
			name: "as many as are needed", nodes: []*v1.Node{node("a")},
			running: []*v1.Pod{full("low", "a", 1), full("middle", "a", 5)},
			pod:     pod("p", requests("2", "1Gi"), priority(10)), node: "a", victims: []string{"low", "middle"},
		},
		{
			name: "where the victims matter least", nodes: []*v1.Node{node("a"), node("b")},
			running: []*v1.Pod{full("a1", "a", 5), full("a2", "a", 5), full("b1", "b", 2), full("b2", "b", 2)},
			pod:     pod("p", requests("1", "1Gi"), priority(10)), node: "b", victims: []string{"b1"},
		},
		{
			name: "budgets are kept where they can be", nodes: []*v1.Node{node("a"), node("b")},
			running:   []*v1.Pod{full("a1", "a", 1), full("a2", "a", 1), full("b1", "b", 5), full("b2", "b", 5)},
			protected: []string{"a1", "a2"},
			pod:       pod("p", requests("1", "1Gi"), priority(10)), node: "b", victims: []string{"b1"},
		},
		{
			name: "host ports are freed", nodes: []*v1.Node{node("a")},
			running: []*v1.Pod{running(pod("r", onPort(80), priority(1)), "a")},
			pod:     pod("p", onPort(80), priority(10)), node: "a", victims: []string{"r"},
		},
		{
			name: "anti-affinity is lifted", nodes: []*v1.Node{node("a")},
			running: []*v1.Pod{running(pod("r", labeled("app", "web"), priority(1)), "a")},
			pod:     pod("p", antiAffinity("app", "web"), priority(10)), node: "a", victims: []string{"r"},
		},
		{
			name: "equal priority stays", nodes: []*v1.Node{node("a")},
			running: []*v1.Pod{full("r", "a", 10), full("s", "a", 10)},
			pod:     pod("p", requests("1", "1Gi"), priority(10)),
			why:     "0/1 nodes are available: 1 No preemption victims found for incoming pod",
		},
		{
			name: "no eviction makes a node bigger", nodes: []*v1.Node{node("a"), node("b", cordoned)},
			running: []*v1.Pod{full("r", "a", 1)}, pod: pod("p", requests("3", "1Gi"), priority(10)),
			why: "0/2 nodes are available: 2 Preemption is not helpful for scheduling",
		},
		{
			name: "a pod may be peaceful", nodes: []*v1.Node{node("a")},
			running: []*v1.Pod{full("r", "a", 1), full("s", "a", 1)}, pod: pod("p", requests("1", "1Gi"), priority(10), never),
			why: "not eligible due to preemptionPolicy=Never",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCache(nil)
			for _, n := range test.nodes {
				c.setNode(n)
			}
			for _, p := range test.running {
				c.setPod(p)
			}
			profile := &profile{filters: all.Filters(), scores: all.Scores()}
			incoming := framework.NewPod(test.pod)
			_, _, err := profile.choose(incoming, &c.cluster, 0, rand.New(rand.NewPCG(1, 1)))
			var unfit *fitError
			if !errors.As(err, &unfit) {
				t.Fatalf("the pod fits: %v", err)
			}
			best, why := profile.preempt(incoming, &c.cluster, unfit, func(p *v1.Pod) bool { return slices.Contains(test.protected, p.Name) })
			if why != test.why {
				t.Errorf("why = %q, want %q", why, test.why)
			}
			var name string
			var victims []string
			if best != nil {
				name = best.node
				for _, v := range best.victims {
					victims = append(victims, v.Pod.Name)
				}
			}
			slices.Sort(victims)
			if name != test.node || (len(victims) != len(test.victims)) {
				t.Errorf("preempts %v on %q, want %v on %q", victims, name, test.victims, test.node)
			}
		})
	}
}

// A pod leaves while room is being made: the node it was on has room now, and
// nobody else has to go.
func TestAPodLeavesWhileRoomIsMade(t *testing.T) {
	c := newCache(nil)
	for _, n := range []string{"a", "b"} {
		c.setNode(node(n))
		for _, p := range []string{"1", "2"} {
			c.setPod(running(pod(n+p, requests("1", "1Gi"), priority(1)), n))
		}
	}
	profile := &profile{filters: all.Filters(), scores: all.Scores()}
	incoming := framework.NewPod(pod("p", requests("1", "1Gi"), priority(10)))
	_, _, err := profile.choose(incoming, &c.cluster, 0, rand.New(rand.NewPCG(1, 1)))
	var unfit *fitError
	if !errors.As(err, &unfit) {
		t.Fatalf("the pod fits: %v", err)
	}
	c.deletePod(pod("a1").UID)
	c.deletePod(pod("b1").UID)
	best, why := profile.preempt(incoming, &c.cluster, unfit, func(*v1.Pod) bool { return false })
	if best != nil || why != "0/2 nodes are available: 2 No preemption victims found for incoming pod" {
		t.Errorf("preempts %+v: %s", best, why)
	}
}

// A pod that is deleted while it is being scheduled does not come back, and
// no room is made for it.
func TestAPodIsDeletedWhileItIsScheduled(t *testing.T) {
	s := New(Config{Client: &client.Client{Informers: client.NewInformers(fake.NewClientset())}})
	s.queue.set(pod("p", requests("1", "1Gi"), priority(10)))
	it, err := s.queue.pop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !s.queue.expects(it) {
		t.Error("a pod that is there is not expected")
	}
	s.queue.delete(it.pod.Pod.UID)
	if c, why := s.findRoom(it, &fitError{}); c != nil || why != "the pod is gone or has changed" {
		t.Errorf("room for it: %+v, %q", c, why)
	}
	s.queue.giveBack(it, nil)
	if active, backoff, unschedulable, _ := s.queue.waitingPods(); active+backoff+unschedulable != 0 {
		t.Errorf("%d active, %d in back-off, %d unschedulable", active, backoff, unschedulable)
	}
}
