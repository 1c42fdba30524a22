package scheduler

import (
	"fmt"
	"maps"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// requests counts what the scheduler has asked of the API since the last call,
// but for lists and watches.
func (s *simulation) requests() map[string]int {
	counts := map[string]int{}
	for _, a := range s.c.Actions() {
		if verb := a.GetVerb(); verb != "list" && verb != "watch" {
			resource := a.GetResource().Resource
			if sub := a.GetSubresource(); sub != "" {
				resource += "/" + sub
			}
			counts[verb+" "+resource]++
		}
	}
	s.c.ClearActions()
	return counts
}

// A pod that fits costs its binding and one event.
func TestRequestsForAPod(t *testing.T) {
	const pods = 10
	simulate(t, func(*simulation) {}, func(s *simulation) {
		s.requests()
		for i := range pods {
			s.add(pod(fmt.Sprint("p", i), requests("100m", "1Mi")))
		}
		advance(time.Minute)
		if got, want := s.requests(), map[string]int{"create pods/binding": pods, "create events": pods}; !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}, node("a"))
}

// A preemptor costs one write of its status, one binding and the events that it
// did not fit and that it was bound; a victim costs its condition, its deletion
// and an event.
func TestRequestsForAPreemption(t *testing.T) {
	const preemptors = 4
	var objects []runtime.Object
	for i := range preemptors {
		name := fmt.Sprint("n", i)
		objects = append(objects, node(name), one(name+"-a", name, 1), one(name+"-b", name, 1))
	}
	simulate(t, func(*simulation) {}, func(s *simulation) {
		s.requests()
		for i := range preemptors {
			s.add(preemptor(fmt.Sprint("p", i), "2", 10))
		}
		advance(time.Minute)
		want := map[string]int{
			"patch pods/status": preemptors + 2*preemptors, "delete pods": 2 * preemptors, "create pods/binding": preemptors,
			"create events": 2*preemptors + 2*preemptors,
		}
		if got := s.requests(); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}, objects...)
}

// Pods that wait for more room than a pod leaves are not tried when it goes, and
// nothing is written. They are once there is enough.
func TestAnEventThatDoesNotHelpWakesNobody(t *testing.T) {
	const waiting = 20
	simulate(t, func(*simulation) {}, func(s *simulation) {
		for i := range waiting {
			s.add(pod(fmt.Sprint("p", i), requests("1500m", "1Mi"), priority(0)))
		}
		advance(time.Minute)
		before := s.attempts()
		s.requests()
		s.remove("small")
		advance(time.Minute)
		if got := s.attempts() - before; got != 0 {
			t.Errorf("%d attempts after a small pod is gone", got)
		}
		if got := s.requests(); len(got) > 0 {
			t.Errorf("requests after a small pod is gone: %v", got)
		}
		s.remove("medium")
		advance(time.Minute)
		if got := len(s.podsOn("a")); got != 2 {
			t.Errorf("%d pods are on the node after a medium pod is gone, want 2", got)
		}
		s.check()
	}, node("a"), running(pod("small", requests("100m", "1Mi"), priority(0)), "a"), running(pod("medium", requests("1500m", "1Mi"), priority(0)), "a"),
		running(pod("stays", requests("400m", "1Mi"), priority(0)), "a"))
}

// A pod that leaves one node may let a pod preempt others on another node: the
// anti-affinity to a zone is lifted.
func TestAPodThatLeavesAllowsAPreemption(t *testing.T) {
	web := term("app", "web")
	web.TopologyKey = v1.LabelTopologyZone
	simulate(t, func(*simulation) {}, func(s *simulation) {
		p := preemptor("p", "2", 10)
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{web}}}
		s.add(p)
		advance(time.Minute)
		if len(s.deleted()) > 0 {
			t.Errorf("preempted %v for nothing", s.deleted())
		}
		s.remove("web")
		advance(2 * time.Minute)
		if got := s.get("p").Spec.NodeName; got != "x" {
			t.Errorf("the pod is on %q, want x", got)
		}
		s.check()
	}, node("x", zone("a")), node("y", zone("a")), running(pod("low", requests("2", "1Gi"), priority(1)), "x"),
		one("web", "y", 100, labeled("app", "web")), one("other", "y", 100))
}

// podsOn returns the names of the pods on a node.
func (s *simulation) podsOn(node string) (names []string) {
	s.t.Helper()
	for _, p := range s.checkRoom() {
		if p.Spec.NodeName == node {
			names = append(names, p.Name)
		}
	}
	return names
}
