package pod_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
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

// TestLabelKeysBehindGates checks what becomes of the keys of a constraint.
func TestLabelKeysBehindGates(t *testing.T) {
	for gates, want := range map[string]struct{ keys, merged int }{
		"": {1, 1},
		"MatchLabelKeysInPodTopologySpreadSelectorMerge=false":                                         {1, 0},
		"MatchLabelKeysInPodTopologySpread=false,MatchLabelKeysInPodTopologySpreadSelectorMerge=false": {0, 0},
	} {
		features, err := feature.Parse(strings.Split(gates, ","))
		if err != nil {
			t.Fatal(err)
		}
		p := newPod(t, `{topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule,
		  labelSelector: {matchLabels: {app: a}}, matchLabelKeys: [hash]}]}`)
		p.Labels = map[string]string{"hash": "1"}
		request := &resource.RequestContext{Now: noon, Namespace: "default", Features: features}
		if errs := resourcetest.BeforeCreate(pod.Pods(), request, p); len(errs) > 0 {
			t.Fatalf("%q: %v", gates, errs)
		}
		c := p.Spec.TopologySpreadConstraints[0]
		if len(c.MatchLabelKeys) != want.keys || len(c.LabelSelector.MatchExpressions) != want.merged {
			t.Errorf("%q: %+v", gates, c)
		}
	}
}

// TestProjectionsBehindGates checks that sources of projected volumes are dropped.
func TestProjectionsBehindGates(t *testing.T) {
	features, err := feature.Parse([]string{"ClusterTrustBundleProjection=false", "PodCertificateRequest=false"})
	if err != nil {
		t.Fatal(err)
	}
	template := func() *corev1.PodTemplateSpec {
		return &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}, {PodCertificate: &corev1.PodCertificateProjection{}}},
		}}}}}}
	}
	left := func(set *feature.Set, old *corev1.PodTemplateSpec) (n int) {
		next := template()
		pod.DropDisabledTemplateFields(set, next, old)
		for _, s := range next.Spec.Volumes[0].Projected.Sources {
			if s.ClusterTrustBundle != nil || s.PodCertificate != nil {
				n++
			}
		}
		return n
	}
	if on, off, kept := left(nil, nil), left(features, nil), left(features, template()); on != 2 || off != 0 || kept != 2 {
		t.Errorf("%d sources are left if they are on, %d if they are off, and %d if they were there: want 2, 0, 2", on, off, kept)
	}
}

// TestSelectedLabelKeys checks which keys may also be in the selector next to
// them: those of mismatchLabelKeys, and in a template one of matchLabelKeys.
func TestSelectedLabelKeys(t *testing.T) {
	const apart = `{affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone,
	  labelSelector: {matchLabels: {app: a}, matchExpressions: [{key: hash, operator: NotIn, values: ["2"]}]}, mismatchLabelKeys: [hash]}]}}}`
	const spread = `{topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule,
	  labelSelector: {matchLabels: {hash: "1"}}, matchLabelKeys: [hash]}]}`
	for _, c := range []struct {
		spec     string
		template bool
		want     string
	}{
		{spec: apart},
		{spec: apart, template: true},
		{spec: spread, want: `spec.topologySpreadConstraints[0][0]: Invalid value: "hash": exists in both matchLabelKeys and labelSelector`},
		{spec: spread, template: true},
	} {
		p := newPod(t, c.spec)
		p.Labels = map[string]string{"hash": "1"}
		var errs field.ErrorList
		if c.template {
			errs = pod.ValidateTemplate(&corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels}, Spec: p.Spec}, field.NewPath("template"), pod.Options{})
		} else {
			errs = resourcetest.BeforeCreate(pod.Pods(), &resource.RequestContext{Now: noon, Namespace: "default"}, p)
		}
		got := ""
		if err := errs.ToAggregate(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s\ntemplate %t: %s, want %s", c.spec, c.template, got, c.want)
		}
	}
}
