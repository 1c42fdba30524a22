package volumebinder

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

// satisfies reports whether a volume has the size, volume mode and access modes
// that a claim requires.
func satisfies(v *v1.PersistentVolume, c *v1.PersistentVolumeClaim) bool {
	want := c.Spec.Resources.Requests[v1.ResourceStorage]
	have := v.Spec.Capacity[v1.ResourceStorage]
	return have.Cmp(want) >= 0 && !volume.CheckVolumeModeMismatches(&c.Spec, &v.Spec) && volume.CheckAccessModes(c, v)
}

// mismatch returns why a claim cannot have the volume that it names, or nil.
func mismatch(v *v1.PersistentVolume, c *v1.PersistentVolumeClaim) error {
	want := c.Spec.Resources.Requests[v1.ResourceStorage]
	have := v.Spec.Capacity[v1.ResourceStorage]
	switch {
	case v.DeletionTimestamp != nil:
		return fmt.Errorf("the volume is marked for deletion %q", v.Name)
	case have.Cmp(want) < 0:
		return errors.New("requested PV is too small")
	case volume.GetPersistentVolumeClass(v) != volume.GetPersistentVolumeClaimClass(c):
		return errors.New("storageClassName does not match")
	case ptr.Deref(v.Spec.VolumeAttributesClassName, "") != ptr.Deref(c.Spec.VolumeAttributesClassName, ""):
		return errors.New("volumeAttributesClassName does not match")
	case volume.CheckVolumeModeMismatches(&c.Spec, &v.Spec):
		return errors.New("incompatible volumeMode")
	case !volume.CheckAccessModes(c, v):
		return errors.New("incompatible accessMode")
	}
	return nil
}

// match returns the volume for a claim, or nil: a volume that is reserved for it,
// otherwise the smallest available one that satisfies it. If delayed is true, it
// returns only reserved volumes, because the scheduler chooses the volume
// (WaitForFirstConsumer).
func match(c *v1.PersistentVolumeClaim, volumes []*v1.PersistentVolume, delayed bool) *v1.PersistentVolume {
	var fitting []*v1.PersistentVolume
	for _, v := range volumes {
		if satisfies(v, c) {
			fitting = append(fitting, v)
		}
	}
	slices.SortFunc(fitting, func(a, b *v1.PersistentVolume) int { return strings.Compare(a.Name, b.Name) })
	found, err := volume.FindMatchingVolume(c, fitting, nil, nil, delayed, true)
	if err != nil {
		return nil // a selector that cannot be parsed selects nothing
	}
	return found
}
