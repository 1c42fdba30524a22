package volumebinder

import (
	"cmp"
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
)

// noteDriver sets, in the annotations of a claim or volume, the CSI driver that took the place of the
// in-tree plugin of a provisioner. The driver's own provisioner deletes such volumes only if they name it.
// An annotation for any other provisioner is removed. It reports whether anything has changed.
func noteDriver(annotations map[string]string, provisioner string) bool {
	if provisioner == "" {
		return false
	}
	driver, err := externalProvisioner(provisioner)
	if err != nil || driver == provisioner {
		driver = ""
	}
	if annotations[volume.AnnMigratedTo] == driver {
		return false
	}
	if driver == "" {
		delete(annotations, volume.AnnMigratedTo)
	} else {
		annotations[volume.AnnMigratedTo] = driver
	}
	return true
}

// migrateClaim returns a claim with the annotation of noteDriver, and writes it if that has changed.
func (c *binder) migrateClaim(ctx context.Context, claim *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	next := claim.DeepCopy()
	if !noteDriver(next.Annotations, cmp.Or(next.Annotations[volume.AnnStorageProvisioner], next.Annotations[volume.AnnBetaStorageProvisioner])) {
		return claim, nil
	}
	return c.kube.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, next, metav1.UpdateOptions{})
}

// migrateVolume returns a volume with the annotation of noteDriver and without the finalizer of in-tree
// plugins, which nothing else removes, and writes it if that has changed.
func (c *binder) migrateVolume(ctx context.Context, v *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	next := v.DeepCopy()
	provisioner := next.Annotations[volume.AnnDynamicallyProvisioned]
	changed := noteDriver(next.Annotations, provisioner)
	if provisioner != "" {
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == volume.PVDeletionInTreeProtectionFinalizer })
	}
	if !changed && len(next.Finalizers) == len(v.Finalizers) {
		return v, nil
	}
	return c.kube.CoreV1().PersistentVolumes().Update(ctx, next, metav1.UpdateOptions{})
}
