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

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/processes"
)

const (
	podsOneByOne = 10
	podsAtOnce   = 30
	podsOnNode   = 110 // as many as a node takes
	benchImage   = "coracle.internal/frontend:1.0"
	podTimeout   = 2 * time.Minute
)

// podTimes watches pods and records the times of their creation, readiness and
// deletion.
type podTimes struct {
	client                           kubernetes.Interface
	namespace                        string
	watch                            watch.Interface
	created, ready, deleted, removed map[string]time.Time
}

// measurePods measures real pods whose image is on the node: one after the
// other, many at once, and a full node.
func measurePods(ctx context.Context, s *settings, c *cluster, t *table) error {
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
	defer func() { _ = client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}) }() // it is deleted with the cluster

	serial, err := watchPods(ctx, client, namespace)
	if err != nil {
		return err
	}
	for i := range podsOneByOne {
		if err := serial.round(ctx, []string{fmt.Sprintf("serial-%d", i)}); err != nil {
			return err
		}
	}
	serial.watch.Stop()
	t.add("pod create to ready, image present, p50", "140 ms", "%.0f ms", milliseconds(between(serial.created, serial.ready).quantile(0.5)))
	t.add("pod delete to gone, p50", "80 ms", "%.0f ms", milliseconds(between(serial.deleted, serial.removed).quantile(0.5)))

	burst, err := measureBurst(ctx, client, namespace, c, t)
	if err != nil {
		return err
	}
	burst.watch.Stop()
	return measureFullNode(ctx, s, client, namespace, c, t)
}

// measureBurst measures pods that are created and deleted at once, and the CPU
// time of the node's process for each.
func measureBurst(ctx context.Context, client kubernetes.Interface, namespace string, c *cluster, t *table) (*podTimes, error) {
	burst, err := watchPods(ctx, client, namespace)
	if err != nil {
		return nil, err
	}
	before, err := cpuTime(c.pid(processes.Node))
	if err == nil {
		err = burst.round(ctx, podNames("burst", podsAtOnce))
	}
	if err != nil {
		return nil, err
	}
	after, err := cpuTime(c.pid(processes.Node))
	t.add(fmt.Sprintf("%d pods at once, all ready", podsAtOnce), "1.5 s", "%.2f s", span(burst.created, burst.ready).Seconds())
	t.add(fmt.Sprintf("%d pods at once, all gone", podsAtOnce), "1 s", "%.2f s", span(burst.deleted, burst.removed).Seconds())
	t.add("CPU time of the node's process for a pod", "40 ms", "%.0f ms", milliseconds((after-before)/podsAtOnce))
	return burst, err
}

// measureFullNode measures as many pods as a node takes, and the node's process
// while they run.
func measureFullNode(ctx context.Context, s *settings, client kubernetes.Interface, namespace string, c *cluster, t *table) error {
	full, err := watchPods(ctx, client, namespace)
	if err != nil {
		return err
	}
	defer full.watch.Stop()
	names := podNames("full", podsOnNode)
	if err := full.create(ctx, names); err != nil {
		return err
	}
	t.add(fmt.Sprintf("%d pods on a node, all ready", podsOnNode), "8 s", "%.2f s", span(full.created, full.ready).Seconds())
	pid := c.pid(processes.Node)
	if err := wait(ctx, s.idle); err != nil {
		return err
	}
	before, err := cpuTime(pid)
	if err != nil {
		return err
	}
	if err := wait(ctx, s.idle); err != nil {
		return err
	}
	after, err := cpuTime(pid)
	if err != nil {
		return err
	}
	m, err := processMemory(pid)
	if err != nil {
		return err
	}
	t.add(fmt.Sprintf("idle CPU of the node's process, %d pods", podsOnNode), "2 %", "%.2f %%", 100*float64(after-before)/float64(s.idle))
	t.add(fmt.Sprintf("memory (RSS) of the node's process, %d pods", podsOnNode), "80 MB", "%v", m)
	if err := full.remove(ctx, names); err != nil {
		return err
	}
	t.add(fmt.Sprintf("%d pods on a node, all gone", podsOnNode), "", "%.2f s", span(full.deleted, full.removed).Seconds())
	return nil
}

func podNames(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return names
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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
	select { // pods need the default service account, which is the first one
	case <-w.ResultChan():
		return nil
	case <-time.After(podTimeout):
		return fmt.Errorf("namespace %s has no service account after %v", name, podTimeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func watchPods(ctx context.Context, client kubernetes.Interface, namespace string) (*podTimes, error) {
	w, err := client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{LabelSelector: "bench=pods"})
	return &podTimes{
		client: client, namespace: namespace, watch: w, created: map[string]time.Time{}, ready: map[string]time.Time{},
		deleted: map[string]time.Time{}, removed: map[string]time.Time{},
	}, err
}

// round creates pods, waits until all are ready, deletes them, and waits until
// all are gone.
func (l *podTimes) round(ctx context.Context, names []string) error {
	if err := l.create(ctx, names); err != nil {
		return err
	}
	return l.remove(ctx, names)
}

// create creates pods and waits until all are ready.
func (l *podTimes) create(ctx context.Context, names []string) error {
	pods := l.client.CoreV1().Pods(l.namespace)
	grace := int64(30)
	for _, name := range names {
		l.created[name] = time.Now()
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"bench": "pods"}},
			Spec: v1.PodSpec{
				TerminationGracePeriodSeconds: &grace,
				Containers: []v1.Container{{
					Name: "main", Image: benchImage, ImagePullPolicy: v1.PullIfNotPresent,
				}},
			},
		}
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return l.until(ctx, l.ready, names, func(_ watch.Event, pod *v1.Pod) bool { return podquery.IsReady(pod) })
}

// remove deletes pods and waits until all are gone.
func (l *podTimes) remove(ctx context.Context, names []string) error {
	pods := l.client.CoreV1().Pods(l.namespace)
	for _, name := range names {
		l.deleted[name] = time.Now()
		if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return l.until(ctx, l.removed, names, func(e watch.Event, _ *v1.Pod) bool { return e.Type == watch.Deleted })
}

// until records when each of the names first meets the condition.
func (l *podTimes) until(ctx context.Context, when map[string]time.Time, names []string, met func(watch.Event, *v1.Pod) bool) error {
	timeout := time.After(podTimeout)
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
		case <-timeout:
			return fmt.Errorf("after %v %d of %d pods are still missing", podTimeout, len(missing), len(names))
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

// span returns the time from the first of the beginnings to the last of the
// ends.
func span(from, to map[string]time.Time) time.Duration {
	var first, last time.Time
	for name, at := range to {
		if began := from[name]; first.IsZero() || began.Before(first) {
			first = began
		}
		if at.After(last) {
			last = at
		}
	}
	return last.Sub(first)
}
