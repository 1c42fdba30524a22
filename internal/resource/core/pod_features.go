package core

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// DropDisabledPodTemplateFields clears the fields of features that are off,
// unless the old template uses them already. old may be nil.
func DropDisabledPodTemplateFields(template, old *corev1.PodTemplateSpec) {
	if template == nil {
		return
	}
	if old == nil {
		dropDisabledPodFields(&template.Spec, nil)
		return
	}
	dropDisabledPodFields(&template.Spec, &old.Spec)
}

func dropDisabledPodFields(spec, old *corev1.PodSpec) {
	if old == nil || old.SchedulingGroup == nil {
		spec.SchedulingGroup = nil
	}
	if old == nil || old.EvictionResponders == nil {
		spec.EvictionResponders = nil
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for j := range containers[i].VolumeMounts {
				containers[i].VolumeMounts[j].BindMountOptions = nil
			}
		}
	}
}

// applyAppArmorAnnotations moves profiles from the annotations of old clients
// to the fields that replaced them.
func applyAppArmorAnnotations(p *corev1.Pod) {
	if p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows {
		return
	}
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			value, ok := p.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]
			if !ok || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
				continue
			}
			profile := appArmorProfile(value)
			if profile == nil || p.Spec.SecurityContext != nil && equal(p.Spec.SecurityContext.AppArmorProfile, profile) {
				continue
			}
			if c.SecurityContext == nil {
				c.SecurityContext = &corev1.SecurityContext{}
			}
			c.SecurityContext.AppArmorProfile = profile
		}
	}
}

func appArmorProfile(annotation string) *corev1.AppArmorProfile {
	switch annotation {
	case corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	}
	if name, ok := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix); ok && name != "" {
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	return nil
}
