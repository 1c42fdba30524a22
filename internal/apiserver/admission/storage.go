package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

const (
	claimProtection  = "kubernetes.io/pvc-protection"
	volumeProtection = "kubernetes.io/pv-protection"
	classProtection  = "kubernetes.io/vac-protection"
	defaultClass     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultClass = "storageclass.beta.kubernetes.io/is-default-class"
)

// defaultStorageClass gives a claim without a class the default one: of
// several the newest, then the first by name.
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
	if _, beta := claim.Annotations[corev1.BetaStorageClassAnnotation]; beta || claim.Spec.StorageClassName != nil {
		return nil
	}
	var found *storagev1.StorageClass
	for c := range p.classes.All("") {
		if c.Annotations[defaultClass] != "true" && c.Annotations[betaDefaultClass] != "true" {
			continue
		}
		if found == nil || c.CreationTimestamp.After(found.CreationTimestamp.Time) {
			found = c
		}
	}
	if found != nil {
		name := found.Name
		claim.Spec.StorageClassName = &name
	}
	return nil
}

// storageObjectInUseProtection keeps volumes, claims and volume attributes classes until nothing uses them.
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

// persistentVolumeClaimResize lets bound claims grow only if their class allows it.
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
