package node

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestTolerations checks the tolerations of a RuntimeClass, which cannot compare
// numbers even if those of pods can.
func TestTolerations(t *testing.T) {
	features, err := feature.Parse([]string{"TaintTolerationComparisonOperators=true"})
	if err != nil {
		t.Fatal(err)
	}
	level := func(operator corev1.TolerationOperator, value string) corev1.Toleration {
		return corev1.Toleration{Key: "level", Operator: operator, Value: value}
	}
	for _, test := range []struct {
		name        string
		tolerations []corev1.Toleration
		want        []string
	}{
		{"different ones", []corev1.Toleration{level(corev1.TolerationOpEqual, "1"), level(corev1.TolerationOpEqual, "2")}, nil},
		{"the same", []corev1.Toleration{level(corev1.TolerationOpExists, ""), level(corev1.TolerationOpExists, "")}, []string{"scheduling.tolerations[1]"}},
		{"a comparison", []corev1.Toleration{level(corev1.TolerationOpGt, "1")}, []string{"scheduling.tolerations[0].operator"}},
	} {
		c := &nodev1.RuntimeClass{Handler: "h", Scheduling: &nodev1.Scheduling{Tolerations: test.tolerations}}
		c.Name = "c"
		var got []string
		for _, err := range resourcetest.BeforeCreate(RuntimeClasses(), &resource.RequestContext{Features: features}, c) {
			got = append(got, err.Field)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: errors at %q, want %q", test.name, got, test.want)
		}
	}
}
