package autoscaling

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/printers"
)

const kind = "HorizontalPodAutoscaler"

// HorizontalPodAutoscalers is the resource horizontalpodautoscalers. Objects
// are stored as v2. v1 has annotations for what it has no fields for.
func HorizontalPodAutoscalers() *resource.Resource {
	hub := autoscalingv2.SchemeGroupVersion
	return resource.Define(resource.Definition[autoscalingv2.HorizontalPodAutoscaler, *autoscalingv2.HorizontalPodAutoscaler]{
		GroupVersion: hub,
		Names: resource.Names{
			Kind:       kind,
			Plural:     "horizontalpodautoscalers",
			ShortNames: []string{"hpa"},
			Categories: []string{"all"},
		},
		Other: []resource.Version{resource.OtherVersion(
			autoscalingv1.SchemeGroupVersion.WithKind(kind), hub.WithKind(kind), defaultAutoscalerV1, fromV1, toV1,
		)},
		Default: defaultAutoscaler,
		Status: resource.Status[*autoscalingv2.HorizontalPodAutoscaler]{
			Copy: func(a, from *autoscalingv2.HorizontalPodAutoscaler) { a.Status = from.Status },
			Validate: func(_ *resource.RequestContext, a, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
				return validateStatus(field.NewPath("status"), &a.Status)
			},
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*autoscalingv2.HorizontalPodAutoscaler]{
			PrepareForCreate: func(r *resource.RequestContext, a *autoscalingv2.HorizontalPodAutoscaler) {
				if r.Features.Enabled(feature.HPAGeneration) {
					a.Generation = 1
				}
			},
			PrepareForUpdate: func(r *resource.RequestContext, a, old *autoscalingv2.HorizontalPodAutoscaler) {
				if r.Features.Enabled(feature.HPAGeneration) && !resource.Equal(&a.Spec, &old.Spec) {
					a.Generation = old.Generation + 1
				}
			},
			Validate: func(r *resource.RequestContext, a *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
				return validateAutoscaler(r, field.NewPath("spec"), &a.Spec, nil)
			},
			ValidateUpdate: func(r *resource.RequestContext, a, old *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
				return validateAutoscaler(r, field.NewPath("spec"), &a.Spec, &old.Spec)
			},
		},
		Table: resource.Table[*autoscalingv2.HorizontalPodAutoscaler]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Reference", "string", autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["scaleTargetRef"]),
				resource.Column("Targets", "string", autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["metrics"]),
				resource.Column("MinPods", "string", autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["minReplicas"]),
				resource.Column("MaxPods", "string", autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["maxReplicas"]),
				resource.Column("Replicas", "string", autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()["currentReplicas"]),
				resource.AgeColumn(),
			},
			Row: autoscalerRow,
		},
	})
}

func cpuUtilization(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name:   corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
		},
	}
}

// defaultCPUUtilization is the target of an autoscaler without metrics, in
// percent of the CPU requests.
const defaultCPUUtilization = 80

// defaultAutoscaler also drops the annotations in which v1 has fields of v2.
func defaultAutoscaler(a *autoscalingv2.HorizontalPodAutoscaler) {
	deleteAnnotations(&a.ObjectMeta)
	defaults.Nil(&a.Spec.MinReplicas, 1)
	if len(a.Spec.Metrics) == 0 {
		a.Spec.Metrics = []autoscalingv2.MetricSpec{cpuUtilization(defaultCPUUtilization)}
	}
	if b := a.Spec.Behavior; b != nil {
		b.ScaleUp = defaultScaling(b.ScaleUp, 0, []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15},
			{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
		})
		b.ScaleDown = defaultScaling(b.ScaleDown, -1, []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
		})
	}
}

// defaultScaling sets the defaults of rules. A negative window stays unset,
// because a flag of the controller decides it.
func defaultScaling(r *autoscalingv2.HPAScalingRules, window int32, policies []autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
	defaults.Nil(&r, autoscalingv2.HPAScalingRules{})
	defaults.Nil(&r.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if window >= 0 {
		defaults.Nil(&r.StabilizationWindowSeconds, window)
	}
	if r.Policies == nil {
		r.Policies = policies
	}
	return r
}

func defaultAutoscalerV1(a *autoscalingv1.HorizontalPodAutoscaler) {
	defaults.Nil(&a.Spec.MinReplicas, 1)
}

func autoscalerRow(a *autoscalingv2.HorizontalPodAutoscaler, now time.Time) []any {
	minimum := printers.Unset
	if a.Spec.MinReplicas != nil {
		minimum = strconv.Itoa(int(*a.Spec.MinReplicas))
	}
	return []any{
		a.Name, a.Spec.ScaleTargetRef.Kind + "/" + a.Spec.ScaleTargetRef.Name, metricsCell(a.Spec.Metrics, a.Status.CurrentMetrics),
		minimum, int64(a.Spec.MaxReplicas), int64(a.Status.CurrentReplicas), resource.Age(a.CreationTimestamp, now),
	}
}

// shownMetrics is how many metrics a table cell shows.
const shownMetrics = 2

func metricsCell(specs []autoscalingv2.MetricSpec, statuses []autoscalingv2.MetricStatus) string {
	if len(specs) == 0 {
		return printers.None
	}
	var metrics []string
	for i := range specs {
		var current *autoscalingv2.MetricValueStatus
		if i < len(statuses) {
			current = currentValue(&statuses[i])
		}
		metrics = append(metrics, metricCell(&specs[i], current))
	}
	if len(metrics) > shownMetrics {
		return fmt.Sprintf("%s + %d more...", strings.Join(metrics[:shownMetrics], ", "), len(metrics)-shownMetrics)
	}
	return strings.Join(metrics, ", ")
}

func metricCell(m *autoscalingv2.MetricSpec, current *autoscalingv2.MetricValueStatus) string {
	switch {
	case m.External != nil:
		return targetCell(&m.External.Target, current, " (avg)")
	case m.Pods != nil:
		return targetCell(&m.Pods.Target, current, "")
	case m.Object != nil:
		return targetCell(&m.Object.Target, current, " (avg)")
	case m.Resource != nil:
		return m.Resource.Name.String() + ": " + targetCell(&m.Resource.Target, current, "")
	case m.ContainerResource != nil:
		return m.ContainerResource.Name.String() + ": " + targetCell(&m.ContainerResource.Target, current, "")
	default:
		return "<unknown type>"
	}
}

func targetCell(t *autoscalingv2.MetricTarget, current *autoscalingv2.MetricValueStatus, average string) string {
	now, want := "<unknown>", "<auto>"
	switch {
	case t.AverageValue != nil:
		want = t.AverageValue.String() + average
		if current != nil && current.AverageValue != nil {
			now = current.AverageValue.String()
		}
	case t.Value != nil:
		want = t.Value.String()
		if current != nil && current.Value != nil {
			now = current.Value.String()
		}
	case t.AverageUtilization != nil:
		want = fmt.Sprintf("%d%%", *t.AverageUtilization)
		if current != nil && current.AverageUtilization != nil {
			now = fmt.Sprintf("%d%%", *current.AverageUtilization)
		}
	}
	return now + "/" + want
}

func currentValue(s *autoscalingv2.MetricStatus) *autoscalingv2.MetricValueStatus {
	switch {
	case s.External != nil:
		return &s.External.Current
	case s.Pods != nil:
		return &s.Pods.Current
	case s.Object != nil:
		return &s.Object.Current
	case s.Resource != nil:
		return &s.Resource.Current
	case s.ContainerResource != nil:
		return &s.ContainerResource.Current
	default:
		return nil
	}
}
