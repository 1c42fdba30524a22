package podautoscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	autoscaling "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/feature"
)

// reconcile decides once, scales the target and writes the status.
func (c *autoscaler) reconcile(ctx context.Context, shared *autoscaling.HorizontalPodAutoscaler, k *known) error {
	hpa := shared.DeepCopy()
	hpa.Status.ObservedGeneration = nil
	if hpa.Generation != 0 && c.env.Features.Enabled(feature.HPAGeneration) {
		hpa.Status.ObservedGeneration = &hpa.Generation
	}
	begin := time.Now()
	scaled := c.scale(ctx, hpa, k, begin)
	c.counts.reconciled(hpa.Status.CurrentReplicas, changedTo(shared, hpa), scaled, time.Since(begin))
	c.counts.desired.WithLabelValues(hpa.Namespace, hpa.Name).Set(float64(hpa.Status.DesiredReplicas))
	if equality.Semantic.DeepEqual(&shared.Status, &hpa.Status) {
		return scaled
	}
	updated, err := c.env.Client.Kubernetes.AutoscalingV2().HorizontalPodAutoscalers(hpa.Namespace).UpdateStatus(ctx, hpa, metav1.UpdateOptions{})
	if err != nil {
		c.env.Events.Event(shared, v1.EventTypeWarning, "FailedUpdateStatus", err.Error())
		return fmt.Errorf("failed to update status for %s: %w", hpa.Name, err)
	}
	k.written = updated.ResourceVersion
	return scaled
}

// changedTo returns the replicas after a reconciliation.
func changedTo(before, after *autoscaling.HorizontalPodAutoscaler) int32 {
	if after.Status.LastScaleTime.Equal(before.Status.LastScaleTime) {
		return after.Status.CurrentReplicas
	}
	return after.Status.DesiredReplicas
}

// scale scales the target of an autoscaler, and sets its status.
func (c *autoscaler) scale(ctx context.Context, hpa *autoscaling.HorizontalPodAutoscaler, k *known, now time.Time) error {
	t, err := c.targets.get(ctx, hpa.Namespace, hpa.Spec.ScaleTargetRef)
	if err != nil {
		cause := err
		if step := (*errTarget)(nil); errors.As(err, &step) {
			cause, err = step.error, fmt.Errorf("%s: %w", step.step, step.error)
		}
		c.env.Events.Event(hpa, v1.EventTypeWarning, "FailedGetScale", cause.Error())
		setCondition(hpa, autoscaling.AbleToScale, v1.ConditionFalse, "FailedGetScale", fmt.Sprintf("the HPA controller was unable to get the target's current scale: %v", cause))
		return err
	}
	setCondition(hpa, autoscaling.AbleToScale, v1.ConditionTrue, "SucceededGetScale", "the HPA controller was able to get the target's current scale")
	current := t.scale.Spec.Replicas
	hpa.Status.CurrentReplicas = current
	switch {
	case !c.env.Features.Enabled(feature.HPAScaleToZero): // the condition does not count
	case current > 0 && scaledToZero(hpa):
		setScaledToZero(hpa, false) // a user has added replicas, so that the next zero may be a user's, too
	case current == 0 && k.zeroed:
		setScaledToZero(hpa, true) // the last status may not have been written
	}
	k.zeroed = k.zeroed && current == 0
	if len(k.history.recommended) == 0 {
		k.history.recommended = []event{{current, now}} // so that a restart of the controller removes no replicas
	}
	desired, why, failed := c.decide(ctx, hpa, k, t, now)
	if desired < 0 {
		c.env.Events.Event(hpa, v1.EventTypeWarning, "FailedComputeMetricsReplicas", failed.Error())
		return fmt.Errorf("failed to compute desired number of replicas based on listed metrics for %s: %w", reference(hpa), failed)
	}
	if desired == current {
		hpa.Status.DesiredReplicas = desired
		return failed
	}
	if err := c.targets.set(ctx, t, desired); err != nil {
		c.env.Events.Eventf(hpa, v1.EventTypeWarning, "FailedRescale", "New size: %d; reason: %s; error: %v", desired, why, err)
		setCondition(hpa, autoscaling.AbleToScale, v1.ConditionFalse, "FailedUpdateScale", fmt.Sprintf("the HPA controller was unable to update the target scale: %v", err))
		return fmt.Errorf("failed to rescale %s: %w", reference(hpa), err)
	}
	k.history.record(behaviorOf(hpa), current, desired, now)
	hpa.Status.DesiredReplicas = desired
	hpa.Status.LastScaleTime = &metav1.Time{Time: now}
	setCondition(hpa, autoscaling.AbleToScale, v1.ConditionTrue, "SucceededRescale", fmt.Sprintf("the HPA controller was able to update the target scale to %d", desired))
	k.zeroed = desired == 0 && needsNoPods(hpa)
	if c.env.Features.Enabled(feature.HPAScaleToZero) {
		setScaledToZero(hpa, k.zeroed)
	} else {
		removeScaledToZero(hpa)
	}
	c.env.Events.Eventf(hpa, v1.EventTypeNormal, "SuccessfulRescale", "New size: %d; reason: %s", desired, why)
	return failed
}

