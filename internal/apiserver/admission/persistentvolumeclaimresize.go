package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

// persistentVolumeClaimResize refuses larger requests of bound claims unless
// their class allows expansion.
type persistentVolumeClaimResize struct {
	onUpdate
	classes objects.Reader[*storagev1.StorageClass]
}

func newPersistentVolumeClaimResize(c *Config) admission.Interface {
	return persistentVolumeClaimResize{classes: objects.Of[*storagev1.StorageClass](c.Objects, objects.StorageClasses)}
}

func (p persistentVolumeClaimResize) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	claim, ok := a.GetObject().(*corev1.PersistentVolumeClaim)
	old, ok2 := a.GetOldObject().(*corev1.PersistentVolumeClaim)
	if !ok || !ok2 || !is(a, "", "persistentvolumeclaims", "") {
		return nil
	}
	before, after := old.Spec.Resources.Requests[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if after.Cmp(before) <= 0 {
		return nil
	}
	if old.Status.Phase != corev1.ClaimBound {
		return refused(a, "Only bound persistent volume claims can be expanded")
	}
	name := claim.Annotations[corev1.BetaStorageClassAnnotation]
	if name == "" && claim.Spec.StorageClassName != nil {
		name = *claim.Spec.StorageClassName
	}
	class, ok := p.classes.Get("", name)
	if name == "" || !ok || class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion {
		return refused(a, "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize")
	}
	return nil
}
