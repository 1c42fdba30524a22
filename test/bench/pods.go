package main

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	podutil "github.com/coracle-io/coracle/internal/pod"
)

const (
	podsOneByOne = 10
	podsAtOnce   = 30
	podPatience  = 2 * time.Minute
)

// lives follows pods from their creation to their end.
type lives struct {
	client                           kubernetes.Interface
	namespace                        string
	watch                            watch.Interface
	created, ready, deleted, removed map[string]time.Time
}

// measurePods times real pods with an image that is there: one after the
// other, and many at once.
func measurePods(ctx context.Context, _ *settings, c *cluster, t *table) error {
	config := rest.CopyConfig(c.config)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	const namespace = "bench-pods"
	if err := makeNamespace(ctx, client, namespace); err != nil {
		return err
	}
	defer func() { _ = client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}) }() // it goes with the cluster

	serial, err := follow(ctx, client, namespace)
	if err != nil {
		return err
	}
	for i := range podsOneByOne {
		if err := serial.round(ctx, []string{fmt.Sprintf("serial-%d", i)}); err != nil {
			return err
		}
	}
	serial.watch.Stop()
	t.add("pod create to ready, image present, p50", "250 ms", "%.0f ms", milliseconds(between(serial.created, serial.ready).quantile(0.5)))
	t.add("pod delete to gone, p50", "150 ms", "%.0f ms", milliseconds(between(serial.deleted, serial.removed).quantile(0.5)))

	burst, err := follow(ctx, client, namespace)
	if err != nil {
		return err
	}
	defer burst.watch.Stop()
	var names []string
	for i := range podsAtOnce {
		names = append(names, fmt.Sprintf("burst-%d", i))
	}
	if err := burst.round(ctx, names); err != nil {
		return err
	}
	t.add(fmt.Sprintf("%d pods at once, all ready", podsAtOnce), "2.5 s", "%.2f s", between(burst.created, burst.ready).quantile(1).Seconds())
	return nil
}

func makeNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	w, err := client.CoreV1().ServiceAccounts(name).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer w.Stop()
	if _, err := client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	select { // pods need the default service account, the first that comes
	case <-w.ResultChan():
		return nil
	case <-time.After(podPatience):
		return fmt.Errorf("namespace %s got no service account in %v", name, podPatience)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func follow(ctx context.Context, client kubernetes.Interface, namespace string) (*lives, error) {
	w, err := client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{LabelSelector: "bench=pods"})
	return &lives{
		client: client, namespace: namespace, watch: w, created: map[string]time.Time{}, ready: map[string]time.Time{},
		deleted: map[string]time.Time{}, removed: map[string]time.Time{},
	}, err
}

// round creates pods, waits until all are ready, deletes them, and waits until
// all are gone.
func (l *lives) round(ctx context.Context, names []string) error {
	pods := l.client.CoreV1().Pods(l.namespace)
	grace := int64(30)
	for _, name := range names {
		l.created[name] = time.Now()
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"bench": "pods"}},
			Spec: v1.PodSpec{
				TerminationGracePeriodSeconds: &grace,
				Containers: []v1.Container{{
					Name: "main", Image: "coracle.internal/frontend:1.0", ImagePullPolicy: v1.PullIfNotPresent,
				}},
			},
		}
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if err := l.until(ctx, l.ready, names, func(e watch.Event, pod *v1.Pod) bool { return podutil.IsReady(pod) }); err != nil {
		return err
	}
	for _, name := range names {
		l.deleted[name] = time.Now()
		if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return l.until(ctx, l.removed, names, func(e watch.Event, _ *v1.Pod) bool { return e.Type == watch.Deleted })
}

// until notes when each of the names first meets the condition.
func (l *lives) until(ctx context.Context, when map[string]time.Time, names []string, met func(watch.Event, *v1.Pod) bool) error {
	patience := time.After(podPatience)
	missing := map[string]bool{}
	for _, name := range names {
		missing[name] = true
	}
	for len(missing) > 0 {
		select {
		case event, open := <-l.watch.ResultChan():
			if !open {
				return fmt.Errorf("the watch ended with %d pods missing", len(missing))
			}
			if pod, ok := event.Object.(*v1.Pod); ok && missing[pod.Name] && met(event, pod) {
				when[pod.Name] = time.Now()
				delete(missing, pod.Name)
			}
		case <-patience:
			return fmt.Errorf("after %v %d of %d pods are still missing", podPatience, len(missing), len(names))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func between(from, to map[string]time.Time) latencies {
	var d []time.Duration
	for name, at := range to {
		d = append(d, at.Sub(from[name]))
	}
	return sorted(d)
}
