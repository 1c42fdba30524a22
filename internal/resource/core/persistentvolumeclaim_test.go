package core_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
)

// A source in another namespace is an alpha feature's.
func TestDistantDataSource(t *testing.T) {
	claims := core.PersistentVolumeClaims()
	claim := claims.Hub().New().(*corev1.PersistentVolumeClaim)
	claim.Name, claim.Namespace = "c", "default"
	if err := yaml.Unmarshal([]byte(`{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}},
  dataSourceRef: {kind: PersistentVolumeClaim, name: s, namespace: other}}`), &claim.Spec); err != nil {
		t.Fatal(err)
	}
	if errs := resource.BeforeCreate(claims, &resource.Request{Now: noon, Namespace: "default"}, claim); len(errs) > 0 {
		t.Fatal(errs)
	}
	if claim.Spec.DataSourceRef != nil || claim.Spec.DataSource != nil {
		t.Errorf("the claim has the sources %v and %v", claim.Spec.DataSource, claim.Spec.DataSourceRef)
	}
}
