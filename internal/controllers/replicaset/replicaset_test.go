package replicaset_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/controller/workload"
	"github.com/coracle-io/coracle/internal/controllers/replicaset"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func set(replicas int32) *apps.ReplicaSet {
	labels := map[string]string{"app": "web"}
	return &apps.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Generation: 1},
		Spec: apps.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
	}
}

func status(t *testing.T, c *controllertest.Cluster) func() apps.ReplicaSetStatus {
	return func() apps.ReplicaSetStatus {
		got, err := c.Fake.AppsV1().ReplicaSets("default").Get(context.Background(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Status
	}
}

func counts(replicas, ready, available int32) apps.ReplicaSetStatus {
	return apps.ReplicaSetStatus{
		Replicas: replicas, FullyLabeledReplicas: replicas, ReadyReplicas: ready, AvailableReplicas: available,
		TerminatingReplicas: new(int32), ObservedGeneration: 1,
	}
}

func TestScalingAndStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, set(3))
		c.Run(replicaset.Descriptor())
		controllertest.Eventually(t, status(t, c), counts(3, 0, 0))
		if n := len(c.Pods("default")); n != 3 {
			t.Fatalf("%d pods, want 3", n)
		}
		for _, p := range c.Pods("default") {
			if !strings.HasPrefix(p.Name, "web-") || p.GenerateName != "web-" {
				t.Errorf("pod is called %q, generated from %q", p.Name, p.GenerateName)
			}
			if ref := metav1.GetControllerOf(&p); ref == nil || ref.Kind != "ReplicaSet" || ref.Name != "web" || !*ref.BlockOwnerDeletion {
				t.Errorf("controller of %s is %v", p.Name, ref)
			}
		}
		for _, e := range c.DrainEvents() {
			if !strings.HasPrefix(e, "Normal SuccessfulCreate Created pod: web-") {
				t.Errorf("event %q", e)
			}
		}
		for _, p := range c.Pods("default")[:2] {
			c.SetReady("default", p.Name, time.Now())
		}
		controllertest.Eventually(t, status(t, c), counts(3, 2, 2))

		unready := slices.DeleteFunc(c.Pods("default"), func(p v1.Pod) bool { return p.Status.Phase == v1.PodRunning })[0].Name
		scaled := set(2)
		scaled.UID = c.Pods("default")[0].OwnerReferences[0].UID
		scaled.Status = status(t, c)()
		if _, err := c.Fake.AppsV1().ReplicaSets("default").Update(context.Background(), scaled, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		want := counts(2, 2, 2)
		want.ObservedGeneration = 2
		controllertest.Eventually(t, status(t, c), want)
		if events := c.DrainEvents(); !slices.Equal(events, []string{"Normal SuccessfulDelete Deleted pod: " + unready}) {
			t.Errorf("events %q", events)
		}
	})
}

func TestExceededQuotaStopsBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, set(100))
		c.Fake.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(v1.Resource("pods"), "", fmt.Errorf("exceeded quota"))
		})
		c.Run(replicaset.Descriptor())
		controllertest.Eventually(t, func() []apps.ReplicaSetCondition {
			conditions := status(t, c)().Conditions
			for i := range conditions {
				conditions[i].LastTransitionTime = metav1.Time{}
			}
			return conditions
		}, []apps.ReplicaSetCondition{{
			Type: apps.ReplicaSetReplicaFailure, Status: v1.ConditionTrue, Reason: "FailedCreate",
			Message: "pods is forbidden: exceeded quota",
		}})
		if events := c.DrainEvents(); len(events) > 20 || events[0] != "Warning FailedCreate Error creating: pods is forbidden: exceeded quota" {
			t.Errorf("%d events, first %q", len(events), events[0])
		}
	})
}

// Every pod that ends in a namespace that is being deleted syncs the set, and all
// of its creations are refused. One refusal holds for all pods.
func TestTerminatingNamespaceStopsBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, set(100))
		var refused atomic.Int32
		c.Fake.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			refused.Add(1)
			err := apierrors.NewForbidden(v1.Resource("pods"), "", errors.New("the namespace is being terminated"))
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: v1.NamespaceTerminatingCause}}
			return true, nil, err
		})
		c.Run(replicaset.Descriptor())
		controllertest.Eventually(t, func() int64 { return status(t, c)().ObservedGeneration }, 1)
		if n := refused.Load(); n > 10 { // a sync each, and a few follow each other
			t.Errorf("%d creations in a namespace that is being deleted, want one a sync", n)
		}
	})
}

// While the cache does not show the created pods, the controller creates no more.
func TestStaleCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, set(3))
		hold := make(chan struct{})
		c.Fake.PrependWatchReactor("pods", func(action clienttesting.Action) (bool, watchInterface, error) {
			w, err := c.Fake.Tracker().Watch(action.GetResource(), action.GetNamespace())
			return true, delayed(w, hold), err
		})
		c.Run(replicaset.Descriptor())
		synctest.Wait()
		for i := range 5 {
			changed := set(3)
			changed.UID = c.Pods("default")[0].OwnerReferences[0].UID
			changed.Annotations = map[string]string{"change": fmt.Sprint(i)}
			if _, err := c.Fake.AppsV1().ReplicaSets("default").Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if n := len(c.Pods("default")); n != 3 {
			t.Errorf("%d pods while the watch lags, want 3", n)
		}
		close(hold)
		controllertest.Eventually(t, status(t, c), counts(3, 0, 0))
	})
}

