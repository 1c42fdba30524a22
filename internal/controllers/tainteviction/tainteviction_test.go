package tainteviction

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/podquery"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

const forever = math.MaxInt64

// noExec returns a NoExecute taint that was added now.
func noExec(key string) v1.Taint {
	return v1.Taint{Key: key, Value: "v", Effect: v1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: time.Now()}}
}

// tolerate returns a toleration of a NoExecute taint for some seconds, or forever.
func tolerate(key string, seconds int64) v1.Toleration {
	t := v1.Toleration{Key: key, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: &seconds}
	if seconds == forever {
		t.TolerationSeconds = nil
	}
	return t
}

func node(name string, taints ...v1.Taint) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{Taints: taints}}
}

// pod returns a pod that was bound to node n now.
func pod(name string, tolerations ...v1.Toleration) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       v1.PodSpec{NodeName: "n", Tolerations: tolerations},
		Status:     v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()}}},
	}
}

// cluster is a fake cluster with a running controller.
type cluster struct {
	*controllertest.Cluster
	t *testing.T
}

func start(t *testing.T, objects ...runtime.Object) *cluster {
	t.Helper()
	c := &cluster{controllertest.New(t, objects...), t}
	c.Run(Descriptor())
	synctest.Wait()
	return c
}

func (c *cluster) taint(taints ...v1.Taint) {
	c.t.Helper()
	n, err := c.Fake.CoreV1().Nodes().Get(c.t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	n.Spec.Taints = taints
	if _, err := c.Fake.CoreV1().Nodes().Update(c.t.Context(), n, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

func (c *cluster) change(name string, change func(*v1.Pod)) {
	c.t.Helper()
	p, err := c.Fake.CoreV1().Pods("default").Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	change(p)
	if _, err := c.Fake.CoreV1().Pods("default").Update(c.t.Context(), p, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

// pods returns the names of the existing pods.
func (c *cluster) pods() string {
	c.t.Helper()
	var names []string
	for _, p := range c.Pods("default") {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (c *cluster) want(what, want string) {
	c.t.Helper()
	if got := c.pods(); got != want {
		c.t.Errorf("%s: pods are %q, want %q", what, got, want)
	}
}

// after waits for d and then for the controller to become idle.
func after(d time.Duration) { time.Sleep(d); synctest.Wait() }

// TestEvictionTime adds taints to a node with a running pod.
func TestEvictionTime(t *testing.T) {
	const stays = -1
	equal := v1.Toleration{Key: "a", Operator: v1.TolerationOpEqual, Value: "v", Effect: v1.TaintEffectNoExecute}
	other := equal
	other.Value = "w"
	scheduling := v1.Taint{Key: "a", Effect: v1.TaintEffectNoSchedule}
	for _, test := range []struct {
		about       string
		taints      func() []v1.Taint
		tolerations []v1.Toleration
		want        time.Duration
	}{
		{"no toleration", taints("a"), nil, 0},
		{"another taint", taints("a"), []v1.Toleration{tolerate("b", forever)}, 0},
		{"another value", taints("a"), []v1.Toleration{other}, 0},
		{"the value", taints("a"), []v1.Toleration{equal}, stays},
		{"forever", taints("a"), []v1.Toleration{tolerate("a", forever)}, stays},
		{"all taints", taints("a", "b"), []v1.Toleration{{Operator: v1.TolerationOpExists}}, stays},
		{"some time", taints("a"), []v1.Toleration{tolerate("a", 300)}, 300 * time.Second},
		{"zero time", taints("a"), []v1.Toleration{tolerate("a", 0)}, 0},
		{"negative time", taints("a"), []v1.Toleration{tolerate("a", -5)}, 0},
		{"the longest time", taints("a"), []v1.Toleration{tolerate("a", forever-1)}, stays},
		{"the shortest of several", taints("a"), []v1.Toleration{tolerate("a", 60), tolerate("a", 300), tolerate("a", forever)}, time.Minute},
		{"several taints, one not tolerated", taints("a", "b"), []v1.Toleration{tolerate("a", 300)}, 0},
		{"several taints, one forever", taints("a", "b"), []v1.Toleration{tolerate("a", 300), tolerate("b", forever)}, 300 * time.Second},
		{"several taints, the shorter", taints("a", "b"), []v1.Toleration{tolerate("a", 300), tolerate("b", 60)}, time.Minute},
		{"taints of different ages", func() []v1.Taint {
			earlier := noExec("a")
			earlier.TimeAdded = &metav1.Time{Time: time.Now().Add(-250 * time.Second)}
			return []v1.Taint{earlier, noExec("b")}
		}, []v1.Toleration{tolerate("a", 300), tolerate("b", 60)}, 50 * time.Second},
		{"without timeAdded", func() []v1.Taint { return []v1.Taint{{Key: "a", Effect: v1.TaintEffectNoExecute}} }, []v1.Toleration{tolerate("a", 60)}, time.Minute},
		{"without timeAdded, tolerated for long", func() []v1.Taint { return []v1.Taint{{Key: "a", Effect: v1.TaintEffectNoExecute}} }, []v1.Toleration{tolerate("a", 1000)}, 1000 * time.Second},
		{"a NoSchedule taint", func() []v1.Taint { return []v1.Taint{scheduling} }, nil, stays},
	} {
		t.Run(test.about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := start(t, node("n"), node("m"), pod("p", test.tolerations...))
				after(10 * time.Minute) // longer than most of the tolerations
				c.want("without taints", "p")
				tainted := time.Now()
				c.taint(test.taints()...)
				if test.want > 0 {
					after(test.want - time.Second)
					c.want("a second before", "p")
					after(time.Second)
				}
				if test.want == stays {
					after(100 * time.Hour)
					c.want(time.Since(tainted).String(), "p")
					return
				}
				c.want(time.Since(tainted).String(), "")
			})
		})
	}
}

func taints(keys ...string) func() []v1.Taint {
	return func() (taints []v1.Taint) {
		for _, key := range keys {
			taints = append(taints, noExec(key))
		}
		return taints
	}
}

// The condition DisruptionTarget is set before the pod is deleted.
func TestEvictionSetsDisruptionTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, node("n"), pod("p"))
		registry := prometheus.NewRegistry()
		c.Env.Metrics = registry
		var condition *v1.PodCondition
		var precondition *metav1.Preconditions
		c.Fake.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			o, err := c.Fake.Tracker().Get(a.GetResource(), "default", "p")
			if err != nil {
				return true, nil, err
			}
			condition = podquery.Condition(&o.(*v1.Pod).Status, v1.DisruptionTarget)
			precondition = a.(clienttesting.DeleteAction).GetDeleteOptions().Preconditions
			return false, nil, nil
		})
		uid := c.Pods("default")[0].UID
		c.Run(Descriptor())
		synctest.Wait()
		running := &cluster{c, t}
		running.taint(noExec("a"))
		running.want("tainted", "")
		if condition == nil || condition.Status != v1.ConditionTrue || condition.Reason != "DeletionByTaintManager" ||
			condition.Message != "Taint manager: deleting due to NoExecute taint" || !condition.LastTransitionTime.Time.Equal(time.Now()) {
			t.Errorf("condition %+v", condition)
		}
		if precondition == nil || precondition.UID == nil || *precondition.UID != uid {
			t.Errorf("precondition %v", precondition)
		}
		if got := fmt.Sprint(c.DrainEvents()); got != "[Normal TaintManagerEviction Marking for deletion Pod default/p]" {
			t.Errorf("events %s", got)
		}
		err := testutil.GatherAndCompare(registry, strings.NewReader(`# HELP taint_eviction_controller_pod_deletions_total [ALPHA] Total number of Pods deleted by TaintEvictionController since its start.
# TYPE taint_eviction_controller_pod_deletions_total counter
taint_eviction_controller_pod_deletions_total 1
`), "taint_eviction_controller_pod_deletions_total")
		if err != nil {
			t.Error(err)
		}
	})
}

