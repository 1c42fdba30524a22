package scheduler

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/queue"
)

// A panic in a binding cycle fails the attempt like an error: the pod says why,
// and is tried again.
func TestPanicInABindingCycle(t *testing.T) {
	simulate(t, func(*simulation) {}, func(s *simulation) {
		panicked := false
		s.c.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetSubresource() == "binding" && !panicked {
				panicked = true
				panic("out of order")
			}
			return false, nil, nil
		})
		s.add(pod("p", requests("1", "1Gi")))
		advance(500 * time.Millisecond)
		p := s.get("p")
		c := podquery.Condition(&p.Status, v1.PodScheduled)
		if c == nil || c.Reason != v1.PodReasonSchedulerError || c.Message != "panic: out of order" || s.scheduler.cache.HasPod("p") {
			t.Errorf("condition %+v, still assumed: %t", c, s.scheduler.cache.HasPod("p"))
		}
		advance(time.Minute)
		if s.get("p").Spec.NodeName != "a" {
			t.Error("the pod was not tried again")
		}
	}, node("a"))
}

// A plugin that panics after the binding does not have the pod tried again.
func TestPanicAfterABinding(t *testing.T) {
	simulate(t, func(*simulation) {}, func(s *simulation) {
		info := framework.NewPodInfo(pod("p"))
		if err := s.scheduler.cache.Assume(info, "a"); err != nil {
			t.Fatal(err)
		}
		a := &attempt{pod: &queue.QueuedPodInfo{PodInfo: info}, profile: s.scheduler.profiles[DefaultName], node: "a", bound: true}
		s.scheduler.runAsync(t.Context(), a, func() { panic("out of order") })
		advance(time.Second)
		if !s.scheduler.cache.HasPod("p") {
			t.Error("a bound pod was forgotten")
		}
	}, node("a"))
}
