package scheduler

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/scheduler/config"
)

// A binding that fails with the codes of a pod that is gone or bound already,
// as an admission webhook may answer, does not lose the pod.
func TestRefusedBindingIsRetried(t *testing.T) {
	for name, answer := range map[string]error{
		"conflict": apierrors.NewConflict(podsResource.GroupResource(), "p", errors.New("webhook")),
		"notfound": apierrors.NewNotFound(podsResource.GroupResource(), "other"),
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			var sim *simulation
			simulate(t, func(s *simulation) { sim = s }, func(s *simulation) {
				sim.c.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
					if a.GetSubresource() != "binding" {
						return false, nil, nil
					}
					if calls++; calls == 1 {
						return true, nil, answer
					}
					return false, nil, nil
				})
				s.add(pod("p", requests("1", "1Gi")))
				advance(30 * time.Minute)
				if s.get("p").Spec.NodeName == "" {
					t.Errorf("no node after 30 minutes; %d bindings tried; conditions %v, in queue %v", calls, s.get("p").Status.Conditions, s.scheduler.queue.Has("p"))
				}
			}, node("a"))
		})
	}
}

// A search for devices that takes too long says nothing about the node: the pod is
// tried again after a back-off, without an event.
func TestSearchForDevicesIsRepeated(t *testing.T) {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Namespace: "default", UID: "gpu"}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "any", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
	}}}
	devices := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: new("a"), Pool: resourcev1.ResourcePool{Name: "a", Generation: 1, ResourceSliceCount: 1},
		Devices: []resourcev1.Device{{Name: "gpu-0"}},
	}}
	simulate(t, func(s *simulation) {
		limits := &kubescheduler.DynamicResourcesArgs{FilterTimeout: &metav1.Duration{Duration: 1}, BindingTimeout: &metav1.Duration{Duration: time.Minute}}
		s.config = config.Configuration{Profiles: []config.Profile{{
			SchedulerName: DefaultName, PluginConfig: []config.PluginConfig{{Name: "DynamicResources", Args: limits}},
		}}}
	}, func(s *simulation) {
		s.add(pod("p", func(p *v1.Pod) {
			p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}
		}))
		advance(time.Minute)
		c := podquery.Condition(&s.get("p").Status, v1.PodScheduled)
		if c == nil || c.Reason != v1.PodReasonSchedulerError || c.Message != "node a: timed out trying to allocate devices" {
			t.Errorf("condition %+v", c)
		}
		if n := testutil.ToFloat64(s.scheduler.metrics.attempts.WithLabelValues(failed, DefaultName)); n < 5 {
			t.Errorf("%v attempts in a minute", n)
		}
	}, node("a"), claim, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "any"}}, devices)
}

// A nomination that the API server refused for a conflict with other writers is
// written by a later attempt.
func TestNominationAfterConflict(t *testing.T) {
	refused := 0
	simulate(t, func(s *simulation) {
		s.grace = time.Hour
		s.onPatch = func(string) error {
			if refused++; refused > 1 {
				return nil
			}
			return apierrors.NewConflict(podsResource.GroupResource(), "big", errors.New("the object has been modified"))
		}
	}, func(s *simulation) {
		s.add(preemptor("big", "2", 10)) // its victim lingers
		advance(30 * time.Minute)
		if got := s.get("big").Status.NominatedNodeName; got != "a" || refused < 2 {
			t.Errorf("nominated %q after %d patches", got, refused)
		}
	}, node("a"), one("low", "a", 1))
}

// A nomination that ends gives its room to others at once.
func TestEndedNominationWakesOthers(t *testing.T) {
	simulate(t, func(s *simulation) { s.grace = 40 * time.Minute }, func(s *simulation) {
		s.add(preemptor("big", "2", 10)) // victim lingers
		advance(5 * time.Second)
		if got := s.get("big").Status.NominatedNodeName; got != "a" {
			t.Fatalf("nominated %q", got)
		}
		s.add(preemptor("small", "1", 5))
		advance(15 * time.Second)
		if s.get("small").Spec.NodeName != "" {
			t.Fatal("small has a node already")
		}
		b := s.get("big")
		b.Status.NominatedNodeName = ""
		b.Spec.NodeSelector = nil
		s.update(b)
		began := time.Now()
		for s.get("small").Spec.NodeName == "" && time.Since(began) < 20*time.Minute {
			advance(time.Second)
		}
		if waited := time.Since(began); waited > 15*time.Second {
			t.Errorf("the other pod waited %v for the room", waited)
		}
	}, node("a"), one("low", "a", 1))
}
