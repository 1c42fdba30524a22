package autoscaling

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func autoscaler(change func(*autoscalingv2.HorizontalPodAutoscaler)) *autoscalingv2.HorizontalPodAutoscaler {
	a := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"owner": "me"}},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MaxReplicas:    5,
		},
	}
	if change != nil {
		change(a)
	}
	defaultAutoscaler(a)
	return a
}

func perPod(name, value string) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.PodsMetricSourceType,
		Pods: &autoscalingv2.PodsMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: name},
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: ptr.To(resource.MustParse(value))},
		},
	}
}

// TestThroughV1 checks that converting autoscalers to v1 and back loses
// nothing.
func TestThroughV1(t *testing.T) {
	queue := autoscalingv2.MetricSpec{
		Type: autoscalingv2.ExternalMetricSourceType,
		External: &autoscalingv2.ExternalMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: "queue", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"q": "a"}}},
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: ptr.To(resource.MustParse("30"))},
		},
	}
	hits := autoscalingv2.MetricSpec{
		Type: autoscalingv2.ObjectMetricSourceType,
		Object: &autoscalingv2.ObjectMetricSource{
			DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Name: "i"},
			Metric:          autoscalingv2.MetricIdentifier{Name: "hits"},
			Target:          autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: ptr.To(resource.MustParse("2k"))},
		},
	}
	for name, change := range map[string]func(*autoscalingv2.HorizontalPodAutoscaler){
		"the default target": nil,
		"CPU and another metric": func(a *autoscalingv2.HorizontalPodAutoscaler) {
			a.Spec.Metrics = []autoscalingv2.MetricSpec{cpuUtilization(60), perPod("requests", "100m")}
		},
		"metrics of other sources": func(a *autoscalingv2.HorizontalPodAutoscaler) {
			a.Spec.Metrics = []autoscalingv2.MetricSpec{queue, hits}
		},
		"behavior": func(a *autoscalingv2.HorizontalPodAutoscaler) {
			a.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
				ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To[int32](60)},
			}
		},
		"conditions": func(a *autoscalingv2.HorizontalPodAutoscaler) {
			a.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{
				{Type: autoscalingv2.AbleToScale, Status: corev1.ConditionTrue, Reason: "Ready", Message: "as wanted", ObservedGeneration: ptr.To[int64](3)},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := autoscaler(change)
			got := fromV1(toV1(want.DeepCopy()))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("through v1 (-before +after):\n%s", diff)
			}
		})
	}
}

func TestMetricsCell(t *testing.T) {
	for _, test := range []struct {
		name    string
		metrics []autoscalingv2.MetricSpec
		current []autoscalingv2.MetricStatus
		want    string
	}{
		{"no metrics", nil, nil, "<none>"},
		{"not measured yet", []autoscalingv2.MetricSpec{cpuUtilization(80)}, nil, "cpu: <unknown>/80%"},
		{"measured", []autoscalingv2.MetricSpec{cpuUtilization(80)}, []autoscalingv2.MetricStatus{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricStatus{
				Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: ptr.To[int32](12)},
			},
		}}, "cpu: 12%/80%"},
		{"more than two", []autoscalingv2.MetricSpec{perPod("a", "1"), perPod("b", "2"), perPod("c", "3")}, nil,
			"<unknown>/1, <unknown>/2 + 1 more..."},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := metricsCell(test.metrics, test.current); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestAnnotationsOfV1 checks that v2 objects do not keep the annotations in
// which v1 has their fields.
func TestAnnotationsOfV1(t *testing.T) {
	a := &autoscalingv2.HorizontalPodAutoscaler{}
	a.Annotations = map[string]string{metricsAnnotation: "[]", conditionsAnnotation: "", behaviorAnnotation: "{}", statusesAnnotation: "x", "owner": "me"}
	HorizontalPodAutoscalers().Hub().Default(a)
	if len(a.Annotations) != 1 || a.Annotations["owner"] != "me" {
		t.Errorf("annotations %v", a.Annotations)
	}
}

// TestAnnotationsOutOfRange checks that an annotation with a quantity that takes
// hours to parse counts as malformed, however its fields are spelt.
func TestAnnotationsOutOfRange(t *testing.T) {
	for text, want := range map[string]bool{
		`[{"type":"Object","object":{"target":{"value":"3"}}}]`:              true,
		`[{"type":"Object","object":{"target":{"value":"1e-900000000"}}}]`:   false,
		`[{"type":"Object","Object":{"target":{"VALUE":"1e-900000000"}}}]`:   false,
		`[{"type":"Object","object":{"metric":{"name":"1e-900000000"}}}]`:    true,
		`[{"type":"Pods","pods":{"target":{"averageValue": 1e900000000 }}}]`: false,
	} {
		var metrics []autoscalingv2.MetricSpec
		if got := decodeAnnotation(&metav1.ObjectMeta{Annotations: map[string]string{metricsAnnotation: text}}, metricsAnnotation, &metrics); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
