package deployment_test

import (
	"testing"
	"testing/synctest"

	apps "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/controllers/deployment"
)

// With the strategy Recreate, new pods are created only after the old ReplicaSet has acted on
// its size of 0 and counts no pods. Before, it may be creating some that the cache lacks.
func TestRecreateWaitsForOldReplicaSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := web("two", apps.RecreateDeploymentStrategyType)
		d.UID = "web"
		old := web("one", apps.RecreateDeploymentStrategyType).Spec.Template
		old.Labels = map[string]string{"app": "web", apps.DefaultDeploymentUniqueLabelKey: "old"}
		set := &apps.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "web-old", Labels: old.Labels, Generation: 2,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, apps.SchemeGroupVersion.WithKind("Deployment"))},
			},
			Spec:   apps.ReplicaSetSpec{Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: old.Labels}, Template: old},
			Status: apps.ReplicaSetStatus{ObservedGeneration: 1},
		}
		c := controllertest.New(t, d, set)
		c.Run(deployment.Descriptor())
		sets := func() int {
			synctest.Wait()
			list, err := c.Fake.AppsV1().ReplicaSets("default").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return len(list.Items)
		}
		report := func(status apps.ReplicaSetStatus) {
			rs, err := c.Fake.AppsV1().ReplicaSets("default").Get(t.Context(), "web-old", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			rs.Status = status
			if _, err := c.Fake.AppsV1().ReplicaSets("default").UpdateStatus(t.Context(), rs, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if n := sets(); n != 1 {
			t.Errorf("%d ReplicaSets before the old one has acted", n)
		}
		report(apps.ReplicaSetStatus{ObservedGeneration: 2, Replicas: 3})
		if n := sets(); n != 1 {
			t.Errorf("%d ReplicaSets while the old one counts pods", n)
		}
		report(apps.ReplicaSetStatus{ObservedGeneration: 2})
		if n := sets(); n != 2 {
			t.Errorf("%d ReplicaSets once the old one has no pods", n)
		}
	})
}