func reference(hpa *autoscaling.HorizontalPodAutoscaler) string {
	return strings.Join([]string{hpa.Spec.ScaleTargetRef.Kind, hpa.Namespace, hpa.Spec.ScaleTargetRef.Name}, "/")
}

const belowMinimum = "Current number of replicas below Spec.MinReplicas"

// decide returns the number of replicas and why it differs from the current
// one. It is negative if the metrics give none. An error beside a number is of
// metrics that were left out.
func (c *autoscaler) decide(ctx context.Context, hpa *autoscaling.HorizontalPodAutoscaler, k *known, t *target, now time.Time) (desired int32, why string, err error) {
	minimum, current := ptr.Deref(hpa.Spec.MinReplicas, 1), t.scale.Spec.Replicas
	switch {
	case current == 0 && !c.scalesFromZero(hpa, minimum):
		if !c.env.Features.Enabled(feature.HPAScaleToZero) {
			removeScaledToZero(hpa)
		}
		setCondition(hpa, autoscaling.ScalingActive, v1.ConditionFalse, "ScalingDisabled", "scaling is disabled since the replica count of the target is zero")
		hpa.Status.CurrentMetrics = nil
		return 0, "", nil
	case current > hpa.Spec.MaxReplicas:
		hpa.Status.CurrentMetrics = nil
		return hpa.Spec.MaxReplicas, "Current number of replicas above Spec.MaxReplicas", nil
	case current > 0 && current < minimum:
		hpa.Status.CurrentMetrics = nil
		return minimum, belowMinimum, nil
	}
	proposed, metric, err := c.propose(ctx, hpa, t, now)
	if proposed < 0 {
		return proposed, "", err
	}
	switch {
	case proposed > current:
		why = metric + " above target"
	case proposed < current:
		why = "All metrics below target"
	}
	out := k.history.apply(&limits{minimum, hpa.Spec.MaxReplicas, behaviorOf(hpa), c.options.stabilization}, current, proposed, now)
	if current == 0 && out.replicas <= minimum { // the minimum may have been raised since the last replica was removed
		out.replicas = minimum
		if why == "" {
			why = belowMinimum
		}
	}
	setCondition(hpa, autoscaling.AbleToScale, v1.ConditionTrue, out.able.reason, out.able.message)
	limited := v1.ConditionFalse
	if out.isLimited {
		limited = v1.ConditionTrue
	}
	setCondition(hpa, autoscaling.ScalingLimited, limited, out.limited.reason, out.limited.message)
	return out.replicas, why, err
}

// scalesFromZero reports whether a target without replicas gets some again: the
// controller has removed the last one, and a minimum or a metric that needs no pods
// says how many there are to be.
func (c *autoscaler) scalesFromZero(hpa *autoscaling.HorizontalPodAutoscaler, minimum int32) bool {
	return c.env.Features.Enabled(feature.HPAScaleToZero) && scaledToZero(hpa) && (minimum != 0 || needsNoPods(hpa))
}

// needsNoPods reports whether an autoscaler has a metric that there is without pods.
func needsNoPods(hpa *autoscaling.HorizontalPodAutoscaler) bool {
	return slices.ContainsFunc(hpa.Spec.Metrics, func(m autoscaling.MetricSpec) bool {
		return m.Type == autoscaling.ObjectMetricSourceType || m.Type == autoscaling.ExternalMetricSourceType
	})
}

