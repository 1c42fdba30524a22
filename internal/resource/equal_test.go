package resource_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/coracle-io/coracle/internal/resource"
)

func TestEqual(t *testing.T) {
	pod := func(change func(*corev1.PodSpec)) *corev1.PodSpec {
		s := &corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Env: []corev1.EnvVar{{Name: "a"}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": apiresource.MustParse("1")}},
		}}}
		change(s)
		return s
	}
	same := pod(func(*corev1.PodSpec) {})
	zero := int64(0)
	for name, test := range map[string]struct {
		other *corev1.PodSpec
		equal bool
	}{
		"copy":           {pod(func(*corev1.PodSpec) {}), true},
		"empty list":     {pod(func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{} }), true},
		"other spelling": {pod(func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests["cpu"] = apiresource.MustParse("1000m") }), true},
		"other quantity": {pod(func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests["cpu"] = apiresource.MustParse("2") }), false},
		"pointer":        {pod(func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = &zero }), false},
		"nothing":        {nil, false},
	} {
		if resource.Equal(same, test.other) != test.equal {
			t.Errorf("%s: equal is not %v", name, test.equal)
		}
		if test.other != nil && resource.Equal(*same, *test.other) != test.equal {
			t.Errorf("%s by value: equal is not %v", name, test.equal)
		}
	}
	if !resource.Equal("a", "a") || resource.Equal([]string{"a"}, []string{"b"}) || !resource.Equal(nil, nil) {
		t.Error("values without a protobuf form")
	}
}

func BenchmarkEqual(b *testing.B) {
	s := &corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Env: []corev1.EnvVar{{Name: "a"}, {Name: "b"}}, Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}}
	other := s.DeepCopy()
	b.ReportAllocs()
	for b.Loop() {
		if !resource.Equal(s, other) {
			b.Fatal("not equal")
		}
	}
}
