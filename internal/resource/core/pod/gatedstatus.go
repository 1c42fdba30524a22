package pod

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource/core/volume"
	"github.com/coracle-io/coracle/internal/resource/declarative"
)

// dropStatusFields clears the fields of disabled features that the old status
// does not have.
func dropStatusFields(features *feature.Set, s, old *corev1.PodStatus) {
	if len(old.NodeAllocatableResourceClaimStatuses) == 0 && !features.Enabled(feature.DRANodeAllocatableResources) {
		s.NodeAllocatableResourceClaimStatuses = nil
	}
	if len(old.VolumeHealth) == 0 && !features.Enabled(feature.CSIVolumeHealth) {
		s.VolumeHealth = nil
	}
	if old.Resources == nil && len(old.AllocatedResources) == 0 && !features.Enabled(feature.InPlacePodLevelResourcesVerticalScaling) {
		s.Resources, s.AllocatedResources = nil, nil
	}
	if !features.Enabled(feature.ResourceHealthStatus) {
		eachContainerStatus(s, func(c *corev1.ContainerStatus) { c.AllocatedResourcesStatus = nil })
	}
	digests := features.Enabled(feature.ImageVolumeWithDigest)
	eachMountStatus(old, func(m *corev1.VolumeMountStatus) { digests = digests || m.VolumeStatus != nil })
	if !digests {
		eachMountStatus(s, func(m *corev1.VolumeMountStatus) { m.VolumeStatus = nil })
	}
}

func eachContainerStatus(s *corev1.PodStatus, f func(*corev1.ContainerStatus)) {
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			f(&list[i])
		}
	}
}

func eachMountStatus(s *corev1.PodStatus, f func(*corev1.VolumeMountStatus)) {
	eachContainerStatus(s, func(c *corev1.ContainerStatus) {
		for i := range c.VolumeMounts {
			f(&c.VolumeMounts[i])
		}
	})
}

// validateGatedStatus checks the fields of features that are off by default.
func validateGatedStatus(s, old *corev1.PodStatus, p *field.Path) field.ErrorList {
	op := declarative.Update()
	errs := declarative.List(op, p.Child("nodeAllocatableResourceClaimStatuses"), s.NodeAllocatableResourceClaimStatuses, old.NodeAllocatableResourceClaimStatuses,
		func(c *corev1.NodeAllocatableResourceClaimStatus) string { return c.ResourceClaimName }, math.MaxInt, validateNodeAllocatable)
	return append(errs, declarative.List(op, p.Child("volumeHealth"), s.VolumeHealth, old.VolumeHealth,
		func(h *corev1.PodVolumeHealth) string { return h.Name }, math.MaxInt, validateVolumeHealth)...)
}

// validateNodeAllocatable checks what a pod has of a node's resources through a
// ResourceClaim.
func validateNodeAllocatable(op declarative.Operation, p *field.Path, c, old *corev1.NodeAllocatableResourceClaimStatus) field.ErrorList {
	if old == nil {
		op, old = declarative.Create(), &corev1.NodeAllocatableResourceClaimStatus{}
	}
	errs := declarative.Value(op, p.Child("resourceClaimName"), &c.ResourceClaimName, &old.ResourceClaimName, declarative.Required)
	errs = append(errs, declarative.List(op, p.Child("containers"), c.Containers, old.Containers,
		func(name *string) string { return *name }, math.MaxInt,
		func(declarative.Operation, *field.Path, *string, *string) field.ErrorList { return nil })...)
	errs = append(errs, declarative.List(op, p.Child("mapping"), c.Mapping, old.Mapping,
		func(m *corev1.NodeAllocatableMappedResources) string { return string(m.Name) }, math.MaxInt, validateNodeMapping)...)
	return append(errs, declarative.List(op, p.Child("overhead"), c.Overhead, old.Overhead,
		func(o *corev1.NodeAllocatableOverheadResources) string { return string(o.Name) }, math.MaxInt, validateNodeOverhead)...)
}

func validateNodeMapping(op declarative.Operation, p *field.Path, m, old *corev1.NodeAllocatableMappedResources) field.ErrorList {
	if old == nil {
		op, old = declarative.Create(), &corev1.NodeAllocatableMappedResources{}
	}
	errs := declarative.Value(op, p.Child("name"), &m.Name, &old.Name, declarative.Required)
	return append(errs, declarative.Pointer(op, p.Child("quantity"), m.Quantity, old.Quantity, declarative.Required)...)
}

func validateNodeOverhead(op declarative.Operation, p *field.Path, o, old *corev1.NodeAllocatableOverheadResources) field.ErrorList {
	if old == nil {
		op, old = declarative.Create(), &corev1.NodeAllocatableOverheadResources{}
	}
	errs := declarative.Value(op, p.Child("name"), &o.Name, &old.Name, declarative.Required)
	if o.PerPod == nil && o.PerContainer == nil {
		errs = append(errs, field.Invalid(p, "", "at least one of perPod or perContainer must be set"))
	}
	for _, amount := range []struct {
		name  string
		value *apiresource.Quantity
	}{{"perPod", o.PerPod}, {"perContainer", o.PerContainer}} {
		if amount.value != nil && amount.value.Sign() < 0 {
			errs = append(errs, field.Invalid(p.Child(amount.name), amount.value.String(), "must be non-negative"))
		}
	}
	return errs
}

// validateVolumeHealth checks what a CSI driver reports of a pod's volume.
func validateVolumeHealth(op declarative.Operation, p *field.Path, h, old *corev1.PodVolumeHealth) field.ErrorList {
	if old == nil {
		op, old = declarative.Create(), &corev1.PodVolumeHealth{}
	}
	errs := declarative.Value(op, p.Child("name"), &h.Name, &old.Name, declarative.Required)
	return append(errs, volume.ValidateHealth(op, p.Child("healthConditions"), h.HealthConditions, old.HealthConditions)...)
}
