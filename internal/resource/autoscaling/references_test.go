package autoscaling

import (
	"slices"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	coracle "github.com/coracle-io/coracle/internal/resource"
)

func describing(apiVersion string) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{
		DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: apiVersion, Kind: "Service", Name: "web"},
		Metric:          autoscalingv2.MetricIdentifier{Name: "hits"},
		Target:          autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: ptr.To(resource.MustParse("3"))},
	}}
}

func specOf(target, described string) *autoscalingv2.HorizontalPodAutoscalerSpec {
	kind := "Deployment"
	if target == "RC" {
		kind, target = "ReplicationController", "v1"
	}
	return &autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: target, Kind: kind, Name: "web"},
		MaxReplicas:    5,
		Metrics:        []autoscalingv2.MetricSpec{describing(described)},
	}
}

// TestVersionsOfReferences checks that scale targets need a group, that
// described objects may be in the core group, and that an invalid reference
// may stay.
func TestVersionsOfReferences(t *testing.T) {
	for _, c := range []struct {
		name             string
		target           string
		described        string
		before           *autoscalingv2.HorizontalPodAutoscalerSpec
		wantTarget, want string
	}{
		{name: "groups", target: "apps/v1", described: "networking.k8s.io/v1"},
		{name: "the core group is described", target: "apps/v1", described: "v1"},
		{name: "no version is described", target: "apps/v1", described: ""},
		{name: "ReplicationController", target: "RC", described: "v1"},
		{name: "no group", target: "v1", described: "v1", wantTarget: "apiVersion must specify API group"},
		{
			name: "too many slashes", target: "a/b/c", described: "a/b/c",
			wantTarget: "unexpected GroupVersion string: a/b/c", want: "unexpected GroupVersion string: a/b/c",
		},
		{name: "as wrong as before", target: "v1", described: "a/b/c", before: specOf("v1", "d/e/f")},
		{
			name: "wrong from now on", target: "v1", described: "a/b/c", before: specOf("apps/v1", "v1"),
			wantTarget: "apiVersion must specify API group", want: "unexpected GroupVersion string: a/b/c",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var want []string
			if c.wantTarget != "" {
				want = append(want, "spec.scaleTargetRef.apiVersion: "+c.wantTarget)
			}
			if c.want != "" {
				want = append(want, "spec.metrics[0].object.describedObject.apiVersion: "+c.want)
			}
			errs := validateAutoscaler(&coracle.RequestContext{}, field.NewPath("spec"), specOf(c.target, c.described), c.before)
			if len(errs) != len(want) {
				t.Fatalf("%v, want %v", errs, want)
			}
			for i, err := range errs {
				if got := err.Field + ": " + err.Detail; got != want[i] {
					t.Errorf("%s, want %s", got, want[i])
				}
			}
		})
	}
}

// TestMinReplicasLimit checks that scaling to zero needs a metric other than a
// metric of the pods and, unless the stored object already allows it, the
// feature gate.
func TestMinReplicasLimit(t *testing.T) {
	off, err := feature.Parse([]string{"HPAScaleToZero=false"})
	if err != nil {
		t.Fatal(err)
	}
	zero := &autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: ptr.To[int32](0)}
	for _, c := range []struct {
		name     string
		features *feature.Set
		metrics  []autoscalingv2.MetricSpec
		before   *autoscalingv2.HorizontalPodAutoscalerSpec
		want     int
	}{
		{name: "on", metrics: []autoscalingv2.MetricSpec{describing("v1")}},
		{name: "on, metrics of pods", metrics: []autoscalingv2.MetricSpec{perPod("a", "1")}, want: 1},
		{name: "off", features: off, metrics: []autoscalingv2.MetricSpec{describing("v1")}, want: 1},
		{name: "off, zero before", features: off, metrics: []autoscalingv2.MetricSpec{describing("v1")}, before: zero},
	} {
		s := specOf("apps/v1", "v1")
		s.MinReplicas, s.Metrics = ptr.To[int32](0), c.metrics
		if errs := validateAutoscaler(&coracle.RequestContext{Features: c.features}, field.NewPath("spec"), s, c.before); len(errs) != c.want {
			t.Errorf("%s: %v", c.name, errs)
		}
	}
}

// What the tags of the type say of the replicas comes last, and without details.
func TestReplicasAreCheckedLast(t *testing.T) {
	s := specOf("apps/v1", "v1")
	s.MinReplicas, s.MaxReplicas, s.ScaleTargetRef.Kind = ptr.To[int32](-2), 0, ""
	errs := validateAutoscaler(&coracle.RequestContext{}, field.NewPath("spec"), s, nil)
	want := []string{
		"spec.scaleTargetRef.kind: Required value",
		"spec.minReplicas: Invalid value: -2: must be greater than or equal to 0",
		"spec.maxReplicas: Required value",
	}
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
