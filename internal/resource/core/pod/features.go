package pod

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource"
)

// gatedFields are the fields of a pod's spec that belong to a feature gate.
func gatedFields() []feature.Field[corev1.PodSpec] {
	return append(gatedVolumes(), []feature.Field[corev1.PodSpec]{
		{
			Gate:  feature.GenericWorkload,
			Used:  func(s *corev1.PodSpec) bool { return s.SchedulingGroup != nil },
			Clear: func(s *corev1.PodSpec) { s.SchedulingGroup = nil },
		},
		{
			Gate:  feature.EvictionRequestAPI,
			Used:  func(s *corev1.PodSpec) bool { return s.EvictionResponders != nil },
			Clear: func(s *corev1.PodSpec) { s.EvictionResponders = nil },
		},
		{
			Gate:  feature.PodLevelResources,
			Used:  func(s *corev1.PodSpec) bool { return s.Resources != nil },
			Clear: func(s *corev1.PodSpec) { s.Resources = nil },
		},
		containerField(feature.ContainerStopSignals, func(c *corev1.Container) bool {
			return c.Lifecycle != nil && c.Lifecycle.StopSignal != nil
		}, dropStopSignal),
		containerField(feature.VolumeBindMountOptions, func(c *corev1.Container) bool {
			return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.BindMountOptions != nil })
		}, func(c *corev1.Container) {
			for i := range c.VolumeMounts {
				c.VolumeMounts[i].BindMountOptions = nil
			}
		}),
		containerField(feature.ContainerRestartRules, func(c *corev1.Container) bool { return c.RestartPolicyRules != nil },
			func(c *corev1.Container) { c.RestartPolicyRules = nil }),
		containerField(feature.EnvFiles, func(c *corev1.Container) bool {
			return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.ValueFrom != nil && e.ValueFrom.FileKeyRef != nil })
		}, func(c *corev1.Container) {
			for i := range c.Env {
				if c.Env[i].ValueFrom != nil {
					c.Env[i].ValueFrom.FileKeyRef = nil
				}
			}
		}),
		probeField(feature.H2CContainerProbe, func(p *corev1.Probe) bool { return p.HTTPGet != nil && p.HTTPGet.Protocol != nil },
			func(p *corev1.Probe) { p.HTTPGet.Protocol = nil }),
		probeField(feature.GRPCContainerProbeTLS, func(p *corev1.Probe) bool { return p.GRPC != nil && p.GRPC.Mode != nil },
			func(p *corev1.Probe) { p.GRPC.Mode = nil }),
		{
			Gate: feature.MatchLabelKeysInPodTopologySpread,
			Used: func(s *corev1.PodSpec) bool {
				return slices.ContainsFunc(s.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool { return len(c.MatchLabelKeys) > 0 })
			},
			Clear: func(s *corev1.PodSpec) {
				for i := range s.TopologySpreadConstraints {
					s.TopologySpreadConstraints[i].MatchLabelKeys = nil
				}
			},
		},
	}...)
}

// gatedVolumes are those of gatedFields that are about volumes.
func gatedVolumes() []feature.Field[corev1.PodSpec] {
	return []feature.Field[corev1.PodSpec]{
		{
			Gate: feature.EmptyDirVolumeMode,
			Used: func(s *corev1.PodSpec) bool {
				return slices.ContainsFunc(s.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil && v.EmptyDir.Mode != nil })
			},
			Clear: func(s *corev1.PodSpec) {
				for i := range s.Volumes {
					if s.Volumes[i].EmptyDir != nil {
						s.Volumes[i].EmptyDir.Mode = nil
					}
				}
			},
		},
		{
			Gate: feature.AtomicWriteVolumeUserFields,
			Used: func(s *corev1.PodSpec) bool {
				for owner := range volumeOwners(s) {
					if *owner != nil {
						return true
					}
				}
				return false
			},
			Clear: func(s *corev1.PodSpec) {
				for owner := range volumeOwners(s) {
					*owner = nil
				}
			},
		},
		sourceField(feature.ClusterTrustBundleProjection, func(p *corev1.VolumeProjection) bool { return p.ClusterTrustBundle != nil },
			func(p *corev1.VolumeProjection) { p.ClusterTrustBundle = nil }),
		sourceField(feature.PodCertificateRequest, func(p *corev1.VolumeProjection) bool { return p.PodCertificate != nil },
			func(p *corev1.VolumeProjection) { p.PodCertificate = nil }),
	}
}

// DropDisabledTemplateFields clears the fields of disabled features unless the
// old template uses them. old may be nil.
func DropDisabledTemplateFields(features *feature.Set, template, old *corev1.PodTemplateSpec) {
	switch {
	case template == nil:
	case old == nil:
		feature.Drop(features, gatedFields(), &template.Spec, nil)
	default:
		feature.Drop(features, gatedFields(), &template.Spec, &old.Spec)
	}
}

func anyContainer(s *corev1.PodSpec, is func(*corev1.Container) bool) bool {
	for c := range podquery.AllContainers(s) {
		if is(c) {
			return true
		}
	}
	return false
}

// containerField describes a field of containers.
func containerField(gate feature.Gate, used func(*corev1.Container) bool, clear func(*corev1.Container)) feature.Field[corev1.PodSpec] {
	return feature.Field[corev1.PodSpec]{
		Gate: gate,
		Used: func(s *corev1.PodSpec) bool { return anyContainer(s, used) },
		Clear: func(s *corev1.PodSpec) {
			for c := range podquery.AllContainers(s) {
				if used(c) {
					clear(c)
				}
			}
		},
	}
}

