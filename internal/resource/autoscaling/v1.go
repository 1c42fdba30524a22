package autoscaling

import (
	"encoding/json"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/amount"
)

// The annotations that hold the v2 fields which v1 lacks, as JSON of the
// Metric types of autoscaling/v1 and of v2's behavior.
const (
	metricsAnnotation    = "autoscaling.alpha.kubernetes.io/metrics"
	statusesAnnotation   = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorAnnotation   = "autoscaling.alpha.kubernetes.io/behavior"
)

func isCPUUtilization(m *autoscalingv2.MetricSpec) bool {
	return m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil &&
		m.Resource.Name == corev1.ResourceCPU && m.Resource.Target.AverageUtilization != nil
}

func isCPUStatus(m *autoscalingv2.MetricStatus) bool {
	return m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil &&
		m.Resource.Name == corev1.ResourceCPU && m.Resource.Current.AverageUtilization != nil
}

// toV1 moves the first CPU utilization metric to v1's field, and everything
// else that v1 lacks to annotations.
func toV1(a *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv1.HorizontalPodAutoscaler {
	out := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: a.ObjectMeta}
	out.Spec = autoscalingv1.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(a.Spec.ScaleTargetRef),
		MinReplicas:    a.Spec.MinReplicas,
		MaxReplicas:    a.Spec.MaxReplicas,
	}
	out.Status = autoscalingv1.HorizontalPodAutoscalerStatus{
		ObservedGeneration: a.Status.ObservedGeneration,
		LastScaleTime:      a.Status.LastScaleTime,
		CurrentReplicas:    a.Status.CurrentReplicas,
		DesiredReplicas:    a.Status.DesiredReplicas,
	}
	var metrics []autoscalingv1.MetricSpec
	for i := range a.Spec.Metrics {
		if m := &a.Spec.Metrics[i]; isCPUUtilization(m) && out.Spec.TargetCPUUtilizationPercentage == nil {
			out.Spec.TargetCPUUtilizationPercentage = m.Resource.Target.AverageUtilization
		} else {
			metrics = append(metrics, metricToV1(m))
		}
	}
	var statuses []autoscalingv1.MetricStatus
	for i := range a.Status.CurrentMetrics {
		m := &a.Status.CurrentMetrics[i]
		if isCPUStatus(m) && out.Status.CurrentCPUUtilizationPercentage == nil {
			out.Status.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
		}
		statuses = append(statuses, statusToV1(m))
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	for _, c := range a.Status.Conditions {
		conditions = append(conditions, autoscalingv1.HorizontalPodAutoscalerCondition{
			Type: autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message, ObservedGeneration: c.ObservedGeneration,
		})
	}
	deleteAnnotations(&out.ObjectMeta)
	setAnnotation(&out.ObjectMeta, metricsAnnotation, metrics, len(metrics) > 0)
	setAnnotation(&out.ObjectMeta, statusesAnnotation, statuses, len(statuses) > 0)
	setAnnotation(&out.ObjectMeta, conditionsAnnotation, conditions, len(conditions) > 0)
	setAnnotation(&out.ObjectMeta, behaviorAnnotation, a.Spec.Behavior, a.Spec.Behavior != nil)
	return out
}

// fromV1 is the reverse of toV1. It drops annotations that toV1 could not have
// written.
func fromV1(a *autoscalingv1.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler {
	out := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: a.ObjectMeta}
	out.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(a.Spec.ScaleTargetRef),
		MinReplicas:    a.Spec.MinReplicas,
		MaxReplicas:    a.Spec.MaxReplicas,
	}
	out.Status = autoscalingv2.HorizontalPodAutoscalerStatus{
		ObservedGeneration: a.Status.ObservedGeneration,
		LastScaleTime:      a.Status.LastScaleTime,
		CurrentReplicas:    a.Status.CurrentReplicas,
		DesiredReplicas:    a.Status.DesiredReplicas,
	}
	if a.Spec.TargetCPUUtilizationPercentage != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, cpuUtilization(*a.Spec.TargetCPUUtilizationPercentage))
	}
	var metrics []autoscalingv1.MetricSpec
	if decodeAnnotation(&a.ObjectMeta, metricsAnnotation, &metrics) {
		for i := range metrics {
			out.Spec.Metrics = append(out.Spec.Metrics, metricFromV1(&metrics[i]))
		}
	}
	if len(out.Spec.Metrics) == 0 {
		out.Spec.Metrics = []autoscalingv2.MetricSpec{cpuUtilization(defaultCPUUtilization)}
	}
	var behavior autoscalingv2.HorizontalPodAutoscalerBehavior
	if decodeAnnotation(&a.ObjectMeta, behaviorAnnotation, &behavior) {
		out.Spec.Behavior = &behavior
		defaultAutoscaler(out)
	}
	var statuses []autoscalingv1.MetricStatus
	if decodeAnnotation(&a.ObjectMeta, statusesAnnotation, &statuses) {
		for i := range statuses {
			out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, statusFromV1(&statuses[i]))
		}
	} else if a.Status.CurrentCPUUtilizationPercentage != nil {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricStatus{
				Name:    corev1.ResourceCPU,
				Current: autoscalingv2.MetricValueStatus{AverageUtilization: a.Status.CurrentCPUUtilizationPercentage},
			},
		}}
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	if decodeAnnotation(&a.ObjectMeta, conditionsAnnotation, &conditions) {
		for _, c := range conditions {
			out.Status.Conditions = append(out.Status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{
				Type: autoscalingv2.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status,
				LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message, ObservedGeneration: c.ObservedGeneration,
			})
		}
	}
	deleteAnnotations(&out.ObjectMeta)
	return out
}

