package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/klog/v2"
)

// protectedBy returns whether a disruption budget allows no more evictions of
// a pod now.
func protectedBy(budgets policylisters.PodDisruptionBudgetLister) func(*v1.Pod) bool {
	return func(pod *v1.Pod) bool {
		list, err := budgets.PodDisruptionBudgets(pod.Namespace).List(labels.Everything())
		if err != nil {
			return false
		}
		for _, b := range list {
			selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			if err != nil || selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) {
				continue
			}
			if _, already := b.Status.DisruptedPods[pod.Name]; !already && b.Status.DisruptionsAllowed <= 0 {
				return true
			}
		}
		return false
	}
}

// makeRoom decides about a preemption and returns what to add to the pod's
// message. Nothing is decided while victims of an earlier one are leaving.
func (s *Scheduler) makeRoom(ctx context.Context, it *item, unfit *fitError) string {
	c, why := s.findRoom(it, unfit)
	if c == nil {
		return why
	}
	if err := s.evict(ctx, it.pod.Pod, c); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Preemption failed", "pod", klog.KObj(it.pod.Pod), "node", c.node)
		return ""
	}
	s.metrics.victims.Observe(float64(len(c.victims)))
	it.nominated = c.node
	return ""
}

// findRoom chooses a node and the pods that must leave it, or says why there
// is none.
func (s *Scheduler) findRoom(it *item, unfit *fitError) (*candidate, string) {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	if !s.queue.expects(it) {
		return nil, "the pod is gone or has changed"
	}
	if s.leaving(it) {
		return nil, "not eligible due to a terminating pod on the nominated node"
	}
	s.metrics.preemptions.Inc()
	began := time.Now()
	c, why := s.profile.preempt(it.pod, &s.cache.cluster, unfit, s.protected)
	s.metrics.point("PostFilter", s.name, c != nil, time.Since(began))
	return c, why
}

// leaving reports whether the node that room was made on still has pods of
// lower priority that are terminating; called with the cache locked.
func (s *Scheduler) leaving(it *item) bool {
	name := it.nominated
	if name == "" {
		name = it.pod.Pod.Status.NominatedNodeName
	}
	n, ok := s.cache.cluster.ByName[name]
	if !ok {
		return false
	}
	for _, p := range n.Pods {
		if p.Pod.DeletionTimestamp != nil && p.Priority < it.pod.Priority {
			return true
		}
	}
	return false
}

// evict removes the victims and notes on the pod where room is being made.
func (s *Scheduler) evict(ctx context.Context, pod *v1.Pod, c *candidate) error {
	pods := s.client.Kubernetes.CoreV1()
	for _, victim := range c.victims {
		v := victim.Pod
		condition, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []v1.PodCondition{{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler,
			Message:            fmt.Sprintf("%s: preempting to accommodate a higher priority pod", s.name),
			LastTransitionTime: metav1.Now(), ObservedGeneration: v.Generation,
		}}}})
		if err != nil {
			return err
		}
		if _, err := pods.Pods(v.Namespace).Patch(ctx, v.Name, types.StrategicMergePatchType, condition, metav1.PatchOptions{}, "status"); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("mark victim %s: %w", klog.KObj(v), err)
		}
		err = pods.Pods(v.Namespace).Delete(ctx, v.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(v.UID))})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete victim %s: %w", klog.KObj(v), err)
		}
		s.events.Eventf(v, pod, v1.EventTypeNormal, "Preempted", "Preempting", "Preempted by pod %v on node %v", pod.UID, c.node)
		klog.FromContext(ctx).V(1).Info("Preempted pod", "victim", klog.KObj(v), "node", c.node, "for", klog.KObj(pod))
	}
	nominate, err := json.Marshal(map[string]any{"status": map[string]any{"nominatedNodeName": c.node}})
	if err != nil {
		return err
	}
	_, err = pods.Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, nominate, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
