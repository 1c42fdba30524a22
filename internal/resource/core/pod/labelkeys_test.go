package pod_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestMatchLabelKeys checks that the keys are added to the selectors once, and
// that the pod stays valid.
func TestMatchLabelKeys(t *testing.T) {
	p := newPod(t, `{topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule,
	  labelSelector: {matchLabels: {app: a}}, matchLabelKeys: [hash, missing]}],
	  affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone,
	  labelSelector: {matchLabels: {app: a}}, mismatchLabelKeys: [hash]}]}}}`)
	p.Labels = map[string]string{"hash": "1"}
	request := &resource.RequestContext{Now: noon, Namespace: "default"}
	if errs := resourcetest.BeforeCreate(pod.Pods(), request, p); len(errs) > 0 {
		t.Fatal(errs)
	}
	spread := p.Spec.TopologySpreadConstraints[0].LabelSelector.MatchExpressions
	apart := p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchExpressions
	want := [][]metav1.LabelSelectorRequirement{
		{{Key: "hash", Operator: metav1.LabelSelectorOpIn, Values: []string{"1"}}},
		{{Key: "hash", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"1"}}},
	}
	if diff := cmp.Diff(want, [][]metav1.LabelSelectorRequirement{spread, apart}); diff != "" {
		t.Error(diff)
	}
}
