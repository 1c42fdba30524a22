package autoscaling

import (
	"slices"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// TestTargetsOfObjects checks that a metric of an object needs a target, and
// that it can have both kinds: the type says which one counts.
func TestTargetsOfObjects(t *testing.T) {
	m := describing("v1")
	m.Object.Target.AverageValue = ptr.To(resource.MustParse("1"))
	if errs := validateMetric(field.NewPath("m"), &m, groupOptional); len(errs) > 0 {
		t.Errorf("with both targets: %v", errs)
	}
	m.Object.Target.Value, m.Object.Target.AverageValue = nil, nil
	errs := validateMetric(field.NewPath("m"), &m, groupOptional)
	const want = "m.object.target.averageValue: Required value: must set either a target value or averageValue"
	if len(errs) != 1 || errs[0].Error() != want {
		t.Errorf("with neither target: %v, want %s", errs, want)
	}
}

// TestContainerResources checks the names of the resource and of the container
// of a metric.
func TestContainerResources(t *testing.T) {
	for _, test := range []struct {
		resource  corev1.ResourceName
		container string
		wrong     []string
	}{
		{"cpu", "app", nil},
		{"example.com/gpu", "app", nil},
		{"gpus", "app", []string{"m.containerResource.name", "m.containerResource.name"}},
		{"cpu", "App", []string{"m.containerResource.container"}},
		{"", "", []string{"m.containerResource.name", "m.containerResource.container"}},
	} {
		m := autoscalingv2.MetricSpec{
			Type: autoscalingv2.ContainerResourceMetricSourceType,
			ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
				Name: test.resource, Container: test.container,
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](50)},
			},
		}
		var wrong []string
		for _, err := range validateMetric(field.NewPath("m"), &m, groupOptional) {
			wrong = append(wrong, err.Field)
		}
		if !slices.Equal(wrong, test.wrong) {
			t.Errorf("%q of %q: errors at %q, want %q", test.resource, test.container, wrong, test.wrong)
		}
	}
}

// TestStatus checks the numbers of a status.
func TestStatus(t *testing.T) {
	observed := func(generations ...int64) autoscalingv2.HorizontalPodAutoscalerStatus {
		var s autoscalingv2.HorizontalPodAutoscalerStatus
		for _, g := range generations {
			s.Conditions = append(s.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{ObservedGeneration: ptr.To(g)})
		}
		return s
	}
	for _, test := range []struct {
		name   string
		status autoscalingv2.HorizontalPodAutoscalerStatus
		wrong  []string
	}{
		{"nothing", autoscalingv2.HorizontalPodAutoscalerStatus{}, nil},
		{"generations", observed(0, 5), nil},
		{"a negative generation", observed(1, -3), []string{"status.conditions[1].observedGeneration"}},
		{
			"negative replicas", autoscalingv2.HorizontalPodAutoscalerStatus{CurrentReplicas: -1, DesiredReplicas: -1},
			[]string{"status.currentReplicas", "status.desiredReplicas"},
		},
	} {
		var wrong []string
		for _, err := range validateStatus(field.NewPath("status"), &test.status) {
			wrong = append(wrong, err.Field)
		}
		if !slices.Equal(wrong, test.wrong) {
			t.Errorf("%s: errors at %q, want %q", test.name, wrong, test.wrong)
		}
	}
}