// A pod that is a disruption target already keeps the time since when it is.
func TestEvictionOfADisruptionTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		since := metav1.NewTime(time.Now().Add(-time.Hour))
		p := pod("p")
		podquery.SetCondition(&p.Status, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "EvictionByEvictionAPI", LastTransitionTime: since})
		c := controllertest.New(t, node("n", noExec("a")), p)
		var condition *v1.PodCondition
		c.Fake.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			o, err := c.Fake.Tracker().Get(a.GetResource(), "default", "p")
			if err == nil {
				condition = podquery.Condition(&o.(*v1.Pod).Status, v1.DisruptionTarget)
			}
			return false, nil, err
		})
		c.Run(Descriptor())
		synctest.Wait()
		if condition == nil || condition.Reason != "DeletionByTaintManager" || !condition.LastTransitionTime.Equal(&since) {
			t.Errorf("condition %+v", condition)
		}
	})
}

// Removing the taint cancels the eviction. If it is added again, the time starts
// from the beginning.
func TestRemovedTaintCancelsEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("n"), pod("p", tolerate("a", 300), tolerate("b", 60)), pod("q", tolerate("a", forever), tolerate("b", forever)))
		c.taint(noExec("a"))
		after(299 * time.Second)
		c.taint()
		if got := fmt.Sprint(c.DrainEvents()); got != "[Normal TaintManagerEviction Cancelling deletion of Pod default/p]" {
			t.Errorf("events %s", got)
		}
		after(time.Hour)
		c.want("without the taint", "p q")

		c.taint(noExec("a"))
		after(299 * time.Second)
		c.want("tainted again", "p q")
		after(time.Second)
		c.want("tainted again for long enough", "q")
		if got := fmt.Sprint(c.DrainEvents()); got != "[Normal TaintManagerEviction Marking for deletion Pod default/p]" {
			t.Errorf("events %s", got)
		}
	})
}