// A pod becomes available after minReadySeconds without an event.
func TestMinReadySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(1)
		s.Spec.MinReadySeconds = 30
		c := controllertest.New(t, s)
		c.Run(replicaset.Descriptor())
		synctest.Wait()
		c.SetReady("default", c.Pods("default")[0].Name, time.Now())
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if got := status(t, c)(); got.AvailableReplicas != 0 || got.ReadyReplicas != 1 {
			t.Errorf("after 29 s: %d ready, %d available", got.ReadyReplicas, got.AvailableReplicas)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := status(t, c)(); got.AvailableReplicas != 1 {
			t.Errorf("after 30 s: %d available", got.AvailableReplicas)
		}
	})
}

func TestAdoptionAndRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orphan := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "orphan", Labels: map[string]string{"app": "web"}}}
		other := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other", Labels: map[string]string{"app": "db"}}}
		c := controllertest.New(t, set(1), orphan, other)
		c.Run(replicaset.Descriptor())
		owner := func(name string) func() string {
			return func() string {
				p, err := c.Fake.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if ref := metav1.GetControllerOf(p); ref != nil {
					return ref.Name
				}
				return ""
			}
		}
		controllertest.Eventually(t, status(t, c), counts(1, 0, 0))
		controllertest.Eventually(t, owner("orphan"), "web")
		if got := owner("other")(); got != "" {
			t.Errorf("other is owned by %q", got)
		}
		p, _ := c.Fake.CoreV1().Pods("default").Get(context.Background(), "orphan", metav1.GetOptions{})
		p.Labels = map[string]string{"app": "debug"}
		if _, err := c.Fake.CoreV1().Pods("default").Update(context.Background(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, owner("orphan"), "")
		controllertest.Eventually(t, func() int { return len(c.Pods("default")) }, 3)
	})
}

// Where the pods are is counted when some are deleted, and not with each change of a pod.
func TestColocatedPodsAreCountedForDeletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		d := replicaset.Descriptor()
		d.New = func(env *controller.Env) (controller.Controller, error) {
			return replicaset.New(env, replicaset.Kind[*apps.ReplicaSet]{
				GroupVersionKind: apps.SchemeGroupVersion.WithKind("ReplicaSet"), Queue: "replicaset", Workers: 1,
				Informer: env.Client.Informers.Apps().V1().ReplicaSets().Informer(),
				Client: func(namespace string) workload.Client[*apps.ReplicaSet] {
					return env.Client.Kubernetes.AppsV1().ReplicaSets(namespace)
				},
				View:      func(set *apps.ReplicaSet) *apps.ReplicaSet { return set },
				SetStatus: func(set *apps.ReplicaSet, status apps.ReplicaSetStatus) { set.Status = status },
				Related: func(set *apps.ReplicaSet) []types.UID {
					asked.Add(1)
					return []types.UID{set.UID}
				},
				CountsTerminating: true,
			})
		}
		c := controllertest.New(t, set(3))
		c.Run(d)
		controllertest.Eventually(t, status(t, c), counts(3, 0, 0))
		for _, p := range c.Pods("default") {
			c.SetReady("default", p.Name, time.Now())
		}
		controllertest.Eventually(t, status(t, c), counts(3, 3, 3))
		if n := asked.Load(); n > 0 {
			t.Errorf("the pods of the nodes were counted %d times before any was deleted", n)
		}
		smaller, err := c.Fake.AppsV1().ReplicaSets("default").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		smaller.Spec.Replicas = new(int32(2))
		if _, err := c.Fake.AppsV1().ReplicaSets("default").Update(t.Context(), smaller, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() int { return len(c.Pods("default")) }, 2)
		if asked.Load() == 0 {
			t.Error("a pod was deleted without a count of the pods of the nodes")
		}
	})
}

// While its namespace is being deleted, a set asks for no pods that would be refused. It does
// so for a set that is younger than the deletion, and if the cache was wrong.
func TestNoPodsInTerminatingNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deleted := metav1.Now()
		namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", DeletionTimestamp: &deleted}}
		old, young := set(3), set(2)
		old.CreationTimestamp = metav1.NewTime(deleted.Add(-time.Minute))
		young.Name, young.CreationTimestamp = "young", deleted
		young.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "young"}}
		young.Spec.Template.Labels = young.Spec.Selector.MatchLabels
		c := controllertest.New(t, namespace, old, young)
		c.Run(replicaset.Descriptor())
		synctest.Wait()
		pods := func(app string) (n int) {
			for _, p := range c.Pods("default") {
				if p.Labels["app"] == app {
					n++
				}
			}
			return n
		}
		if n := pods("web"); n > 0 {
			t.Errorf("%d pods were created in a namespace that is being deleted", n)
		}
		if n := pods("young"); n != 2 {
			t.Errorf("%d pods of the younger set, want 2", n)
		}
		if err := c.Fake.CoreV1().Namespaces().Delete(t.Context(), "default", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := pods("web"); n != 3 {
			t.Errorf("%d pods after the deletion was not true any more, want 3", n)
		}
	})
}