// probeField describes a field of probes.
func probeField(gate feature.Gate, used func(*corev1.Probe) bool, clear func(*corev1.Probe)) feature.Field[corev1.PodSpec] {
	each := func(c *corev1.Container, do func(*corev1.Probe)) {
		for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			if probe != nil && used(probe) {
				do(probe)
			}
		}
	}
	return containerField(gate, func(c *corev1.Container) bool {
		found := false
		each(c, func(*corev1.Probe) { found = true })
		return found
	}, func(c *corev1.Container) { each(c, clear) })
}

// sourceField describes a source of projected volumes.
func sourceField(gate feature.Gate, used func(*corev1.VolumeProjection) bool, clear func(*corev1.VolumeProjection)) feature.Field[corev1.PodSpec] {
	each := func(s *corev1.PodSpec, do func(*corev1.VolumeProjection)) {
		for i := range s.Volumes {
			if s.Volumes[i].Projected == nil {
				continue
			}
			for j := range s.Volumes[i].Projected.Sources {
				if p := &s.Volumes[i].Projected.Sources[j]; used(p) {
					do(p)
				}
			}
		}
	}
	return feature.Field[corev1.PodSpec]{
		Gate: gate,
		Used: func(s *corev1.PodSpec) bool {
			found := false
			each(s, func(*corev1.VolumeProjection) { found = true })
			return found
		},
		Clear: func(s *corev1.PodSpec) { each(s, clear) },
	}
}

// dropStopSignal clears the stop signal (KEP-4960), and a lifecycle that then
// is empty.
func dropStopSignal(c *corev1.Container) {
	c.Lifecycle.StopSignal = nil
	if c.Lifecycle.PostStart == nil && c.Lifecycle.PreStop == nil {
		c.Lifecycle = nil
	}
}

// volumeOwners yields pointers to the fields with the owner of a volume's
// files.
func volumeOwners(s *corev1.PodSpec) iter.Seq[**int64] {
	return func(yield func(**int64) bool) {
		for i := range s.Volumes {
			if !eachOwner(&s.Volumes[i], yield) {
				return
			}
		}
	}
}

func eachOwner(v *corev1.Volume, yield func(**int64) bool) bool {
	switch {
	case v.Secret != nil:
		return yield(&v.Secret.DefaultUser) && itemOwners(v.Secret.Items, yield)
	case v.ConfigMap != nil:
		return yield(&v.ConfigMap.DefaultUser) && itemOwners(v.ConfigMap.Items, yield)
	case v.DownwardAPI != nil:
		return yield(&v.DownwardAPI.DefaultUser) && fileOwners(v.DownwardAPI.Items, yield)
	case v.Projected != nil:
		if !yield(&v.Projected.DefaultUser) {
			return false
		}
		for i := range v.Projected.Sources {
			if !sourceOwners(&v.Projected.Sources[i], yield) {
				return false
			}
		}
	}
	return true
}

func sourceOwners(s *corev1.VolumeProjection, yield func(**int64) bool) bool {
	switch {
	case s.Secret != nil:
		return itemOwners(s.Secret.Items, yield)
	case s.ConfigMap != nil:
		return itemOwners(s.ConfigMap.Items, yield)
	case s.DownwardAPI != nil:
		return fileOwners(s.DownwardAPI.Items, yield)
	case s.ServiceAccountToken != nil:
		return yield(&s.ServiceAccountToken.User)
	case s.ClusterTrustBundle != nil:
		return yield(&s.ClusterTrustBundle.User)
	case s.PodCertificate != nil:
		return yield(&s.PodCertificate.User)
	}
	return true
}

func itemOwners(items []corev1.KeyToPath, yield func(**int64) bool) bool {
	for i := range items {
		if !yield(&items[i].User) {
			return false
		}
	}
	return true
}

func fileOwners(items []corev1.DownwardAPIVolumeFile, yield func(**int64) bool) bool {
	for i := range items {
		if !yield(&items[i].User) {
			return false
		}
	}
	return true
}

// applyAppArmorAnnotations copies profiles from the annotations of old clients
// to the fields that replaced them, and warns of the annotations. It leaves out
// invalid profiles, and the one that the pod has anyway.
func applyAppArmorAnnotations(r *resource.RequestContext, p *corev1.Pod) {
	if p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows {
		return
	}
	for c := range podquery.Containers(&p.Spec) {
		key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + c.Name
		value, ok := p.Annotations[key]
		if !ok || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			continue
		}
		profile := appArmorProfile(value)
		if len(validateAppArmorProfile(profile, nil)) > 0 {
			profile = nil
		}
		if profile != nil {
			if p.Spec.SecurityContext != nil && resource.Equal(p.Spec.SecurityContext.AppArmorProfile, profile) {
				continue
			}
			if c.SecurityContext == nil {
				c.SecurityContext = &corev1.SecurityContext{}
			}
			c.SecurityContext.AppArmorProfile = profile
		}
		if r.Warn != nil {
			r.Warn(fmt.Sprintf("%s: %s", field.NewPath("metadata", "annotations").Key(key), oldAppArmor))
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
