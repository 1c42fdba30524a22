// Package csivolume has what the attach/detach controller and the kubelet must
// agree on about volumes of CSI drivers: their names in the status of nodes and
// of their attachments, and which of them are attached to nodes at all.
package csivolume

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// PluginName is the name of upstream's plugin for the volumes of all drivers.
const PluginName = "kubernetes.io/csi"

// ControllerManagedAttachAnnotation is "true" on nodes whose volumes the
// attach/detach controller attaches.
const ControllerManagedAttachAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"

const (
	attachmentPrefix = "csi-"
	handleSeparator  = "^"
)

// UniqueName returns the name of a volume in the status of nodes.
func UniqueName(driver, handle string) v1.UniqueVolumeName {
	return v1.UniqueVolumeName(PluginName + "/" + driver + handleSeparator + handle)
}

// SplitUniqueName is the inverse of UniqueName. ok is false for a volume of
// another plugin.
func SplitUniqueName(name v1.UniqueVolumeName) (driver, handle string, ok bool) {
	rest, ok := strings.CutPrefix(string(name), PluginName+"/")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, handleSeparator)
}

// AttachmentName returns the name of the VolumeAttachment of a volume.
func AttachmentName(handle, driver, node string) string {
	sum := sha256.Sum256([]byte(handle + driver + node))
	return attachmentPrefix + hex.EncodeToString(sum[:])
}

// IsAttachmentName reports whether a name has the form of AttachmentName.
func IsAttachmentName(name string) bool {
	sum, ok := strings.CutPrefix(name, attachmentPrefix)
	raw, err := hex.DecodeString(sum)
	return ok && err == nil && len(raw) == sha256.Size
}

// AttachRequired reports whether the volumes of a driver have to be attached to
// nodes. They have to be if the driver has no CSIDriver object, which nil stands
// for.
func AttachRequired(driver *storagev1.CSIDriver) bool {
	return driver == nil || driver.Spec.AttachRequired == nil || *driver.Spec.AttachRequired
}