// scaledToZero reports whether the controller itself has removed the last
// replica. Replicas that a user has set to zero pause the autoscaler.
func scaledToZero(hpa *autoscaling.HorizontalPodAutoscaler) bool {
	i := slices.IndexFunc(hpa.Status.Conditions, func(c autoscaling.HorizontalPodAutoscalerCondition) bool { return c.Type == autoscaling.ScaledToZero })
	return i >= 0 && hpa.Status.Conditions[i].Status == v1.ConditionTrue
}

func setScaledToZero(hpa *autoscaling.HorizontalPodAutoscaler, is bool) {
	if is {
		setCondition(hpa, autoscaling.ScaledToZero, v1.ConditionTrue, "ScaledToZero", "the HPA controller scaled the workload to zero")
	} else {
		setCondition(hpa, autoscaling.ScaledToZero, v1.ConditionFalse, "NotScaledToZero", "the HPA controller did not scale the workload to zero")
	}
}

// removeScaledToZero removes the condition that setScaledToZero sets.
func removeScaledToZero(hpa *autoscaling.HorizontalPodAutoscaler) {
	hpa.Status.Conditions = slices.DeleteFunc(hpa.Status.Conditions, func(c autoscaling.HorizontalPodAutoscalerCondition) bool { return c.Type == autoscaling.ScaledToZero })
}

// behaviorOf returns the behaviour of an autoscaler that has one with both
// directions. The API server sets the defaults.
func behaviorOf(hpa *autoscaling.HorizontalPodAutoscaler) *autoscaling.HorizontalPodAutoscalerBehavior {
	if b := hpa.Spec.Behavior; b != nil && b.ScaleUp != nil && b.ScaleDown != nil {
		return b
	}
	return nil
}

// propose returns the most replicas that a metric asks for, and the name of
// that metric. Metrics that fail are left out, unless all do, or the others
// would remove replicas: then the number is negative.
func (c *autoscaler) propose(ctx context.Context, hpa *autoscaling.HorizontalPodAutoscaler, t *target, now time.Time) (replicas int32, metric string, err error) {
	w, err := c.workload(hpa, t, now)
	if err != nil {
		return -1, "", err
	}
	var first *failure
	failed := 0
	replicas = -1
	hpa.Status.CurrentMetrics = make([]autoscaling.MetricStatus, len(hpa.Spec.Metrics))
	for i := range hpa.Spec.Metrics {
		begin, kind := time.Now(), string(hpa.Spec.Metrics[i].Type)
		p, failure := w.propose(ctx, c.metrics, &hpa.Spec.Metrics[i])
		if failure != nil {
			c.counts.computed(kind, w.spec, w.spec, failure.detail, time.Since(begin))
			c.env.Events.Event(hpa, v1.EventTypeWarning, failure.condition, failure.detail.Error())
			if failed++; first == nil {
				first = failure
			}
			continue
		}
		c.counts.computed(kind, w.spec, p.replicas, nil, time.Since(begin))
		hpa.Status.CurrentMetrics[i] = p.status
		if p.replicas > replicas {
			replicas, metric = p.replicas, p.metric
		}
	}
	hpa.Status.CurrentMetrics = slices.DeleteFunc(hpa.Status.CurrentMetrics, func(s autoscaling.MetricStatus) bool { return s.Type == "" })
	if first != nil {
		err = fmt.Errorf("invalid metrics (%d invalid out of %d), first error is: %w", failed, len(hpa.Spec.Metrics), first)
	}
	if failed == len(hpa.Spec.Metrics) || failed > 0 && replicas < w.spec {
		if first != nil {
			setCondition(hpa, autoscaling.ScalingActive, v1.ConditionFalse, first.condition, fmt.Sprintf("the HPA was unable to compute the replica count: %v", first.detail))
		}
		return -1, "", err
	}
	setCondition(hpa, autoscaling.ScalingActive, v1.ConditionTrue, "ValidMetricFound", "the HPA was able to successfully calculate a replica count from "+metric)
	return replicas, metric, err
}

const (
	// maxSelector bounds the selector of a target, in bytes. Each of very many autoscalers
	// of one target parses it every period, and compares it while the others wait.
	maxSelector = 16 << 10
	// mostNamed and shownSelector bound what the message about several autoscalers of a pod
	// names: each of them has it in its status.
	mostNamed, shownSelector = 10, 1 << 10
)

