package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apiserver/pkg/admission"
)

const (
	claimProtection  = "kubernetes.io/pvc-protection"
	volumeProtection = "kubernetes.io/pv-protection"
	classProtection  = "kubernetes.io/vac-protection"
)

// storageObjectInUseProtection adds the finalizers that delay the deletion of
// volumes, claims and volume attributes classes in use.
type storageObjectInUseProtection struct{ onCreate }

func (storageObjectInUseProtection) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" {
		return nil
	}
	switch o := a.GetObject().(type) {
	case *corev1.PersistentVolume:
		if !slices.Contains(o.Finalizers, volumeProtection) {
			o.Finalizers = append(o.Finalizers, volumeProtection)
		}
	case *corev1.PersistentVolumeClaim:
		if !slices.Contains(o.Finalizers, claimProtection) {
			o.Finalizers = append(o.Finalizers, claimProtection)
		}
	case *storagev1.VolumeAttributesClass:
		if !slices.Contains(o.Finalizers, classProtection) {
			o.Finalizers = append(o.Finalizers, classProtection)
		}
	}
	return nil
}
