package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/defaultclass"
)

// defaultStorageClass sets the default class of claims without one.
type defaultStorageClass struct {
	onCreate
	classes objects.Reader[*storagev1.StorageClass]
}

func newDefaultStorageClass(c *Config) admission.Interface {
	return defaultStorageClass{classes: objects.Of[*storagev1.StorageClass](c.Objects, objects.StorageClasses)}
}

func (p defaultStorageClass) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	claim, ok := a.GetObject().(*corev1.PersistentVolumeClaim)
	if !ok || !is(a, "", "persistentvolumeclaims", "") {
		return nil
	}
	if volume.PersistentVolumeClaimHasClass(claim) {
		return nil
	}
	if class := defaultclass.Storage(p.classes.All("")); class != nil {
		claim.Spec.StorageClassName = new(class.Name) // the class is shared
	}
	return nil
}
