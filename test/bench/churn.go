package main

import (
	"context"
	"fmt"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	preemptors       = 500
	victims          = 2 * preemptors
	churnPods        = 3000
	churnPerSecond   = 200
	unschedulable    = 20_000
	unschedulableCPU = "64" // more than any node has
	// unschedulableIdle is a time without attempts, and unschedulableRetry the time after
	// which a pod is tried again that no event has helped.
	unschedulableIdle  = 30 * time.Second
	unschedulableRetry = 5 * time.Minute
)

// measurePreemption fills all nodes with two pods each, and measures pods that
// each need the room of two, from the first create to the last binding.
func (b *scheduling) measurePreemption(ctx context.Context) error {
	namespace := fmt.Sprintf("bench-preempt-%d", b.nodes)
	classes := b.client.SchedulingV1().PriorityClasses()
	if _, err := classes.Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Value: 1000}, metav1.CreateOptions{}); err != nil {
		return err
	}
	seen, err := b.follow(ctx, namespace)
	if err != nil {
		return err
	}
	defer seen.stop()
	pods := b.client.CoreV1().Pods(namespace)
	filled := make(chan error, 1)
	go func() {
		_, err := parallel(ctx, 2*b.nodes, b.clients, func(ctx context.Context, i int) error {
			_, err := pods.Create(ctx, benchPodOf(fmt.Sprintf("low-%06d", i), "16"), metav1.CreateOptions{})
			return err
		})
		filled <- err
	}()
	if err := seen.until(ctx, 2*b.nodes, filled); err != nil {
		return err
	}
	w, err := b.cluster.spend(func() error {
		created := make(chan error, 1)
		go func() {
			_, err := parallel(ctx, preemptors, b.clients, func(ctx context.Context, i int) error {
				pod := benchPodOf(fmt.Sprintf("high-%06d", i), "32")
				pod.Spec.PriorityClassName = namespace
				_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
				return err
			})
			created <- err
		}()
		return seen.until(ctx, 2*b.nodes+preemptors, created)
	})
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("preempt %d pods by %d", victims, preemptors), "1,000/s, 800/s", victims, w)
	return b.deletePods(ctx, namespace)
}

// measureChurn creates pods of all shapes at a fixed rate, and deletes each a
// second later. It measures from each create to the binding.
func (b *scheduling) measureChurn(ctx context.Context) error {
	namespace := fmt.Sprintf("bench-churn-%d", b.nodes)
	seen, err := b.follow(ctx, namespace)
	if err != nil {
		return err
	}
	defer seen.stop()
	pods, kinds, began := b.client.CoreV1().Pods(namespace), shapes(), time.Now()
	at := func(i int) time.Time { return began.Add(time.Duration(i) * time.Second / churnPerSecond) }
	created := make([]time.Time, churnPods)
	ended := make(chan error, 1)
	go func() {
		_, err := parallel(ctx, churnPods+churnPerSecond, b.clients, func(ctx context.Context, i int) error {
			select {
			case <-time.After(time.Until(at(i))):
			case <-ctx.Done():
				return ctx.Err()
			}
			if i < churnPods {
				created[i] = time.Now()
				if _, err := pods.Create(ctx, schedulingPod(kinds[i%len(kinds)], i), metav1.CreateOptions{}); err != nil {
					return err
				}
			}
			if old := i - churnPerSecond; old >= 0 {
				return pods.Delete(ctx, fmt.Sprintf("pod-%06d", old), metav1.DeleteOptions{})
			}
			return nil
		})
		ended <- err
	}()
	if err := seen.until(ctx, churnPods, ended); err != nil {
		return err
	}
	took := make([]time.Duration, churnPods)
	for i := range took {
		took[i] = seen.bound[fmt.Sprintf("pod-%06d", i)].Sub(created[i])
	}
	l := sorted(took)
	b.table.add(fmt.Sprintf("%d nodes: churn of %d pods/s, p99 create to bound", b.nodes, churnPerSecond), "20 ms, 30 ms",
		"%.1f ms (p50 %.1f ms)", milliseconds(l.quantile(0.99)), milliseconds(l.quantile(0.5)))
	return b.deletePods(ctx, namespace)
}

// measureUnschedulable measures the CPU time of a cluster in which many pods
// fit nowhere.
func (b *scheduling) measureUnschedulable(ctx context.Context) error {
	namespace := fmt.Sprintf("bench-unschedulable-%d", b.nodes)
	if err := makeNamespace(ctx, b.client, namespace); err != nil {
		return err
	}
	pods := b.client.CoreV1().Pods(namespace)
	w, err := b.cluster.spend(func() error {
		if _, err := parallel(ctx, unschedulable, b.clients, func(ctx context.Context, i int) error {
			_, err := pods.Create(ctx, benchPodOf(fmt.Sprintf("pod-%06d", i), unschedulableCPU), metav1.CreateOptions{})
			return err
		}); err != nil {
			return err
		}
		last := metav1.ListOptions{FieldSelector: fmt.Sprintf("metadata.name=pod-%06d", unschedulable-1)}
		return poll(ctx, schedulingTimeout, "the last pod's condition", func() bool {
			list, err := pods.List(ctx, last)
			return err == nil && len(list.Items) == 1 && len(list.Items[0].Status.Conditions) > 0
		})
	})
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("find %d pods unschedulable, with creates", unschedulable), "", unschedulable, w)
	if err := wait(ctx, unschedulableIdle); err != nil {
		return err
	}
	for _, idle := range []struct {
		what string
		d    time.Duration
	}{{"idle CPU", unschedulableIdle}, {"CPU over 5 minutes, in which each is tried again,", unschedulableRetry}} {
		if w, err = b.cluster.spend(func() error { return wait(ctx, idle.d) }); err != nil {
			return err
		}
		b.table.add(fmt.Sprintf("%d nodes: %s with %d unschedulable pods", b.nodes, idle.what, unschedulable), "1 %", "%.2f %%", 100*float64(w.used)/float64(w.took))
	}
	return b.deletePods(ctx, namespace)
}
