package storage_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/storage"
)

func TestCSIStorageCapacityWarnings(t *testing.T) {
	capacity := &storagev1.CSIStorageCapacity{NodeTopology: &metav1.LabelSelector{
		MatchLabels:      map[string]string{"beta.kubernetes.io/os": "linux", "zone": "a"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a"}, {Key: "failure-domain.beta.kubernetes.io/zone"}},
	}}
	want := []string{
		`nodeTopology.matchExpressions[1].key: failure-domain.beta.kubernetes.io/zone is deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
		`nodeTopology.matchLabels.beta.kubernetes.io/os: deprecated since v1.14; use "kubernetes.io/os" instead`,
	}
	if diff := cmp.Diff(want, storage.CSIStorageCapacities().Strategy.Warnings(&resource.RequestContext{}, capacity, nil)); diff != "" {
		t.Error(diff)
	}
}

// TestCSIDriverWarnings checks that tokens among the attributes of volumes are
// warned of when they are requested first.
func TestCSIDriverWarnings(t *testing.T) {
	driver := func(inSecrets *bool, audiences ...string) *storagev1.CSIDriver {
		d := &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{ServiceAccountTokenInSecrets: inSecrets}}
		for _, audience := range audiences {
			d.Spec.TokenRequests = append(d.Spec.TokenRequests, storagev1.TokenRequest{Audience: audience})
		}
		return d
	}
	yes, no := true, false
	for _, test := range []struct {
		name      string
		next, old *storagev1.CSIDriver
		warnings  int
	}{
		{"no tokens", driver(nil), nil, 0},
		{"tokens", driver(nil, "a"), nil, 1},
		{"in secrets", driver(&yes, "a"), nil, 0},
		{"not in secrets", driver(&no, "a"), nil, 0},
		{"as before", driver(nil, "a"), driver(nil, "a"), 0},
		{"for the first time", driver(nil, "a"), driver(nil), 1},
		{"of another audience", driver(nil, "b"), driver(nil, "a"), 1},
		{"no longer", driver(nil), driver(nil, "a"), 0},
	} {
		var old resource.Object
		if test.old != nil {
			old = test.old
		}
		if got := storage.CSIDrivers().Strategy.Warnings(&resource.RequestContext{}, test.next, old); len(got) != test.warnings {
			t.Errorf("%s: warnings %q, want %d", test.name, got, test.warnings)
		}
	}
}