// ambiguous returns the message about several autoscalers of the same pods.
func ambiguous(selector string, all []controller.Key) string {
	others := ""
	if len(all) > mostNamed {
		all, others = all[:mostNamed], " and others"
	}
	return fmt.Sprintf("pods by selector %.*s are controlled by multiple HPAs: %v%s", shownSelector, selector, all, others)
}

// workload returns what the metrics are computed for. No other autoscaler may have
// its pods.
func (c *autoscaler) workload(hpa *autoscaling.HorizontalPodAutoscaler, t *target, now time.Time) (*workload, error) {
	invalid := func(event, reason, message, condition string) error {
		c.env.Events.Event(hpa, v1.EventTypeWarning, event, message)
		setCondition(hpa, autoscaling.ScalingActive, v1.ConditionFalse, reason, condition)
		return &errSpec{errors.New(message)}
	}
	if t.scale.Status.Selector == "" {
		return nil, invalid("SelectorRequired", "InvalidSelector", "selector is required", "the HPA target's scale is missing a selector")
	}
	if len(t.scale.Status.Selector) > maxSelector {
		message := fmt.Sprintf("the selector of the HPA target has more than %d bytes", maxSelector)
		return nil, invalid("InvalidSelector", "InvalidSelector", message, message)
	}
	selector, err := labels.Parse(t.scale.Status.Selector)
	if err != nil {
		message := fmt.Sprintf("couldn't convert selector into a corresponding internal selector object: %v", err)
		return nil, invalid("InvalidSelector", "InvalidSelector", message, message)
	}
	selected, err := pods.Selected(c.pods, hpa.Namespace, selector)
	if err != nil {
		return nil, err
	}
	if all := c.sharing(cache.MetaObjectToName(hpa), selector, selected); len(all) > 1 {
		message := ambiguous(t.scale.Status.Selector, all)
		return nil, invalid("AmbiguousSelector", "AmbiguousSelector", message, message)
	}
	r := c.options.readiness
	r.now = now
	return &workload{
		namespace: hpa.Namespace, spec: t.scale.Spec.Replicas, status: t.scale.Status.Replicas,
		selector: selector, pods: selected, readiness: r, tolerance: toleranceOf(hpa, c.options.tolerance),
	}, nil
}

// toleranceOf returns the tolerance of each direction, which the behaviour may
// set.
func toleranceOf(hpa *autoscaling.HorizontalPodAutoscaler, otherwise float64) tolerance {
	t := tolerance{otherwise, otherwise}
	if b := hpa.Spec.Behavior; b != nil {
		if b.ScaleDown != nil && b.ScaleDown.Tolerance != nil {
			t.down = b.ScaleDown.Tolerance.AsApproximateFloat64()
		}
		if b.ScaleUp != nil && b.ScaleUp.Tolerance != nil {
			t.up = b.ScaleUp.Tolerance.AsApproximateFloat64()
		}
	}
	return t
}

// distinctLabels returns each set of labels that a pod has. The pods of a
// Deployment have few sets; each pod of a StatefulSet has its own set.
func distinctLabels(pods []*v1.Pod) []labels.Set {
	var sets []labels.Set
	known := map[string]bool{}
	for _, p := range pods {
		set := labels.Set(p.Labels)
		if text := set.String(); !known[text] {
			known[text] = true
			sets = append(sets, set)
		}
	}
	return sets
}

// setCondition sets a condition, as of the present generation.
func setCondition(hpa *autoscaling.HorizontalPodAutoscaler, kind autoscaling.HorizontalPodAutoscalerConditionType, status v1.ConditionStatus, reason, message string) {
	all := hpa.Status.Conditions
	i := slices.IndexFunc(all, func(c autoscaling.HorizontalPodAutoscalerCondition) bool { return c.Type == kind })
	if i < 0 {
		all = append(all, autoscaling.HorizontalPodAutoscalerCondition{Type: kind})
		i = len(all) - 1
	}
	if all[i].Status != status {
		all[i].LastTransitionTime = metav1.Now()
	}
	all[i].Status, all[i].Reason, all[i].Message, all[i].ObservedGeneration = status, reason, message, hpa.Status.ObservedGeneration
	hpa.Status.Conditions = all
}
