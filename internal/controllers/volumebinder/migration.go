package volumebinder

import (
	"cmp"
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
)

// migration returns the CSI driver that took the place of the in-tree plugin of a provisioner, "" if none
// did, and whether the annotations of its claim or volume have to be changed for it. The driver's own
// provisioner deletes such volumes only if they name it.
func migration(annotations map[string]string, provisioner string) (driver string, changes bool) {
	if provisioner == "" {
		return "", false
	}
	driver, err := externalProvisioner(provisioner)
	if err != nil || driver == provisioner {
		driver = ""
	}
	return driver, annotations[volume.AnnMigratedTo] != driver
}

// noteDriver sets the annotation with the driver, or removes it if there is none.
func noteDriver(annotations map[string]string, driver string) {
	if driver == "" {
		delete(annotations, volume.AnnMigratedTo)
		return
	}
	annotations[volume.AnnMigratedTo] = driver
}

// migrateClaim returns a claim with the annotation of noteDriver, and writes it if that has changed.
func (c *binder) migrateClaim(ctx context.Context, claim *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	driver, changes := migration(claim.Annotations, cmp.Or(claim.Annotations[volume.AnnStorageProvisioner], claim.Annotations[volume.AnnBetaStorageProvisioner]))
	if !changes {
		return claim, nil
	}
	next := claim.DeepCopy()
	noteDriver(next.Annotations, driver)
	return c.kube.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, next, metav1.UpdateOptions{})
}

// migrateVolume returns a volume with the annotation of noteDriver and without the finalizer of in-tree
// plugins, which nothing else removes, and writes it if that has changed.
func (c *binder) migrateVolume(ctx context.Context, v *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	const finalizer = volume.PVDeletionInTreeProtectionFinalizer
	provisioner := v.Annotations[volume.AnnDynamicallyProvisioned]
	driver, changes := migration(v.Annotations, provisioner)
	if !changes && (provisioner == "" || !slices.Contains(v.Finalizers, finalizer)) {
		return v, nil
	}
	next := v.DeepCopy()
	noteDriver(next.Annotations, driver)
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == finalizer })
	return c.kube.CoreV1().PersistentVolumes().Update(ctx, next, metav1.UpdateOptions{})
}
