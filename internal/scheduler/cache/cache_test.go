package cache

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

func pod(node string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}, Spec: v1.PodSpec{NodeName: node}}
}

// TestPodLife walks through what can happen to a pod, with an update of the
// snapshot after each step and with one at the end.
func TestPodLife(t *testing.T) {
	assume := func(c *Cache) { _ = c.Assume(framework.NewPodInfo(pod("")), "a") }
	confirm := func(c *Cache) { c.SetPod(pod("a")) }
	elsewhere := func(c *Cache) { c.SetPod(pod("b")) }
	forget := func(c *Cache) { c.Forget("p") }
	gone := func(c *Cache) { c.DeletePod("p") }
	finish := func(c *Cache) {
		p := pod("a")
		p.Status.Phase = v1.PodSucceeded
		c.SetPod(p)
	}
	for _, test := range []struct {
		name    string
		steps   []func(*Cache)
		on      string // the node where it counts; "" is none
		assumed int
	}{
		{"assumed", []func(*Cache){assume}, "a", 1},
		{"confirmed", []func(*Cache){assume, confirm}, "a", 0},
		{"bound elsewhere", []func(*Cache){assume, elsewhere}, "b", 0},
		{"failed binding", []func(*Cache){assume, forget}, "", 0},
		{"failure reported after it was seen bound", []func(*Cache){assume, confirm, forget}, "a", 0},
		{"retried", []func(*Cache){assume, forget, assume}, "a", 1},
		{"deleted while assumed", []func(*Cache){assume, gone, forget}, "", 0},
		{"finished", []func(*Cache){confirm, finish}, "", 0},
		{"not assumed twice", []func(*Cache){elsewhere, assume}, "b", 0},
	} {
		for _, each := range []bool{true, false} {
			c := New()
			c.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
			c.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
			for _, step := range test.steps {
				if step(c); each {
					c.UpdateSnapshot()
				}
			}
			on, s := "", c.UpdateSnapshot()
			for _, n := range s.Nodes() {
				if len(n.Pods) > 0 {
					on += n.Name
				}
			}
			if _, pods, assumed := c.Size(); on != test.on || assumed != test.assumed || c.HasPod("p") != (test.on != "") || pods != len(test.on) {
				t.Errorf("%s (updated each step: %t): on %q with %d pods, %d assumed; want on %q, %d assumed", test.name, each, on, pods, assumed, test.on, test.assumed)
			}
		}
	}
}

// The requests of pods on a node count from their binding on, and their
// priorities from when they are assumed.
func TestRequestedOn(t *testing.T) {
	of := func(name, node string, cpu string, priority int32) *v1.Pod {
		p := pod(node)
		p.Name, p.UID, p.Spec.Priority = name, types.UID(name), &priority
		p.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}}}
		return p
	}
	c := New()
	want := func(when string, cpu, pods int64, lowest int32) {
		t.Helper()
		if got := c.RequestedOn("a"); got.CPU != cpu || got.Pods != pods {
			t.Errorf("%s: %dm CPU of %d pods, want %dm of %d", when, got.CPU, got.Pods, cpu, pods)
		}
		if c.HasBelow(lowest) || !c.HasBelow(lowest+1) {
			t.Errorf("%s: the lowest priority is not %d", when, lowest)
		}
	}
	c.SetPod(of("low", "a", "1", 5))
	c.SetPod(of("high", "a", "2", 10))
	c.SetPod(of("other", "b", "4", 20))
	want("bound pods", 3000, 2, 5)
	if err := c.Assume(framework.NewPodInfo(of("assumed", "", "8", 0)), "a"); err != nil {
		t.Fatal(err)
	}
	want("an assumed pod does not count", 3000, 2, 0)
	c.SetPod(of("assumed", "a", "8", 0))
	want("once it is bound it does", 11000, 3, 0)
	smaller := of("low", "a", "500m", 5)
	smaller.Generation++
	c.SetPod(smaller)
	want("a pod that shrinks", 10500, 3, 0)
	c.UpdateSnapshot()
	c.DeletePod("assumed")
	c.DeletePod("low")
	want("pods that are gone", 2000, 1, 10)
	c.DeletePod("high")
	want("nobody is left", 0, 0, 20)
}
