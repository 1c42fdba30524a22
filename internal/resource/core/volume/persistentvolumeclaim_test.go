package volume_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/volume"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestDistantDataSource checks that a data source in another namespace needs
// its alpha feature.
func TestDistantDataSource(t *testing.T) {
	claims := volume.PersistentVolumeClaims()
	claim := claims.Hub().New().(*corev1.PersistentVolumeClaim)
	claim.Name, claim.Namespace = "c", "default"
	if err := yaml.Unmarshal([]byte(`{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}},
  dataSourceRef: {kind: PersistentVolumeClaim, name: s, namespace: other}}`), &claim.Spec); err != nil {
		t.Fatal(err)
	}
	if errs := resourcetest.BeforeCreate(claims, &resource.RequestContext{Now: noon, Namespace: "default"}, claim); len(errs) > 0 {
		t.Fatal(errs)
	}
	if claim.Spec.DataSourceRef != nil || claim.Spec.DataSource != nil {
		t.Errorf("the claim has the sources %v and %v", claim.Spec.DataSource, claim.Spec.DataSourceRef)
	}
}

// TestNamespaceOfDataSource checks the name of the namespace of a data source.
func TestNamespaceOfDataSource(t *testing.T) {
	features, err := feature.Parse([]string{"CrossNamespaceVolumeDataSource=true"})
	if err != nil {
		t.Fatal(err)
	}
	claims := volume.PersistentVolumeClaims()
	claim := claims.Hub().New().(*corev1.PersistentVolumeClaim)
	claim.Name, claim.Namespace = "c", "default"
	if err := yaml.Unmarshal([]byte(`{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}},
  dataSourceRef: {kind: PersistentVolumeClaim, name: s, namespace: a.b}}`), &claim.Spec); err != nil {
		t.Fatal(err)
	}
	errs := resourcetest.BeforeCreate(claims, &resource.RequestContext{Now: noon, Namespace: "default", Features: features}, claim)
	if len(errs) != 1 || errs[0].Field != "spec.dataSourceRef.namespace" {
		t.Errorf("%v", errs)
	}
}

// TestClaimKeepsWhatItHas checks that a claim that was stored with an invalid
// group or selector value can still be updated.
func TestClaimKeepsWhatItHas(t *testing.T) {
	claims := volume.PersistentVolumeClaims()
	req := &resource.RequestContext{Now: noon, Namespace: "default"}
	claim := func(spec string) *corev1.PersistentVolumeClaim {
		c := claims.Hub().New().(*corev1.PersistentVolumeClaim)
		c.Name, c.Namespace, c.UID, c.ResourceVersion = "c", "default", "u", "1"
		if err := yaml.Unmarshal([]byte(`{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, `+spec+`}`), &c.Spec); err != nil {
			t.Fatal(err)
		}
		claims.Hub().Default(c)
		return c
	}
	const broken = `selector: {matchExpressions: [{key: a, operator: In, values: [b c]}]}, dataSourceRef: {apiGroup: a b, kind: K, name: x}, dataSource: {apiGroup: a b, kind: K, name: x}`
	old := claim(broken)
	next := old.DeepCopy()
	next.Labels = map[string]string{"a": "b"}
	if errs := resourcetest.BeforeUpdate(claims, req, next, old); len(errs) > 0 {
		t.Error(errs)
	}
	created := claim(broken)
	created.UID, created.ResourceVersion = "", ""
	var got []string
	for _, err := range resourcetest.BeforeCreate(claims, req, created) {
		got = append(got, err.Field)
	}
	want := []string{"spec.selector.matchExpressions[0].values[0]", "spec.dataSource.apiGroup", "spec.dataSourceRef.apiGroup"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestHealthOfClaims checks what an external controller reports of the health
// of a volume, and that it is dropped while the feature is off.
func TestHealthOfClaims(t *testing.T) {
	on, err := feature.Parse([]string{"CSIVolumeHealth=true"})
	if err != nil {
		t.Fatal(err)
	}
	claims := volume.PersistentVolumeClaims()
	old := claims.Hub().New().(*corev1.PersistentVolumeClaim)
	old.Name, old.Namespace, old.UID, old.ResourceVersion = "c", "default", "u", "1"
	old.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	next := old.DeepCopy()
	next.Status.HealthStatus = &corev1.VolumeHealthStatus{HealthConditions: []corev1.VolumeHealthCondition{{Status: corev1.VolumeHealthDegraded}}}
	dropped := next.DeepCopy()
	req := &resource.RequestContext{Now: noon, Namespace: "default", Features: on}
	errs := resourcetest.BeforeSubresourceUpdate(claims, claims.Subresource("status"), req, next, old)
	if len(errs) != 1 || errs[0].Error() != "status.healthStatus.healthConditions[0].reason: Required value" {
		t.Errorf("%v", errs)
	}
	req = &resource.RequestContext{Now: noon, Namespace: "default"}
	errs = resourcetest.BeforeSubresourceUpdate(claims, claims.Subresource("status"), req, dropped, old)
	if len(errs) > 0 || dropped.Status.HealthStatus != nil {
		t.Errorf("off: %v, %v", errs, dropped.Status.HealthStatus)
	}
}
