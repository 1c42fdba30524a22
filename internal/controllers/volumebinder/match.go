package volumebinder

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Annotations that binding leaves behind.
const (
	bindCompleted      = "pv.kubernetes.io/bind-completed"
	boundByController  = "pv.kubernetes.io/bound-by-controller"
	provisionedBy      = "pv.kubernetes.io/provisioned-by"
	provisioner        = "volume.kubernetes.io/storage-provisioner"
	betaProvisioner    = "volume.beta.kubernetes.io/storage-provisioner"
	selectedNode       = "volume.kubernetes.io/selected-node"
	storageClassByName = v1.BetaStorageClassAnnotation
)

func classOfClaim(c *v1.PersistentVolumeClaim) string {
	if class, ok := c.Annotations[storageClassByName]; ok {
		return class
	}
	if c.Spec.StorageClassName != nil {
		return *c.Spec.StorageClassName
	}
	return ""
}

func classOfVolume(v *v1.PersistentVolume) string {
	if class, ok := v.Annotations[storageClassByName]; ok {
		return class
	}
	return v.Spec.StorageClassName
}

// isFor reports whether a volume is reserved for a claim, be it by name only.
func isFor(v *v1.PersistentVolume, c *v1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && ref.Namespace == c.Namespace && ref.Name == c.Name && (ref.UID == "" || ref.UID == c.UID)
}

func mode(m *v1.PersistentVolumeMode) v1.PersistentVolumeMode {
	if m == nil {
		return v1.PersistentVolumeFilesystem
	}
	return *m
}

// suits reports whether a volume can serve a claim, whoever it belongs to.
func suits(v *v1.PersistentVolume, c *v1.PersistentVolumeClaim) bool {
	want := c.Spec.Resources.Requests[v1.ResourceStorage]
	have := v.Spec.Capacity[v1.ResourceStorage]
	return have.Cmp(want) >= 0 && mode(v.Spec.VolumeMode) == mode(c.Spec.VolumeMode) &&
		!slices.ContainsFunc(c.Spec.AccessModes, func(m v1.PersistentVolumeAccessMode) bool { return !slices.Contains(v.Spec.AccessModes, m) })
}

// match finds the volume for a claim: one that is reserved for it, else the
// smallest free one that suits. With delayed only a reserved one will do: the
// scheduler chooses for claims that wait for their first consumer.
func match(c *v1.PersistentVolumeClaim, volumes []*v1.PersistentVolume, delayed bool) *v1.PersistentVolume {
	selector := labels.Everything()
	if c.Spec.Selector != nil {
		s, err := metav1.LabelSelectorAsSelector(c.Spec.Selector)
		if err != nil {
			return nil
		}
		selector = s
	}
	var best *v1.PersistentVolume
	for _, v := range volumes {
		if v.DeletionTimestamp != nil || !suits(v, c) {
			continue
		}
		if isFor(v, c) {
			return v
		}
		if delayed || v.Spec.ClaimRef != nil || v.Status.Phase != v1.VolumeAvailable ||
			classOfVolume(v) != classOfClaim(c) || !selector.Matches(labels.Set(v.Labels)) {
			continue
		}
		if best == nil || smaller(v, best) {
			best = v
		}
	}
	return best
}

func smaller(a, b *v1.PersistentVolume) bool {
	x, y := a.Spec.Capacity[v1.ResourceStorage], b.Spec.Capacity[v1.ResourceStorage]
	if c := x.Cmp(y); c != 0 {
		return c < 0
	}
	return a.Name < b.Name
}
