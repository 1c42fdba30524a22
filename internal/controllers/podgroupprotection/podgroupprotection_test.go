package podgroupprotection

import (
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func pod(name, group string, phase v1.PodPhase) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Status: v1.PodStatus{Phase: phase}}
	if group != "" {
		p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
	}
	return p
}

func group(going bool, finalizers ...string) *schedulingapi.PodGroup {
	g := &schedulingapi.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "g", Finalizers: finalizers}}
	if going {
		g.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	}
	return g
}

func TestProtect(t *testing.T) {
	for _, test := range []struct {
		name    string
		objects []runtime.Object
		change  func(*controllertest.Cluster) error
		want    bool // the group has the finalizer
	}{
		{"without pods", []runtime.Object{group(false)}, nil, false},
		{"with a pod", []runtime.Object{group(false), pod("p", "g", v1.PodRunning)}, nil, true},
		{"with a pod of another group", []runtime.Object{group(false), pod("p", "other", v1.PodRunning), pod("q", "", v1.PodRunning)}, nil, false},
		{"with a pod that has ended", []runtime.Object{group(false), pod("p", "g", v1.PodSucceeded)}, nil, false},
		{"a pod comes", []runtime.Object{group(false)}, func(c *controllertest.Cluster) error {
			_, err := c.Fake.CoreV1().Pods("default").Create(t.Context(), pod("p", "g", v1.PodPending), metav1.CreateOptions{})
			return err
		}, true},
		{"deleted with a pod", []runtime.Object{group(true, "other", finalizer), pod("p", "g", v1.PodRunning)}, nil, true},
		{"deleted without pods", []runtime.Object{group(true, "other", finalizer)}, nil, false},
		{"the last pod is deleted", []runtime.Object{group(true, "other", finalizer), pod("p", "g", v1.PodRunning)}, func(c *controllertest.Cluster) error {
			return c.Fake.CoreV1().Pods("default").Delete(t.Context(), "p", metav1.DeleteOptions{})
		}, false},
		{"the last pod ends", []runtime.Object{group(true, "other", finalizer), pod("p", "g", v1.PodRunning)}, func(c *controllertest.Cluster) error {
			_, err := c.Fake.CoreV1().Pods("default").UpdateStatus(t.Context(), pod("p", "g", v1.PodFailed), metav1.UpdateOptions{})
			return err
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := controllertest.New(t, test.objects...)
				c.Fake.Resources = []*metav1.APIResourceList{{GroupVersion: "scheduling.k8s.io/v1beta1", APIResources: []metav1.APIResource{{Name: "podgroups"}}}}
				c.Run(Descriptor())
				synctest.Wait()
				if test.change != nil {
					if err := test.change(c); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				g, err := c.Fake.SchedulingV1beta1().PodGroups("default").Get(t.Context(), "g", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if got := slices.Contains(g.Finalizers, finalizer); got != test.want {
					t.Errorf("the finalizers are %q", g.Finalizers)
				}
			})
		})
	}
}

// Where there are no PodGroups the controller waits.
func TestNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, group(false), pod("p", "g", v1.PodRunning))
		c.Run(Descriptor())
		synctest.Wait()
		if g, err := c.Fake.SchedulingV1beta1().PodGroups("default").Get(t.Context(), "g", metav1.GetOptions{}); err != nil || len(g.Finalizers) > 0 {
			t.Errorf("%v, %v", g.Finalizers, err)
		}
	})
}
