package volume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/nodeselector"
)

const classAnnotationReplaced = `deprecated since v1.8; use "storageClassName" attribute instead`

// volumeObjectWarnings warns of deprecated fields and annotations.
func volumeObjectWarnings(_ *resource.RequestContext, v, _ *corev1.PersistentVolume) []string {
	var warnings []string
	warn := func(at *field.Path, message string) { warnings = append(warnings, fmt.Sprintf("%s: %s", at, message)) }
	annotations, spec := field.NewPath("metadata", "annotations"), field.NewPath("spec")
	if _, ok := v.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		warn(annotations.Key(corev1.BetaStorageClassAnnotation), classAnnotationReplaced)
	}
	if _, ok := v.Annotations[corev1.MountOptionAnnotation]; ok {
		warn(annotations.Key(corev1.MountOptionAnnotation), `deprecated since v1.31; use "mountOptions" attribute instead`)
	}
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		warn(spec.Child("persistentVolumeReclaimPolicy"), "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	if v.Spec.NodeAffinity != nil && v.Spec.NodeAffinity.Required != nil {
		warnings = append(warnings, nodeselector.TermsWarnings(v.Spec.NodeAffinity.Required.NodeSelectorTerms, spec.Child("nodeAffinity", "required", "nodeSelectorTerms"))...)
	}
	for _, old := range []struct {
		set           bool
		name, message string
	}{
		{v.Spec.CephFS != nil, "cephfs", "deprecated in v1.28, non-functional in v1.31+"},
		{v.Spec.PhotonPersistentDisk != nil, "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"},
		{v.Spec.ScaleIO != nil, "scaleIO", "deprecated in v1.16, non-functional in v1.22+"},
		{v.Spec.StorageOS != nil, "storageOS", "deprecated in v1.22, non-functional in v1.25+"},
		{v.Spec.Glusterfs != nil, "glusterfs", "deprecated in v1.25, non-functional in v1.26+"},
		{v.Spec.Flocker != nil, "flocker", "deprecated in v1.22, non-functional in v1.25+"},
		{v.Spec.Quobyte != nil, "quobyte", "deprecated in v1.22, non-functional in v1.25+"},
		{v.Spec.RBD != nil, "rbd", "deprecated in v1.28, non-functional in v1.31+"},
	} {
		if old.set {
			warn(spec.Child(old.name), old.message)
		}
	}
	return warnings
}
