package storage_test

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
	"github.com/coracle-io/coracle/internal/resource/storage"
)

// TestAnswers replays what upstream answered about this group's kinds. The
// default of VolumeLimitScaling is younger.
func TestAnswers(t *testing.T) {
	features, err := feature.Parse([]string{"VolumeLimitScaling=false"})
	if err != nil {
		t.Fatal(err)
	}
	resourcetest.Replay(t, storage.Resources(), "testdata/differences.txt", func(r *resource.RequestContext, obj, old resource.Object) error {
		r.Features = features
		return protect(r, obj, old)
	})
}

// protect does what the admission plugin StorageObjectInUseProtection does to
// new classes.
func protect(_ *resource.RequestContext, obj, old resource.Object) error {
	if _, ok := obj.(*storagev1.VolumeAttributesClass); ok && old == nil {
		obj.SetFinalizers(append(obj.GetFinalizers(), "kubernetes.io/vac-protection"))
	}
	return nil
}
