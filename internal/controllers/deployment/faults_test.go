package deployment_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/controllers/deployment"
	"github.com/coracle-io/coracle/internal/controllers/replicaset"
)

// faults is a cluster whose watch events come late and whose writes fail at random.
type faults struct {
	*controllertest.Cluster
	*controllertest.Faults
	t *testing.T
	// largest is the number of pods that may exist at most.
	largest int
}

// newsTime is the time until a pod that becomes ready counts. The controllers learn it late: a pod's
// event reaches the ReplicaSet controller, whose status reaches the Deployment controller, whose
// decision reaches the ReplicaSet controller. Meanwhile they may delete the pod as one that is not ready.
const newsTime = 4 * controllertest.MaxDelay

// byControllers reports whether a write is one of the controllers.
func byControllers(action clienttesting.Action) bool {
	return action.GetVerb() != "update" || action.GetResource().Resource == "replicasets" || action.GetSubresource() != "" && action.GetResource().Resource == "deployments"
}

// pods returns the number of pods and of those that are ready, without one of them, and whether that
// one is known to be ready.
func (f *faults) pods(without string) (all, ready int, wasReady bool) {
	o, err := f.Fake.Tracker().List(v1.SchemeGroupVersion.WithResource("pods"), v1.SchemeGroupVersion.WithKind("Pod"), "default")
	if err != nil {
		f.t.Error(err)
		return 0, 0, false
	}
	for _, p := range o.(*v1.PodList).Items {
		isReady := len(p.Status.Conditions) > 0
		if p.Name == without {
			wasReady = isReady && time.Since(p.Status.Conditions[0].LastTransitionTime.Time) > newsTime
			continue
		}
		all++
		if isReady {
			ready++
		}
	}
	return all, ready, wasReady
}

func (f *faults) deployment() *apps.Deployment {
	o, err := f.Fake.Tracker().Get(apps.SchemeGroupVersion.WithResource("deployments"), "default", "web")
	if err != nil {
		f.t.Fatal(err)
	}
	return o.(*apps.Deployment)
}

// check reports pods above and below the limits.
func (f *faults) check(action clienttesting.Action) (bool, runtime.Object, error) {
	if d, ok := action.(clienttesting.DeleteAction); ok {
		spec := f.deployment().Spec
		least := int(*spec.Replicas) - spec.Strategy.RollingUpdate.MaxUnavailable.IntValue()
		if _, ready, wasReady := f.pods(d.GetName()); wasReady && ready < least {
			f.t.Errorf("deleting pod %s leaves %d ready pods, want at least %d", d.GetName(), ready, least)
		}
	} else if all, _, _ := f.pods(""); all+1 > f.largest {
		f.t.Errorf("%d pods, want at most %d", all+1, f.largest)
	}
	return false, nil, nil
}

// kubelet makes pods ready some time after they were created, except pods with the image
// "bad".
func (f *faults) kubelet() {
	for _, p := range f.Pods("default") {
		if len(p.Status.Conditions) == 0 && p.Spec.Containers[0].Image != "bad" && f.Below(3) == 0 {
			f.SetReady("default", p.Name, time.Now())
		}
	}
}

func (f *faults) change(change func(d *apps.Deployment)) {
	d := f.deployment().DeepCopy()
	change(d)
	d.ResourceVersion = ""
	if _, err := f.Fake.AppsV1().Deployments("default").Update(f.t.Context(), d, metav1.UpdateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// A Deployment that is rolled out and scaled down while events come late and writes fail has never
// fewer ready pods and never more pods than its limits allow, and gets there in the end.
func TestLimitsUnderFaults(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 0))
				d := web("v0", apps.RollingUpdateDeploymentStrategyType)
				replicas, surge, unavailable := 5+random.IntN(15), random.IntN(4), random.IntN(4)
				if surge == 0 && unavailable == 0 {
					surge = 1
				}
				d.Spec.Replicas = new(int32(replicas))
				d.Spec.Strategy.RollingUpdate.MaxSurge = new(intstr.FromInt(surge))
				d.Spec.Strategy.RollingUpdate.MaxUnavailable = new(intstr.FromInt(unavailable))
				f := &faults{Cluster: controllertest.New(t, d), t: t, largest: replicas + surge}
				f.Fake.PrependReactor("create", "pods", f.check)
				f.Fake.PrependReactor("delete", "pods", f.check)
				f.Faults = f.Fault(seed, byControllers)
				f.Run(replicaset.Descriptor())
				synctest.Wait()
				f.Run(deployment.Descriptor())
				for step := range 400 {
					time.Sleep(300 * time.Millisecond)
					synctest.Wait()
					f.kubelet()
					switch {
					case step >= 300:
						if step == 300 {
							f.change(func(d *apps.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "last" })
						}
					case f.Below(30) == 0:
						f.change(func(d *apps.Deployment) {
							d.Spec.Template.Spec.Containers[0].Image = []string{"v0", "v1", "v2", "bad"}[f.Below(4)]
						})
					case f.Below(60) == 0:
						f.change(func(d *apps.Deployment) { d.Spec.Replicas = new(max(2, *d.Spec.Replicas-int32(f.Below(8)))) })
					}
				}
				for range 200 {
					time.Sleep(3 * time.Second)
					synctest.Wait()
					f.kubelet()
				}
				want := int(*f.deployment().Spec.Replicas)
				if all, ready, _ := f.pods(""); all != want || ready != want {
					t.Errorf("in the end %d pods, %d ready, want %d", all, ready, want)
				}
				for _, p := range f.Pods("default") {
					if image := p.Spec.Containers[0].Image; image != "last" {
						t.Errorf("in the end pod %s has image %s", p.Name, image)
					}
				}
			})
		})
	}
}
