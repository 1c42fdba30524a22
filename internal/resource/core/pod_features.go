package core

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
	usesSignals := old != nil && anyContainer(old, func(c *corev1.Container) bool {
		return c.Lifecycle != nil && c.Lifecycle.StopSignal != nil
	})
	eachContainer(spec, nil, func(c *corev1.Container, _ *field.Path) {
		for j := range c.VolumeMounts {
			c.VolumeMounts[j].BindMountOptions = nil
		}
		if !usesSignals {
			dropStopSignal(c)
		}
		for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			dropProbeProtocols(probe)
		}
	})
	if old == nil || !equal(spec.Volumes, old.Volumes) {
		for i := range spec.Volumes {
			dropVolumeOwners(&spec.Volumes[i])
		}
	}
}

func anyContainer(spec *corev1.PodSpec, is func(*corev1.Container) bool) bool {
	found := false
	eachContainer(spec, nil, func(c *corev1.Container, _ *field.Path) { found = found || is(c) })
	return found
}

// dropStopSignal takes away the signal of KEP-4960, and a lifecycle that said
// nothing else.
func dropStopSignal(c *corev1.Container) {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return
	}
	c.Lifecycle.StopSignal = nil
	if c.Lifecycle.PostStart == nil && c.Lifecycle.PreStop == nil {
		c.Lifecycle = nil
	}
}

func dropProbeProtocols(p *corev1.Probe) {
	if p != nil && p.HTTPGet != nil {
		p.HTTPGet.Protocol = nil
	}
	if p != nil && p.GRPC != nil {
		p.GRPC.Mode = nil
	}
}

// dropVolumeOwners clears who is to own a volume's files, and what may be
// done with an empty directory.
func dropVolumeOwners(v *corev1.Volume) {
	if v.EmptyDir != nil {
		v.EmptyDir.Mode = nil
	}
	if v.Secret != nil {
		v.Secret.DefaultUser = nil
		dropItemOwners(v.Secret.Items)
	}
	if v.ConfigMap != nil {
		v.ConfigMap.DefaultUser = nil
		dropItemOwners(v.ConfigMap.Items)
	}
	if v.DownwardAPI != nil {
		v.DownwardAPI.DefaultUser = nil
		dropFileOwners(v.DownwardAPI.Items)
	}
	if v.Projected == nil {
		return
	}
	v.Projected.DefaultUser = nil
	for i := range v.Projected.Sources {
		s := &v.Projected.Sources[i]
		if s.Secret != nil {
			dropItemOwners(s.Secret.Items)
		}
		if s.ConfigMap != nil {
			dropItemOwners(s.ConfigMap.Items)
		}
		if s.DownwardAPI != nil {
			dropFileOwners(s.DownwardAPI.Items)
		}
		if s.ServiceAccountToken != nil {
			s.ServiceAccountToken.User = nil
		}
		if s.ClusterTrustBundle != nil {
			s.ClusterTrustBundle.User = nil
		}
		if s.PodCertificate != nil {
			s.PodCertificate.User = nil
		}
	}
}

func dropItemOwners(items []corev1.KeyToPath) {
	for i := range items {
		items[i].User = nil
	}
}

func dropFileOwners(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		items[i].User = nil
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
