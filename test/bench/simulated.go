package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/internal/processes"
)

const (
	simulatedDeployments = 10
	simulatedPerNode     = 100
	simulatedTimeout     = 20 * time.Minute
)

// measureSimulated measures a hundred pods on each simulated node, of ten
// Deployments: until all are ready, and until their namespace is gone.
func measureSimulated(ctx context.Context, s *settings, c *cluster, t *table) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	if err := poll(ctx, simulatedTimeout, "the nodes", func() bool {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err == nil && len(nodes.Items) == s.simulated
	}); err != nil {
		return err
	}
	const namespace = "bench-simulated"
	if err := makeNamespace(ctx, client, namespace); err != nil {
		return err
	}
	pods := s.simulated * simulatedPerNode
	what := func(text string) string {
		return fmt.Sprintf("%d pods on %d simulated nodes: %s", pods, s.simulated, text)
	}
	deployments := client.AppsV1().Deployments(namespace)
	created, err := c.spend(func() error {
		for i := range simulatedDeployments {
			if _, err := deployments.Create(ctx, simulatedDeployment(i, pods/simulatedDeployments), metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		return poll(ctx, simulatedTimeout, "the pods", func() bool {
			ready := 0
			list, err := deployments.List(ctx, metav1.ListOptions{})
			for i := range list.Items {
				ready += int(list.Items[i].Status.ReadyReplicas)
			}
			return err == nil && ready == pods
		})
	})
	if err != nil {
		return err
	}
	m, err := processMemory(c.pid(processes.ControlPlane))
	if err != nil {
		return err
	}
	t.add(what("ready"), "20 s", "%.1f s, %.2f ms CPU each", created.took.Seconds(), milliseconds(created.used)/float64(pods))
	t.add(what("memory (RSS)"), "1.5 GB", "%v", m)
	if err := c.measureRest(ctx, t, what("CPU in 20 s afterwards")); err != nil {
		return err
	}
	deleted, err := c.spend(func() error {
		if err := client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
			return err
		}
		return poll(ctx, simulatedTimeout, "the end of the namespace", func() bool {
			_, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	})
	if err != nil {
		return err
	}
	t.add(what("namespace deleted"), "10 s", "%.1f s, %.2f ms CPU each", deleted.took.Seconds(), milliseconds(deleted.used)/float64(pods))
	return c.measureRest(ctx, t, what("CPU in 20 s after the deletion"))
}

// measureRest measures the CPU time of a cluster that has nothing left to do.
func (c *cluster) measureRest(ctx context.Context, t *table, what string) error {
	w, err := c.spend(func() error { return wait(ctx, 20*time.Second) })
	if err != nil {
		return err
	}
	t.add(what, "", "%.1f %%", 100*float64(w.used)/float64(w.took))
	return nil
}

func simulatedDeployment(i, replicas int) *appsv1.Deployment {
	labels, count := map[string]string{"app": fmt.Sprintf("web-%d", i)}, int32(replicas)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: labels["app"]},
		Spec: appsv1.DeploymentSpec{
			Replicas: &count, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: v1.PodSpec{Containers: []v1.Container{{
					Name: "main", Image: "example/app:1",
					Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
						v1.ResourceCPU: resource.MustParse("10m"), v1.ResourceMemory: resource.MustParse("16Mi"),
					}},
				}}},
			},
		},
	}
}