func setAnnotation(meta *metav1.ObjectMeta, annotation string, value any, present bool) {
	if !present {
		return
	}
	data, err := json.Marshal(value)
	if err != nil {
		return
	}
	if meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	meta.Annotations[annotation] = string(data)
}

func decodeAnnotation(meta *metav1.ObjectMeta, annotation string, into any) bool {
	data, ok := meta.Annotations[annotation]
	return ok && amount.CheckJSON(into, []byte(data)) == nil && json.Unmarshal([]byte(data), into) == nil
}

func deleteAnnotations(meta *metav1.ObjectMeta) {
	kept := map[string]string{}
	for key, value := range meta.Annotations {
		switch key {
		case metricsAnnotation, statusesAnnotation, conditionsAnnotation, behaviorAnnotation:
		default:
			kept[key] = value
		}
	}
	if len(kept) != len(meta.Annotations) {
		meta.Annotations = kept
	}
}

func metricToV1(m *autoscalingv2.MetricSpec) autoscalingv1.MetricSpec {
	out := autoscalingv1.MetricSpec{Type: autoscalingv1.MetricSourceType(m.Type)}
	if o := m.Object; o != nil {
		out.Object = &autoscalingv1.ObjectMetricSource{
			Target: autoscalingv1.CrossVersionObjectReference(o.DescribedObject), MetricName: o.Metric.Name,
			TargetValue: ptr.Deref(o.Target.Value, zero()), Selector: o.Metric.Selector, AverageValue: o.Target.AverageValue,
		}
	}
	if p := m.Pods; p != nil {
		out.Pods = &autoscalingv1.PodsMetricSource{
			MetricName: p.Metric.Name, TargetAverageValue: ptr.Deref(p.Target.AverageValue, zero()), Selector: p.Metric.Selector,
		}
	}
	if r := m.Resource; r != nil {
		out.Resource = &autoscalingv1.ResourceMetricSource{
			Name: r.Name, TargetAverageUtilization: r.Target.AverageUtilization, TargetAverageValue: r.Target.AverageValue,
		}
	}
	if c := m.ContainerResource; c != nil {
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricSource{
			Name: c.Name, Container: c.Container,
			TargetAverageUtilization: c.Target.AverageUtilization, TargetAverageValue: c.Target.AverageValue,
		}
	}
	if e := m.External; e != nil {
		out.External = &autoscalingv1.ExternalMetricSource{
			MetricName: e.Metric.Name, MetricSelector: e.Metric.Selector,
			TargetValue: e.Target.Value, TargetAverageValue: e.Target.AverageValue,
		}
	}
	return out
}

func metricFromV1(m *autoscalingv1.MetricSpec) autoscalingv2.MetricSpec {
	out := autoscalingv2.MetricSpec{Type: autoscalingv2.MetricSourceType(m.Type)}
	if o := m.Object; o != nil {
		target := averageTarget(nil, o.AverageValue)
		if o.AverageValue == nil {
			target = autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: &o.TargetValue}
		}
		out.Object = &autoscalingv2.ObjectMetricSource{
			DescribedObject: autoscalingv2.CrossVersionObjectReference(o.Target), Target: target,
			Metric: autoscalingv2.MetricIdentifier{Name: o.MetricName, Selector: o.Selector},
		}
	}
	if p := m.Pods; p != nil {
		out.Pods = &autoscalingv2.PodsMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: p.MetricName, Selector: p.Selector},
			Target: averageTarget(nil, &p.TargetAverageValue),
		}
	}
	if r := m.Resource; r != nil {
		out.Resource = &autoscalingv2.ResourceMetricSource{
			Name: r.Name, Target: averageTarget(r.TargetAverageUtilization, r.TargetAverageValue),
		}
	}
	if c := m.ContainerResource; c != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricSource{
			Name: c.Name, Container: c.Container, Target: averageTarget(c.TargetAverageUtilization, c.TargetAverageValue),
		}
	}
	if e := m.External; e != nil {
		target := averageTarget(nil, e.TargetAverageValue)
		if e.TargetValue != nil {
			target = autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: e.TargetValue}
		}
		out.External = &autoscalingv2.ExternalMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: e.MetricName, Selector: e.MetricSelector}, Target: target,
		}
	}
	return out
}
