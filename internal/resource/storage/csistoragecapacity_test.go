package storage_test

import (
	"slices"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	coracle "github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
	"github.com/coracle-io/coracle/internal/resource/storage"
)

// TestStoredTopology checks that a capacity whose topology older versions have
// stored with a wrong value can change.
func TestStoredTopology(t *testing.T) {
	capacity := func(zone, size string) *storagev1.CSIStorageCapacity {
		c := &storagev1.CSIStorageCapacity{StorageClassName: "s", Capacity: new(resource.MustParse(size))}
		c.Name, c.Namespace, c.ResourceVersion = "c", "n", "1"
		c.NodeTopology = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "zone", Operator: metav1.LabelSelectorOpIn, Values: []string{zone}},
		}}
		return c
	}
	const value = "nodeTopology.matchExpressions[0].values[0]"
	for _, test := range []struct {
		name        string
		stored, now *storagev1.CSIStorageCapacity
		want        []string
	}{
		{"new and wrong", nil, capacity("a b", "1Gi"), []string{value}},
		{"another size", capacity("a", "1Gi"), capacity("a", "2Gi"), nil},
		{"another size of a wrong topology", capacity("a b", "1Gi"), capacity("a b", "2Gi"), nil},
		{"another topology", capacity("a", "1Gi"), capacity("b", "1Gi"), []string{"nodeTopology"}},
		{"a wrong topology", capacity("a", "1Gi"), capacity("a b", "1Gi"), []string{value, "nodeTopology"}},
		{"a negative size", capacity("a", "1Gi"), capacity("a", "-1"), []string{"capacity"}},
	} {
		r, request := storage.CSIStorageCapacities(), &coracle.RequestContext{}
		var got []string
		if test.stored == nil {
			for _, err := range resourcetest.BeforeCreate(r, request, test.now) {
				got = append(got, err.Field)
			}
		} else {
			for _, err := range resourcetest.BeforeUpdate(r, request, test.now, test.stored) {
				got = append(got, err.Field)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: errors at %q, want %q", test.name, got, test.want)
		}
	}
}
