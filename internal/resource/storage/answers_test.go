package storage_test

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
	"github.com/coracle-io/coracle/internal/resource/storage"
)

// TestAnswers replays what upstream answered about this group's kinds.
func TestAnswers(t *testing.T) {
	resourcetest.Replay(t, storage.Resources(), "testdata/differences.txt", func(r *resource.RequestContext, obj, old resource.Object) error {
		clearYoungDefault(obj)
		clearYoungDefault(old)
		return protect(r, obj, old)
	})
}

// clearYoungDefault clears the field of a CSIDriver that has a default only since
// upstream's 1.37. No answer is about it.
func clearYoungDefault(obj resource.Object) {
	if d, ok := obj.(*storagev1.CSIDriver); ok {
		d.Spec.PreventPodSchedulingIfMissing = nil
	}
}

// protect does what the admission plugin StorageObjectInUseProtection does to
// new classes.
func protect(_ *resource.RequestContext, obj, old resource.Object) error {
	if _, ok := obj.(*storagev1.VolumeAttributesClass); ok && old == nil {
		obj.SetFinalizers(append(obj.GetFinalizers(), "kubernetes.io/vac-protection"))
	}
	return nil
}
