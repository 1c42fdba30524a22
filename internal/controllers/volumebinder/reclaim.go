package volumebinder

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/internal/controller"
)

// retryAfter is the time after which the reclaiming of a volume that has failed is tried
// again.
const retryAfter = 15 * time.Second

// release sets the phase of a volume whose claim is gone to Released, and applies
// its reclaim policy. A volume for which that has failed stays Failed until it succeeds.
func (c *binder) release(ctx context.Context, v *v1.PersistentVolume) error {
	if v.Status.Phase == v1.VolumeFailed {
		if changed := v.Status.LastPhaseTransitionTime; changed != nil {
			failed := c.failed.At(v.Name, changed.Time, time.Now())
			if left := time.Until(failed.Add(retryAfter)); left > 0 {
				c.queue.AddAfter(controller.Key{Name: v.Name}, left)
				return nil
			}
		}
	} else {
		released, err := c.setVolumePhase(ctx, v, v1.VolumeReleased, "")
		if err != nil {
			return controller.IgnoreNotFound(err)
		}
		v = released
	}
	if v.DeletionTimestamp != nil {
		return nil
	}
	switch v.Spec.PersistentVolumeReclaimPolicy {
	case v1.PersistentVolumeReclaimRetain:
		return nil
	case v1.PersistentVolumeReclaimRecycle:
	case v1.PersistentVolumeReclaimDelete:
		c.measured.begin(controller.Key{Name: v.Name}, deleterOf(v), "delete")
		if v.Spec.CSI != nil || provisionedExternally(v) {
			return nil
		}
	default:
		return c.fail(ctx, v, "VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy")
	}
	// Deleting data cannot be undone, so do not rely on the cache.
	fresh, err := c.kube.CoreV1().PersistentVolumes().Get(ctx, v.Name, metav1.GetOptions{})
	if err != nil {
		return controller.IgnoreNotFound(err)
	}
	if fresh.UID != v.UID || fresh.ResourceVersion != v.ResourceVersion {
		return controller.ErrStale
	}
	if v.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimRecycle {
		return c.recycle(ctx, v)
	}
	return c.deleteVolume(ctx, v)
}

// fail records an event on a volume and sets its phase to Failed. It enqueues the volume
// for another try.
func (c *binder) fail(ctx context.Context, v *v1.PersistentVolume, reason, message string) error {
	c.env.Events.Event(v, v1.EventTypeWarning, reason, message)
	c.queue.AddAfter(controller.Key{Name: v.Name}, retryAfter)
	_, err := c.setVolumePhase(ctx, v, v1.VolumeFailed, message)
	return controller.IgnoreNotFound(err)
}

// deleteVolume deletes a released volume with its data.
func (c *binder) deleteVolume(ctx context.Context, v *v1.PersistentVolume) error {
	if v.Spec.HostPath == nil {
		c.measured.failed(controller.Key{Name: v.Name})
		return c.fail(ctx, v, "VolumeFailedDelete", fmt.Sprintf("error getting deleter volume plugin for volume %q: no deletable volume plugin matched", v.Name))
	}
	if err := c.removeAll(v.Spec.HostPath.Path); err != nil {
		c.measured.failed(controller.Key{Name: v.Name})
		return c.fail(ctx, v, "VolumeFailedDelete", err.Error())
	}
	return controller.IgnoreNotFoundOrConflict(c.kube.CoreV1().PersistentVolumes().Delete(ctx, v.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &v.UID},
	}))
}

// temporary is the directory below which data of volumes of type hostPath is
// deleted. They are meant for tests on a single machine.
const temporary = "/tmp"

// removeTemporary removes a directory below temporary. It does not follow symbolic
// links out of it.
func removeTemporary(path string) error {
	below, err := filepath.Rel(temporary, path)
	if err != nil || !filepath.IsLocal(below) || below == "." {
		return fmt.Errorf("host_path deleter only supports /tmp/.+ but received provided %s", path)
	}
	root, err := os.OpenRoot(temporary)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing was written through it
	return root.RemoveAll(below)
}

// inTree is the prefix of the names of provisioners that were built into Kubernetes.
const inTree = "kubernetes.io/"

// provisionedExternally reports whether the provisioner that made a volume deletes it.
func provisionedExternally(v *v1.PersistentVolume) bool {
	name, made := v.Annotations[volume.AnnDynamicallyProvisioned]
	if !made {
		return false
	}
	_, err := externalProvisioner(name)
	return err == nil
}

// externalProvisioner returns the name of the provisioner that makes volumes of a
// class with a provisioner: the CSI driver that took the place of an in-tree plugin
// (KEP-625), or the provisioner itself if it is not an in-tree plugin.
func externalProvisioner(name string) (string, error) {
	switch name {
	case "kubernetes.io/aws-ebs":
		return "ebs.csi.aws.com", nil
	case "kubernetes.io/gce-pd":
		return "pd.csi.storage.gke.io", nil
	case "kubernetes.io/azure-disk":
		return "disk.csi.azure.com", nil
	case "kubernetes.io/azure-file":
		return "file.csi.azure.com", nil
	case "kubernetes.io/cinder":
		return "cinder.csi.openstack.org", nil
	case "kubernetes.io/vsphere-volume":
		return "csi.vsphere.vmware.com", nil
	case "kubernetes.io/portworx-volume":
		return "pxd.portworx.com", nil
	}
	if strings.HasPrefix(name, inTree) {
		return "", fmt.Errorf("no volume plugin matched name: %s", name)
	}
	return name, nil
}
