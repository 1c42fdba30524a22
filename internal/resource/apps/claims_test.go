package apps

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
)

// TestClaimTemplates checks that the claim templates of new StatefulSets are
// validated like claims.
func TestClaimTemplates(t *testing.T) {
	for _, c := range []struct{ spec, want string }{
		{spec: `{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`},
		{
			spec: `{accessModes: [ReadWriteOnce], resources: {requests: {storage: "-1"}}}`,
			want: `spec.volumeClaimTemplates[0].spec.resources[storage]: Invalid value: "-1": must be greater than zero`,
		},
		{
			spec: `{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, volumeMode: Tape}`,
			want: `spec.volumeClaimTemplates[0].spec.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"`,
		},
		{
			spec: `{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, selector: {matchExpressions: [{key: disk, operator: Is}]}}`,
			want: `spec.volumeClaimTemplates[0].spec.selector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator`,
		},
		{
			spec: `{accessModes: [ReadWriteOncePod, ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`,
			want: `spec.volumeClaimTemplates[0].spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes`,
		},
	} {
		var set appsv1.StatefulSet
		if err := yaml.Unmarshal([]byte(`{spec: {volumeClaimTemplates: [{spec: `+c.spec+`}]}}`), &set); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := validateClaimTemplates(field.NewPath("spec", "volumeClaimTemplates"), set.Spec.VolumeClaimTemplates).ToAggregate(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.spec, got, c.want)
		}
	}
}

func TestClaimTemplateWarnings(t *testing.T) {
	o := &appsv1.StatefulSet{}
	o.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceStorage: apiresource.MustParse("1500m")},
		Limits:   corev1.ResourceList{corev1.ResourceStorage: apiresource.MustParse("2500m")}}}}}
	got := StatefulSets().Strategy.Warnings(&resource.RequestContext{}, o, nil)
	want := []string{
		`spec.volumeClaimTemplates[0].resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer`,
		`spec.volumeClaimTemplates[0].resources.limits[storage]: fractional byte value "2500m" is invalid, must be an integer`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
