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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coracle-io/coracle/internal/nodestatus"
	"github.com/coracle-io/coracle/internal/processes"
)

const (
	simulatedPerNode = 100
	simulatedPerSet  = 10 // pods of a ReplicaSet
	simulatedTimeout = 20 * time.Minute
	// restInterval is how long an idle cluster is observed, and restLimit how long it may
	// take until it is idle.
	restInterval = 20 * time.Second
	restLimit    = 5 * time.Minute
)

// simulatedClient returns a client without limits of its own.
func (c *cluster) simulatedClient() (kubernetes.Interface, error) {
	config := rest.CopyConfig(c.config)
	config.QPS, config.ContentType = -1, runtime.ContentTypeProtobuf
	return kubernetes.NewForConfig(config)
}

// awaitNodes waits until n nodes are ready.
func awaitNodes(ctx context.Context, client kubernetes.Interface, n int) error {
	return pollEvery(ctx, time.Second, simulatedTimeout, "the nodes", func() bool {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false
		}
		ready := 0
		for i := range nodes.Items {
			if nodestatus.Ready(&nodes.Items[i]) == v1.ConditionTrue {
				ready++
			}
		}
		return ready == n
	})
}

// measureSimulated measures a hundred pods on each simulated node, of ReplicaSets of ten:
// until all are ready, the rest then, and until their namespace is gone.
func measureSimulated(ctx context.Context, s *settings, c *cluster, t *table) error {
	client, err := c.simulatedClient()
	if err != nil {
		return err
	}
	if err := awaitNodes(ctx, client, s.simulated); err != nil {
		return err
	}
	const namespace = "bench-simulated"
	if err := makeNamespace(ctx, client, namespace); err != nil {
		return err
	}
	sets := s.simulated * simulatedPerNode / simulatedPerSet
	pods := sets * simulatedPerSet
	what := func(text string) string {
		return fmt.Sprintf("%d pods on %d simulated nodes: %s", pods, s.simulated, text)
	}
	created, err := c.spend(func() error { return createSets(ctx, client, namespace, sets, s.clients) })
	if err != nil {
		return err
	}
	m, err := processMemory(c.pid(processes.ControlPlane))
	if err != nil {
		return err
	}
	t.add(what("ready"), "20 s", "%.1f s, %.2f ms CPU each", created.took.Seconds(), milliseconds(created.used)/float64(pods))
	t.add(what("memory (RSS)"), "1.5 GB", "%v, %.0f MB at most", m, float64(m.peak)/1e6)
	if err := c.measureRest(ctx, t, what("idle CPU"), 2); err != nil {
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
	return c.measureRest(ctx, t, what("idle CPU after the deletion"), 2)
}

// measureSimulatedIdle measures simulated nodes without pods: their Leases and statuses.
func measureSimulatedIdle(ctx context.Context, s *settings, c *cluster, t *table) error {
	client, err := c.simulatedClient()
	if err != nil {
		return err
	}
	if err := awaitNodes(ctx, client, s.simulatedIdle); err != nil {
		return err
	}
	what := func(text string) string { return fmt.Sprintf("%d simulated nodes: %s", s.simulatedIdle, text) }
	if err := c.measureRest(ctx, t, what("idle CPU"), 10); err != nil {
		return err
	}
	m, err := processMemory(c.pid(processes.ControlPlane))
	if err != nil {
		return err
	}
	t.add(what("memory (RSS)"), "1 GB", "%v, %.0f MB at most", m, float64(m.peak)/1e6)
	return nil
}

// measureRest measures the CPU time of a cluster that has nothing left to do but to
// record events and to keep Leases, and so takes less and less: the first interval, and
// the first one below the budget, in percent of a core, or the last within restLimit.
func (c *cluster) measureRest(ctx context.Context, t *table, what string, budget float64) error {
	var first, last float64
	began := time.Now()
	for last = 2 * budget; last > budget && time.Since(began) < restLimit; {
		w, err := c.spend(func() error { return wait(ctx, restInterval) })
		if err != nil {
			return err
		}
		if last = 100 * float64(w.used) / float64(w.took); first == 0 {
			first = last
		}
	}
	t.add(what, fmt.Sprintf("%.0f %% of a core", budget), "%.2f %%, %.0f s later; %.1f %% in the first %.0f s",
		last, time.Since(began).Seconds(), first, restInterval.Seconds())
	return nil
}

// createSets creates ReplicaSets, a number of them at a time, and waits until their pods
// are ready.
func createSets(ctx context.Context, client kubernetes.Interface, namespace string, n, atATime int) error {
	ctx, cancel := context.WithTimeout(ctx, simulatedTimeout)
	defer cancel()
	sets := client.AppsV1().ReplicaSets(namespace)
	changes, err := sets.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer changes.Stop()
	created := make(chan error, 1)
	go func() {
		_, err := parallel(ctx, n, atATime, func(ctx context.Context, i int) error {
			_, err := sets.Create(ctx, simulatedSet(i), metav1.CreateOptions{})
			return err
		})
		created <- err
	}()
	ready := map[string]bool{}
	for len(ready) < n {
		select {
		case e, ok := <-changes.ResultChan():
			set, isSet := e.Object.(*appsv1.ReplicaSet)
			if !ok || e.Type == watch.Error || !isSet {
				return fmt.Errorf("the watch of ReplicaSets has ended: %v", apierrors.FromObject(e.Object))
			}
			if set.Status.ReadyReplicas == simulatedPerSet {
				ready[set.Name] = true
			}
		case err := <-created:
			if err != nil {
				return err
			}
			created = nil
		case <-ctx.Done():
			return fmt.Errorf("wait for ReplicaSets, of which %d of %d are ready: %w", len(ready), n, ctx.Err())
		}
	}
	return nil
}

func simulatedSet(i int) *appsv1.ReplicaSet {
	labels, count := map[string]string{"app": fmt.Sprintf("web-%d", i)}, int32(simulatedPerSet)
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: labels["app"]},
		Spec: appsv1.ReplicaSetSpec{
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
