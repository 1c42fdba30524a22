package core_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
)

// The keys come to stand in the selectors, once; the pod stays valid.
func TestMatchLabelKeys(t *testing.T) {
	pod := newPod(t, `{topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule,
	  labelSelector: {matchLabels: {app: a}}, matchLabelKeys: [hash, missing]}],
	  affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone,
	  labelSelector: {matchLabels: {app: a}}, mismatchLabelKeys: [hash]}]}}}`)
	pod.Labels = map[string]string{"hash": "1"}
	request := &resource.Request{Now: noon, Namespace: "default"}
	if errs := resource.BeforeCreate(core.Pods(), request, pod); len(errs) > 0 {
		t.Fatal(errs)
	}
	spread := pod.Spec.TopologySpreadConstraints[0].LabelSelector.MatchExpressions
	apart := pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchExpressions
	want := [][]metav1.LabelSelectorRequirement{
		{{Key: "hash", Operator: metav1.LabelSelectorOpIn, Values: []string{"1"}}},
		{{Key: "hash", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"1"}}},
	}
	if diff := cmp.Diff(want, [][]metav1.LabelSelectorRequirement{spread, apart}); diff != "" {
		t.Error(diff)
	}
}
