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
