package scheduler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
)

// A pod that was bound and deleted while the watch of assigned pods was
// interrupted gives its room, and its place in its group, to others.
func TestAssumedPodIsGone(t *testing.T) {
	inGroup := func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("g")} }
	simulate(t, func(s *simulation) {
		s.lost = func(p *v1.Pod) bool { return p.Name == "lost" }
	}, func(s *simulation) {
		s.add(pod("lost", requests("2", "1Gi"), inGroup))
		advance(time.Second)
		if s.get("lost").Spec.NodeName != "a" {
			t.Fatal("the pod was not bound")
		}
		s.remove("lost")
		s.add(pod("next", requests("2", "1Gi")))
		advance(2 * time.Minute)
		if got := s.get("next").Spec.NodeName; got != "a" {
			t.Errorf("the next pod is on node %q", got)
		}
		if n := s.scheduler.groups.Count(types.NamespacedName{Namespace: "default", Name: "g"}); n != 0 {
			t.Errorf("the group has %d pods", n)
		}
	}, node("a"))
}

// Pods that the API server does not answer for do not keep the scheduler from
// learning that another is gone.
func TestAssumedPodIsGoneBesideFailures(t *testing.T) {
	simulate(t, func(s *simulation) {
		s.lost = func(*v1.Pod) bool { return true }
		s.c.PrependReactor("get", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			failing := a.(clienttesting.GetAction).GetName() != "lost"
			return failing, nil, apierrors.NewInternalError(errors.New("injected"))
		})
	}, func(s *simulation) {
		for i := range 8 {
			s.add(pod(fmt.Sprint("stuck-", i), requests("100m", "1Mi")))
		}
		s.add(pod("lost", requests("1", "1Gi")))
		advance(time.Second)
		s.remove("lost")
		advance(2 * time.Minute)
		if s.scheduler.cache.HasPod("lost") || !s.scheduler.cache.HasPod("stuck-0") {
			t.Errorf("assumed: the pod that is gone %t, one that may be there %t", s.scheduler.cache.HasPod("lost"), s.scheduler.cache.HasPod("stuck-0"))
		}
	}, node("a"))
}

// A pod that exists is not forgotten, however long the watch is interrupted.
func TestAssumedPodIsThere(t *testing.T) {
	simulate(t, func(s *simulation) {
		s.lost = func(p *v1.Pod) bool { return p.Name == "late" }
	}, func(s *simulation) {
		s.add(pod("late", requests("2", "1Gi")))
		advance(time.Second)
		s.add(pod("next", requests("2", "1Gi")))
		advance(30 * time.Minute)
		if got := s.get("next").Spec.NodeName; got != "" {
			t.Errorf("the next pod is on node %q, which is full", got)
		}
	}, node("a"))
}

// A pod whose binding was answered as done and was not, as a faulty extender may
// do, is tried again.
func TestAssumedPodIsNotBound(t *testing.T) {
	calls := 0
	simulate(t, func(s *simulation) {
		s.onBind = func(*v1.Pod, string) (bool, error) {
			calls++
			return calls > 1, nil
		}
	}, func(s *simulation) {
		s.add(pod("p", requests("2", "1Gi")))
		advance(time.Second)
		if s.get("p").Spec.NodeName != "" || s.scheduler.queue.Has("p") {
			t.Fatal("the pod waits or is bound already")
		}
		advance(2 * time.Minute)
		if got := s.get("p").Spec.NodeName; got != "a" {
			t.Errorf("on node %q", got)
		}
		if _, _, assumed := s.scheduler.cache.Size(); assumed != 0 || calls != 2 {
			t.Errorf("%d pods are assumed after %d bindings", assumed, calls)
		}
	}, node("a"))
}
