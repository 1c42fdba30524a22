package scheduler

import (
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes"
	clienttesting "k8s.io/client-go/testing"
)

// coreOnly is a client of an API server that serves only the core group.
type coreOnly struct{ kubernetes.Interface }

func (coreOnly) Discovery() discovery.DiscoveryInterfaces {
	core := &metav1.APIResourceList{GroupVersion: "v1"}
	for _, name := range []string{"pods", "nodes", "namespaces", "services", "replicationcontrollers", "persistentvolumes", "persistentvolumeclaims"} {
		core.APIResources = append(core.APIResources, metav1.APIResource{Name: name})
	}
	return &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{core}}}
}

var claimsResource = resourcev1.SchemeGroupVersion.WithResource("resourceclaims")

// allocated is a claim without devices that is reserved for a pod.
func allocated(name, pod string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Status: resourcev1.ResourceClaimStatus{
			Allocation:  &resourcev1.AllocationResult{},
			ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod, UID: types.UID(pod)}},
		},
	}
}

// The scheduler does not wait for groups that are not served: it schedules the
// pods that do not need them, and the others once they are served.
func TestGroupsThatAreNotServed(t *testing.T) {
	var served atomic.Bool
	simulate(t, func(s *simulation) {
		s.kube = coreOnly{s.c}
		missing := func(a clienttesting.Action) error {
			if served.Load() || a.GetResource().Group == "" {
				return nil
			}
			return apierrors.NewNotFound(a.GetResource().GroupResource(), "")
		}
		s.c.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			err := missing(a)
			return err != nil, nil, err
		})
		s.c.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
			err := missing(a)
			return err != nil, nil, err
		})
	}, func(s *simulation) {
		s.add(pod("p", requests("1", "1Gi")))
		s.add(pod("claims", func(p *v1.Pod) {
			p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}
		}))
		advance(time.Minute)
		if got := s.get("p").Spec.NodeName; got != "a" {
			t.Errorf("the pod is on node %q", got)
		}
		if got := s.get("claims").Spec.NodeName; got != "" {
			t.Errorf("the pod whose claim is unknown is on node %q", got)
		}
		if err := s.objects.Create(claimsResource, allocated("gpu", "claims"), "default"); err != nil {
			t.Fatal(err)
		}
		served.Store(true) // now that every list has the claim
		advance(10 * time.Minute)
		if got := s.get("claims").Spec.NodeName; got != "a" {
			t.Errorf("the pod with a claim is on node %q", got)
		}
	}, node("a"))
}
