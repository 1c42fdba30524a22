package devicetainteviction

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	applyresource "k8s.io/client-go/applyconfigurations/resource/v1"

	"github.com/coracle-io/coracle/internal/controller"
)

// ruleStatusPeriod is the shortest time between two updates of a rule's status.
const ruleStatusPeriod = 10 * time.Second

// syncRule writes the condition EvictionInProgress of a rule. For the effect
// None it says once, for each generation, what NoExecute would do.
func (c *evictor) syncRule(ctx context.Context, k key) error {
	obj, exists, err := c.rules.GetByKey(k.Name)
	if err != nil || !exists {
		return err
	}
	rule := obj.(*resourceapi.DeviceTaintRule)
	now := time.Now()
	before := meta.FindStatusCondition(rule.Status.Conditions, resourceapi.DeviceTaintConditionEvictionInProgress)
	if before != nil && before.ObservedGeneration == rule.Generation {
		if rule.Spec.Taint.Effect == resourceapi.DeviceTaintEffectNone {
			return nil
		}
		if since := now.Sub(before.LastTransitionTime.Time); since < ruleStatusPeriod {
			c.queue.AddAfter(k, ruleStatusPeriod-since)
			return nil
		}
	}
	c.mu.Lock()
	evicted := c.evicted[rule.UID]
	c.mu.Unlock()
	status, reason, message := c.progress(rule, evicted, now)
	if status == metav1.ConditionTrue { // pods may leave by themselves
		c.queue.AddAfter(k, ruleStatusPeriod)
	}
	if before != nil && before.Status == status && before.Reason == reason && before.Message == message && before.ObservedGeneration == rule.Generation {
		return nil
	}
	condition := applymeta.Condition().WithType(resourceapi.DeviceTaintConditionEvictionInProgress).WithStatus(status).WithReason(reason).
		WithMessage(message).WithObservedGeneration(rule.Generation).WithLastTransitionTime(metav1.NewTime(now))
	_, err = c.kube.ResourceV1().DeviceTaintRules().ApplyStatus(ctx,
		applyresource.DeviceTaintRule(rule.Name).WithUID(rule.UID).WithStatus(applyresource.DeviceTaintRuleStatus().WithConditions(condition)),
		metav1.ApplyOptions{FieldManager: name, Force: true})
	if err := controller.IgnoreNotFoundOrConflict(err); err != nil {
		return fmt.Errorf("writing the status of DeviceTaintRule %s: %w", rule.Name, err)
	}
	return nil
}

// progress returns what the condition EvictionInProgress says of a rule for
// which so many pods were evicted.
func (c *evictor) progress(rule *resourceapi.DeviceTaintRule, evicted int, now time.Time) (status metav1.ConditionStatus, reason, message string) {
	var sentences []string
	status = metav1.ConditionFalse
	switch rule.Spec.Taint.Effect {
	case resourceapi.DeviceTaintEffectNoExecute:
		pods, namespaces := c.affected(rule, now)
		switch {
		case pods > 0:
			status, reason = metav1.ConditionTrue, "PodsPendingEviction"
			sentences = append(sentences, fmt.Sprintf("%s to be evicted in %s.", plural(pods, "pod needs", "pods need"), plural(namespaces, "namespace", "different namespaces")))
		case evicted > 0:
			reason = "Completed"
		default:
			reason = "NotStarted"
		}
	case resourceapi.DeviceTaintEffectNone:
		reason = "NoEffect"
		trial := rule.DeepCopy()
		trial.Spec.Taint.Effect = resourceapi.DeviceTaintEffectNoExecute
		pods, namespaces := c.affected(trial, now)
		published, allocated := c.selected(rule)
		sentences = append(sentences,
			plural(published, "published device", "published devices")+" selected.",
			plural(allocated, "allocated device", "allocated devices")+" selected.",
			fmt.Sprintf("%s would be evicted in %s if the effect was NoExecute.", plural(pods, "pod", "pods"), plural(namespaces, "namespace", "different namespaces")),
			"This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.")
	default:
		reason = "OtherEffect"
		sentences = append(sentences, "Eviction only happens for the NoExecute effect.")
	}
	if evicted > 0 {
		sentences = append(sentences, plural(evicted, "pod", "pods")+" evicted since starting the controller.")
	}
	return status, reason, strings.Join(sentences, " ")
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// affected counts the pods that are to be evicted because of a rule, now or
// later, and their namespaces.
func (c *evictor) affected(rule *resourceapi.DeviceTaintRule, now time.Time) (pods, namespaces int) {
	in := map[string]bool{}
	rules := []*resourceapi.DeviceTaintRule{rule}
	for _, pod := range typed[*v1.Pod](c.pods.List()) {
		if pod.DeletionTimestamp != nil {
			continue
		}
		if e, found := c.evictionOf(pod, rules, now); found && len(e.rules) > 0 {
			pods++
			in[pod.Namespace] = true
		}
	}
	return pods, len(in)
}

// selected counts the devices that a rule selects: published ones, in the latest
// generation of each pool, and allocated ones.
func (c *evictor) selected(rule *resourceapi.DeviceTaintRule) (published, allocated int) {
	for _, key := range c.slices.ListIndexFuncValues(byPool) {
		pool := c.slicesOf(key)
		latest := latestGeneration(pool)
		for _, slice := range pool {
			if slice.Spec.Pool.Generation != latest {
				continue
			}
			for i := range slice.Spec.Devices {
				if selectsDevice(rule, slice.Spec.Driver, slice.Spec.Pool.Name, slice.Spec.Devices[i].Name) {
					published++
				}
			}
		}
	}
	for _, claim := range typed[*resourceapi.ResourceClaim](c.claims.List()) {
		if claim.Status.Allocation == nil {
			continue
		}
		for i := range claim.Status.Allocation.Devices.Results {
			r := &claim.Status.Allocation.Devices.Results[i]
			if selectsDevice(rule, r.Driver, r.Pool, r.Device) {
				allocated++
			}
		}
	}
	return published, allocated
}
