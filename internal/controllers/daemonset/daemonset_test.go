package daemonset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

func setOf() *apps.DaemonSet {
	labels := map[string]string{"app": "agent"}
	one := intstr.FromInt32(1)
	return &apps.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", Generation: 1},
		Spec: apps.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       v1.PodSpec{NodeSelector: map[string]string{"disk": "fast"}},
			},
			UpdateStrategy: apps.DaemonSetUpdateStrategy{
				Type: apps.RollingUpdateDaemonSetStrategyType, RollingUpdate: &apps.RollingUpdateDaemonSet{MaxUnavailable: &one},
			},
		},
	}
}

func nodeOfDisk(name, disk string, taints ...v1.Taint) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"disk": disk}}, Spec: v1.NodeSpec{Taints: taints}}
}

func TestNodeShouldRun(t *testing.T) {
	for _, c := range []struct {
		name      string
		node      *v1.Node
		run, stay bool
	}{
		{"matches", nodeOfDisk("n", "fast"), true, true},
		{"does not match", nodeOfDisk("n", "slow"), false, false},
		{"cordoned", nodeOfDisk("n", "fast", v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}), true, true},
		{"unreachable", nodeOfDisk("n", "fast", v1.Taint{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute}), true, true},
		{"NoSchedule taint", nodeOfDisk("n", "fast", v1.Taint{Key: "x", Effect: v1.TaintEffectNoSchedule}), false, true},
		{"NoExecute taint", nodeOfDisk("n", "fast", v1.Taint{Key: "x", Effect: v1.TaintEffectNoExecute}), false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if run, stay := nodeShouldRun(setOf(), c.node); run != c.run || stay != c.stay {
				t.Errorf("run %v, stay %v", run, stay)
			}
		})
	}
}

// placement returns the node of each pod, and its image if it has one.
func placement(c *controllertest.Cluster) string {
	var out []string
	for _, p := range c.Pods("default") {
		image := ""
		if len(p.Spec.Containers) > 0 {
			image = "=" + p.Spec.Containers[0].Image
		}
		out = append(out, nodeOf(&p)+image)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestOnePodPerNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, setOf(), nodeOfDisk("a", "fast"), nodeOfDisk("b", "fast"), nodeOfDisk("c", "slow"))
		c.Run(Descriptor())
		where := func() string { return placement(c) }
		controllertest.Eventually(t, where, "a b")
		if _, err := c.Fake.CoreV1().Nodes().Create(t.Context(), nodeOfDisk("d", "fast"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, where, "a b d")
		for _, p := range c.Pods("default") {
			c.SetReady("default", p.Name, time.Now())
		}
		status := func() string {
			set, err := c.Fake.AppsV1().DaemonSets("default").Get(t.Context(), "agent", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			st := set.Status
			return fmt.Sprintf("desired %d current %d ready %d updated %d available %d", st.DesiredNumberScheduled, st.CurrentNumberScheduled, st.NumberReady, st.UpdatedNumberScheduled, st.NumberAvailable)
		}
		controllertest.Eventually(t, status, "desired 3 current 3 ready 3 updated 3 available 3")

		set, _ := c.Fake.AppsV1().DaemonSets("default").Get(t.Context(), "agent", metav1.GetOptions{})
		set.Spec.Template.Spec.Containers = []v1.Container{{Name: "c", Image: "two"}}
		if _, err := c.Fake.AppsV1().DaemonSets("default").Update(t.Context(), set, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			var fresh string
			controllertest.Eventually(t, func() bool {
				for _, p := range c.Pods("default") {
					if len(p.Spec.Containers) > 0 && p.Status.Phase == "" {
						fresh = p.Name
						return true
					}
				}
				return false
			}, true)
			if n := len(c.Pods("default")); n != 3 {
				t.Errorf("%d pods in the middle of an update", n)
			}
			c.SetReady("default", fresh, time.Now())
		}
		controllertest.Eventually(t, where, "a=two b=two d=two")
		revisions, err := c.Fake.AppsV1().ControllerRevisions("default").List(t.Context(), metav1.ListOptions{LabelSelector: apps.DefaultDaemonSetUniqueLabelKey})
		if err != nil || len(revisions.Items) != 2 {
			t.Errorf("revisions with the hash label: %v, %v", revisions, err)
		}
		controllertest.Eventually(t, status, "desired 3 current 3 ready 3 updated 3 available 3")
	})
}

// With the strategy OnDelete, a node gets a pod of the changed template when somebody deletes
// its former one, and not before.
func TestOnDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		former := setOf()
		former.Spec.UpdateStrategy = apps.DaemonSetUpdateStrategy{Type: apps.OnDeleteDaemonSetStrategyType}
		c := controllertest.New(t, former, nodeOfDisk("a", "fast"), nodeOfDisk("b", "fast"))
		c.Run(Descriptor())
		sets := c.Fake.AppsV1().DaemonSets("default")
		controllertest.Eventually(t, func() string { return placement(c) }, "a b")
		set, err := sets.Get(t.Context(), "agent", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		set.Spec.Template.Spec.Containers = []v1.Container{{Name: "c", Image: "two"}}
		if _, err := sets.Update(t.Context(), set, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := placement(c); got != "a b" {
			t.Errorf("after a change of the template: %s", got)
		}
		for _, p := range c.Pods("default") {
			if nodeOf(&p) != "b" {
				continue
			}
			if err := c.Fake.CoreV1().Pods("default").Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		controllertest.Eventually(t, func() string { return placement(c) }, "a b=two")
	})
}

// A revision that somebody deletes, or takes from its set, is there again at once: pods of
// the set have its hash.
func TestRevisionIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, setOf(), nodeOfDisk("a", "fast"))
		c.Run(Descriptor())
		revisions := c.Fake.AppsV1().ControllerRevisions("default")
		owned := func() (names []string) {
			list, err := revisions.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				if metav1.GetControllerOfNoCopy(&list.Items[i]) != nil {
					names = append(names, list.Items[i].Name)
				}
			}
			return names
		}
		controllertest.Eventually(t, func() int { return len(c.Pods("default")) }, 1)
		synctest.Wait()
		before, pod := owned(), c.Pods("default")[0].Name
		if len(before) != 1 {
			t.Fatalf("revisions %q, want one", before)
		}
		if err := revisions.Delete(t.Context(), before[0], metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, owned, before)
		synctest.Wait()
		taken, err := revisions.Get(t.Context(), before[0], metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		taken.OwnerReferences = nil
		if _, err := revisions.Update(t.Context(), taken, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, owned, before)
		synctest.Wait()
		if all := c.Pods("default"); len(all) != 1 || all[0].Name != pod {
			t.Errorf("the pods are %v, want %s alone", all, pod)
		}
	})
}
