package deployment_test

import (
	"context"
	"os"
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
	"github.com/coracle-io/coracle/internal/controllers/deployment"
	"github.com/coracle-io/coracle/internal/controllers/replicaset"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func web(image string, strategy apps.DeploymentStrategyType) *apps.Deployment {
	replicas, limit, deadline := int32(3), int32(10), int32(600)
	labels := map[string]string{"app": "web"}
	d := &apps.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Generation: 1},
		Spec: apps.DeploymentSpec{
			Replicas: &replicas, RevisionHistoryLimit: &limit, ProgressDeadlineSeconds: &deadline,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: image}}},
			},
			Strategy: apps.DeploymentStrategy{Type: strategy},
		},
	}
	if strategy == apps.RollingUpdateDeploymentStrategyType {
		quarter := intstr.FromString("25%")
		d.Spec.Strategy.RollingUpdate = &apps.RollingUpdateDeployment{MaxSurge: &quarter, MaxUnavailable: &quarter}
	}
	return d
}

// kubelet makes every pod ready when it is created.
func kubelet(t *testing.T, c *controllertest.Cluster) {
	t.Helper()
	w, err := c.Fake.CoreV1().Pods("").Watch(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			if p := e.Object.(*v1.Pod); e.Type == "ADDED" {
				c.SetReady(p.Namespace, p.Name, time.Now())
			}
		}
	}()
	t.Cleanup(func() { w.Stop(); <-done })
}

func images(c *controllertest.Cluster) func() string {
	return func() string {
		var images []string
		for _, p := range c.Pods("default") {
			images = append(images, p.Spec.Containers[0].Image)
		}
		slices.Sort(images)
		return strings.Join(images, " ")
	}
}

func progress(t *testing.T, c *controllertest.Cluster) func() string {
	return func() string {
		d, err := c.Fake.AppsV1().Deployments("default").Get(context.Background(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, condition := range d.Status.Conditions {
			if condition.Type == apps.DeploymentProgressing && d.Status.ObservedGeneration == d.Generation {
				return condition.Reason + " " + d.Annotations["deployment.kubernetes.io/revision"]
			}
		}
		return ""
	}
}

// TestRollout rolls out, undoes, pauses, scales and resumes.
func TestRollout(t *testing.T) {
	for _, strategy := range []apps.DeploymentStrategyType{apps.RollingUpdateDeploymentStrategyType, apps.RecreateDeploymentStrategyType} {
		t.Run(string(strategy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := controllertest.New(t, web("one", strategy))
				kubelet(t, c)
				c.Run(replicaset.Descriptor())
				c.Run(deployment.Descriptor())
				change := func(f func(d *apps.Deployment)) {
					t.Helper()
					for {
						d, err := c.Fake.AppsV1().Deployments("default").Get(context.Background(), "web", metav1.GetOptions{})
						if err != nil {
							t.Fatal(err)
						}
						f(d)
						if _, err = c.Fake.AppsV1().Deployments("default").Update(context.Background(), d, metav1.UpdateOptions{}); err == nil {
							return
						}
					}
				}
				controllertest.Eventually(t, progress(t, c), "NewReplicaSetAvailable 1")
				controllertest.Eventually(t, images(c), "one one one")

				change(func(d *apps.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "two" })
				controllertest.Eventually(t, images(c), "two two two")
				controllertest.Eventually(t, progress(t, c), "NewReplicaSetAvailable 2")

				change(func(d *apps.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "one" })
				controllertest.Eventually(t, images(c), "one one one")
				controllertest.Eventually(t, progress(t, c), "NewReplicaSetAvailable 3")
				sets, _ := c.Fake.AppsV1().ReplicaSets("default").List(context.Background(), metav1.ListOptions{})
				if len(sets.Items) != 2 {
					t.Errorf("%d ReplicaSets after an undo, want 2", len(sets.Items))
				}

				change(func(d *apps.Deployment) {
					d.Spec.Paused = true
					d.Spec.Template.Spec.Containers[0].Image = "three"
				})
				controllertest.Eventually(t, progress(t, c), "DeploymentPaused 3")
				four := int32(4)
				change(func(d *apps.Deployment) { d.Spec.Replicas = &four })
				controllertest.Eventually(t, images(c), "one one one one")
				change(func(d *apps.Deployment) { d.Spec.Paused = false })
				controllertest.Eventually(t, images(c), "three three three three")
				controllertest.Eventually(t, progress(t, c), "NewReplicaSetAvailable 4")
			})
		})
	}
}