// Removing one of two taints does not affect the time of the other.
func TestOneOfTwoTaintsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("n"), pod("p", tolerate("a", 300), tolerate("b", 60)))
		long := noExec("a")
		c.taint(long, noExec("b"))
		after(59 * time.Second)
		c.taint(long)
		after(240 * time.Second)
		c.want("a second before", "p")
		after(time.Second)
		c.want("in the end", "")
		if got := fmt.Sprint(c.DrainEvents()); got != "[Normal TaintManagerEviction Marking for deletion Pod default/p]" {
			t.Errorf("events %s", got)
		}
	})
}

// A second taint can only make the eviction earlier.
func TestFurtherTaint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("n"), pod("p", tolerate("a", 300), tolerate("b", 60), tolerate("c", 3600)))
		first := noExec("a")
		c.taint(first)
		after(10 * time.Second)
		second := noExec("b")
		c.taint(first, second, noExec("c"))
		after(59 * time.Second)
		c.want("a second before", "p")
		after(time.Second)
		c.want("in the end", "")
	})
}

// Tolerations may be added while an eviction is pending. The shortest applies.
func TestAddedTolerations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("n"), pod("saved", tolerate("a", 300)), pod("hastened", tolerate("a", 300)))
		c.taint(noExec("a"))
		after(30 * time.Second)
		c.change("saved", func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{tolerate("a", forever)} })
		c.change("hastened", func(p *v1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, tolerate("a", 60)) })
		after(29 * time.Second)
		c.want("after 59 s", "hastened saved")
		after(time.Second)
		c.want("after 60 s", "saved")
		after(time.Hour)
		c.want("an hour later", "saved")
	})
}

// For pods bound to a tainted node, the time starts with the binding. Unscheduled
// pods and pods on other nodes are not evicted.
func TestPodsBoundToTaintedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waiting, elsewhere := pod("waiting", tolerate("a", 60)), pod("elsewhere")
		waiting.Spec.NodeName, waiting.Status.Conditions = "", nil
		elsewhere.Spec.NodeName = "m"
		c := start(t, node("n", noExec("a")), node("m"), waiting, elsewhere)
		after(time.Hour)
		c.want("unscheduled", "elsewhere waiting")
		c.change("waiting", func(p *v1.Pod) {
			p.Spec.NodeName = "n"
		})
		c.want("bound, and made an hour ago", "elsewhere")

		late := pod("late", tolerate("a", 60))
		if _, err := c.Fake.CoreV1().Pods("default").Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		after(59 * time.Second)
		c.want("a second before", "elsewhere late")
		after(time.Second)
		c.want("in the end", "elsewhere")
	})
}

// A restarted controller uses the times in the objects.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tainted, late, soon := node("n", noExec("a")), pod("late", tolerate("a", 60)), pod("soon", tolerate("a", 100))
		leaving := pod("leaving")
		leaving.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		lost := pod("lost")
		lost.Spec.NodeName = "gone"
		time.Sleep(90 * time.Second)
		c := start(t, tainted, late, soon, leaving, lost)
		c.want("at first", "leaving lost soon")
		after(10 * time.Second)
		c.want("in the end", "leaving lost")
		after(time.Hour)
		c.want("an hour later", "leaving lost")
	})
}

// No event is recorded for pods that are deleted first, or whose node is deleted.
func TestPodOrNodeDeletedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("n"), pod("p", tolerate("a", 60)), pod("q", tolerate("a", 60)))
		c.taint(noExec("a"))
		if err := c.Fake.CoreV1().Pods("default").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Fake.CoreV1().Nodes().Delete(t.Context(), "n", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		after(time.Hour)
		c.want("an hour later", "q")
		if events := c.DrainEvents(); len(events) > 0 {
			t.Errorf("events %q", events)
		}
	})
}

// A pod is not evicted for a taint that the cache shows, but that the node does not have any more.
func TestStaleTaint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{controllertest.New(t, node("n", noExec("a")), pod("p"), pod("q", tolerate("a", 60))), t}
		untainted := true
		c.Fake.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return untainted, node("n"), nil
		})
		c.Run(Descriptor())
		after(10 * time.Minute)
		c.want("while the node has no taint", "p q")
		untainted = false // it gets the taint again
		after(time.Hour)
		c.want("with the taint", "")
	})
}
