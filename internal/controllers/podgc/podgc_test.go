package podgc

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/podquery"
)

func pod(name, node string, phase v1.PodPhase, age time.Duration) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-age))},
		Spec:       v1.PodSpec{NodeName: node},
		Status:     v1.PodStatus{Phase: phase},
	}
}

func names(c *controllertest.Cluster) func() string {
	return func() (out string) {
		for _, p := range c.Pods("default") {
			out += p.Name + " "
		}
		return out
	}
}

func TestPodsOfDeletedNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lost"}}
		c := controllertest.New(t, node, pod("a", "lost", v1.PodRunning, 0), pod("b", "never", v1.PodRunning, 0), pod("c", "", v1.PodPending, 0))
		registry := prometheus.NewRegistry()
		c.Env.Metrics = registry
		c.Run(Descriptor())
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := names(c)(); got != "a c " {
			t.Errorf("got %q", got)
		}
		if err := c.Fake.CoreV1().Nodes().Delete(t.Context(), "lost", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(39 * time.Second)
		synctest.Wait()
		if got := names(c)(); got != "a c " {
			t.Errorf("in quarantine: got %q", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := names(c)(); got != "c " {
			t.Errorf("after quarantine: got %q", got)
		}
		const want = `
# HELP pod_gc_collector_force_delete_pods_total [ALPHA] Number of pods that are being forcefully deleted since the Pod GC Controller started.
# TYPE pod_gc_collector_force_delete_pods_total counter
pod_gc_collector_force_delete_pods_total{namespace="default",reason="orphaned"} 2
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}

// The quarantine also applies to terminating pods.
func TestTerminatingPodOfMissingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t)
		c.Run(Descriptor())
		p := pod("a", "never", v1.PodPending, 0)
		if err := c.Fake.Tracker().Add(p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		deleted := p.DeepCopy()
		now := metav1.Now()
		deleted.DeletionTimestamp = &now
		if err := c.Fake.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), deleted, p.Namespace); err != nil {
			t.Fatal(err)
		}
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if got := names(c)(); got != "a " {
			t.Errorf("in quarantine: got %q", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := names(c)(); got != "" {
			t.Errorf("after quarantine: got %q", got)
		}
	})
}

// A pod that is a disruption target already keeps the time since when it is.
func TestDisruptionTargetOfDeletedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		since := metav1.NewTime(time.Now().Add(-time.Hour))
		p := pod("a", "never", v1.PodRunning, 0)
		podquery.SetCondition(&p.Status, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "DeletionByTaintManager", LastTransitionTime: since})
		c := controllertest.New(t, p)
		var last v1.PodStatus
		c.Fake.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			o, err := c.Fake.Tracker().Get(a.GetResource(), "default", "a")
			if err == nil {
				last = o.(*v1.Pod).Status
			}
			return false, nil, err
		})
		c.Run(Descriptor())
		time.Sleep(time.Minute)
		synctest.Wait()
		condition := podquery.Condition(&last, v1.DisruptionTarget)
		if last.Phase != v1.PodFailed || condition == nil || condition.Reason != "DeletionByPodGC" || !condition.LastTransitionTime.Equal(&since) {
			t.Errorf("phase %q, condition %+v", last.Phase, condition)
		}
	})
}

func TestTooManyFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, pod("running", "n", v1.PodRunning, time.Hour))
		for i := range 5 {
			if err := c.Fake.Tracker().Add(pod(fmt.Sprint("done", i), "n", v1.PodSucceeded, time.Duration(i)*time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		c.Run(Descriptor(), "--terminated-pod-gc-threshold=2")
		synctest.Wait()
		controllertest.Eventually(t, names(c), "done0 done1 running ")
	})
}

// Of the finished pods, evicted ones are deleted before older ones.
func TestEvictedPodsAreDeletedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		evicted := pod("evicted", "n", v1.PodFailed, time.Minute)
		evicted.Status.Reason = "Evicted"
		c := controllertest.New(t, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, evicted,
			pod("old", "n", v1.PodSucceeded, time.Hour), pod("failed", "n", v1.PodFailed, 2*time.Hour))
		c.Run(Descriptor(), "--terminated-pod-gc-threshold=2")
		synctest.Wait()
		controllertest.Eventually(t, names(c), "failed old ")
	})
}

// Finished pods that are being deleted count. They are deleted again if that can end
// them: if their grace period is not over, or nothing else holds them.
func TestFinishedPodsThatAreBeingDeleted(t *testing.T) {
	held := func(p *v1.Pod) { p.Finalizers = []string{"example.com/held"} }
	within := func(grace int64) func(p *v1.Pod) {
		return func(p *v1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.Now()), &grace
		}
	}
	for name, c := range map[string]struct {
		pods      map[string][]func(*v1.Pod) // oldest first, by name
		threshold string
		want      string // the pods for which a deletion is asked
	}{
		"only finalizers hold them": {map[string][]func(*v1.Pod){"a": {held, within(0)}, "b": {held, within(0)}}, "1", ""},
		"they count":                {map[string][]func(*v1.Pod){"a": {held, within(0)}, "b": {held, within(0)}, "c": nil}, "2", "c"},
		"no more than there are":    {map[string][]func(*v1.Pod){"a": {held, within(0)}, "b": {held, within(0)}, "c": {held, within(0)}, "d": nil}, "1", "d"},
		"others are deleted again":  {map[string][]func(*v1.Pod){"a": {held, within(30)}, "b": {within(0)}, "c": {held}, "d": {held}}, "1", "a b c"},
		"below the threshold":       {map[string][]func(*v1.Pod){"a": {within(30)}, "b": nil}, "5", ""},
		"off":                       {map[string][]func(*v1.Pod){"a": {within(30)}, "b": nil}, "0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := controllertest.New(t, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
				for key, changes := range c.pods {
					p := pod(key, "n", v1.PodSucceeded, time.Duration('z'-key[0])*time.Hour)
					for _, change := range changes {
						change(p)
					}
					if err := cluster.Fake.Tracker().Add(p); err != nil {
						t.Fatal(err)
					}
				}
				var mu sync.Mutex
				asked := sets.New[string]()
				cluster.Fake.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
					mu.Lock()
					defer mu.Unlock()
					asked.Insert(a.(clienttesting.DeleteAction).GetName())
					return true, nil, nil
				})
				cluster.Run(Descriptor(), "--terminated-pod-gc-threshold="+c.threshold)
				time.Sleep(time.Minute)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if got := strings.Join(sets.List(asked), " "); got != c.want {
					t.Errorf("deletions of %q, want %q", got, c.want)
				}
			})
		})
	}
}

// A pod is deleted by force if nobody else can end it.
func TestDeletionReason(t *testing.T) {
	node := func(ready v1.ConditionStatus, taints ...v1.Taint) *v1.Node {
		return &v1.Node{Spec: v1.NodeSpec{Taints: taints}, Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: ready}}}}
	}
	outOfService := func(value string, effect v1.TaintEffect) v1.Taint {
		return v1.Taint{Key: v1.TaintNodeOutOfService, Value: value, Effect: effect}
	}
	for _, c := range []struct {
		name    string
		on      string
		deleted bool
		node    *v1.Node
		want    string
	}{
		{"deleted on a node that is down", "n", true, node(v1.ConditionFalse), ""},
		{"deleted on a node out of service", "n", true, node(v1.ConditionFalse, outOfService("", v1.TaintEffectNoExecute)), reasonOutOfService},
		{"of unknown state", "n", true, node(v1.ConditionUnknown, outOfService("", v1.TaintEffectNoExecute)), reasonOutOfService},
		{"with a value", "n", true, node(v1.ConditionFalse, outOfService("any", v1.TaintEffectNoExecute)), reasonOutOfService},
		{"with another effect", "n", true, node(v1.ConditionFalse, outOfService("", v1.TaintEffectNoSchedule)), reasonOutOfService},
		{"with the weakest effect", "n", true, node(v1.ConditionFalse, outOfService("", v1.TaintEffectPreferNoSchedule)), reasonOutOfService},
		{"out of service, but ready", "n", true, node(v1.ConditionTrue, outOfService("", v1.TaintEffectNoExecute)), ""},
		{"not deleted", "n", false, node(v1.ConditionFalse, outOfService("", v1.TaintEffectNoExecute)), ""},
		{"deleted on a ready node", "n", true, node(v1.ConditionTrue), ""},
		{"deleted without a node", "", true, nil, reasonUnscheduled},
		{"without a node", "", false, nil, ""},
		{"of a node that is gone", "n", false, nil, reasonOrphaned},
	} {
		for _, phase := range []v1.PodPhase{"", v1.PodPending, v1.PodRunning, v1.PodSucceeded, v1.PodFailed, v1.PodUnknown} {
			p := pod("p", c.on, phase, 0)
			if c.deleted {
				p.DeletionTimestamp = new(metav1.Now())
			}
			if got, condition := deletionReason(p, c.node); got != c.want || (condition != nil) != (got == reasonOrphaned) {
				t.Errorf("%s, %q: %q with condition %v, want %q", c.name, phase, got, condition, c.want)
			}
		}
	}
}
