package podgc

import (
	"fmt"
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
