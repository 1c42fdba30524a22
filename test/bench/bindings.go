package main

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// bindings observes which pods of a namespace are bound.
type bindings struct {
	watch watch.Interface
	bound map[string]time.Time
}

// follow creates a namespace and watches the bound pods in it.
func (b *scheduling) follow(ctx context.Context, namespace string) (*bindings, error) {
	if err := makeNamespace(ctx, b.client, namespace); err != nil {
		return nil, err
	}
	w, err := b.client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName!="})
	if err != nil {
		return nil, err
	}
	return &bindings{watch: w, bound: map[string]time.Time{}}, nil
}

func (s *bindings) stop() { s.watch.Stop() }

// until waits until n pods are bound. It returns an error of other work that
// ends before.
func (s *bindings) until(ctx context.Context, n int, other <-chan error) error {
	timeout := time.After(schedulingTimeout)
	for len(s.bound) < n {
		select {
		case event, open := <-s.watch.ResultChan():
			if !open {
				return fmt.Errorf("the watch ended with %d pods bound", len(s.bound))
			}
			if pod, ok := event.Object.(*v1.Pod); ok {
				if _, known := s.bound[pod.Name]; !known {
					s.bound[pod.Name] = time.Now()
				}
			}
		case err := <-other:
			if err != nil {
				return err
			}
			other = nil
		case <-timeout:
			return fmt.Errorf("only %d of %d pods are bound", len(s.bound), n)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// work holds the duration of a step, and the CPU time that the cluster used for
// it.
type work struct{ took, used time.Duration }

// spend runs a step and measures it.
func (c *cluster) spend(step func() error) (work, error) {
	before, err := c.cpuTimes()
	if err != nil {
		return work{}, err
	}
	began := time.Now()
	if err := step(); err != nil {
		return work{}, err
	}
	w := work{took: time.Since(began)}
	after, err := c.cpuTimes()
	for i := range after {
		w.used += after[i] - before[i]
	}
	return w, err
}

// holdLease makes the bench the leader of the schedulers, so that none works,
// until release is called. A scheduler that leads gives up when it could not
// renew its lease for ten seconds.
func (b *scheduling) holdLease(ctx context.Context) (release func(context.Context) error, err error) {
	leases := b.client.CoordinationV1().Leases("kube-system")
	take := func(holder string, seconds int32) error {
		lease, err := leases.Get(ctx, "kube-scheduler", metav1.GetOptions{})
		if err != nil {
			return err
		}
		now := metav1.NowMicro()
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &holder, &seconds
		lease.Spec.AcquireTime, lease.Spec.RenewTime = &now, &now
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	}
	const enough = 300
	if err := poll(ctx, time.Minute, "the scheduler's lease", func() bool { return take("bench", enough) == nil }); err != nil {
		return nil, err
	}
	select {
	case <-time.After(15 * time.Second):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return func(context.Context) error { return take("", 1) }, nil
}
