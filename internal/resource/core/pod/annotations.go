package pod

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// validateAnnotations checks the annotations that the server interprets.
func validateAnnotations(annotations map[string]string, spec *corev1.PodSpec, options Options, at *field.Path) field.ErrorList {
	if len(annotations) == 0 {
		return nil
	}
	var errs field.ErrorList
	if value, ok := annotations[corev1.MirrorPodAnnotationKey]; ok && spec.NodeName == "" {
		errs = append(errs, field.Invalid(at.Key(corev1.MirrorPodAnnotationKey), value,
			"must set spec.nodeName if mirror pod annotation is set"))
	}
	if value := annotations[tolerationsAnnotation]; value != "" {
		errs = append(errs, validateTolerationsAnnotation(value, at, options.NumericTolerations)...)
	}
	if !options.InvalidDeletionCost && hasInvalidDeletionCost(annotations) {
		errs = append(errs, field.Invalid(at.Key(deletionCostAnnotation), annotations[deletionCostAnnotation], "must be a 32bit integer"))
	}
	return append(errs, validateProfileAnnotations(annotations, spec, at)...)
}

func hasInvalidDeletionCost(annotations map[string]string) bool {
	value, ok := annotations[deletionCostAnnotation]
	if !ok {
		return false
	}
	_, err := parseDeletionCost(value)
	return err != nil
}

// tolerationsAnnotation is the annotation that the field tolerations replaced.
const tolerationsAnnotation = "scheduler.alpha.kubernetes.io/tolerations"

func validateTolerationsAnnotation(value string, at *field.Path, numeric bool) field.ErrorList {
	var tolerations []corev1.Toleration
	if err := json.Unmarshal([]byte(value), &tolerations); err != nil {
		return field.ErrorList{field.Invalid(at, tolerationsAnnotation, err.Error())}
	}
	return ValidateTolerations(tolerations, at.Child(tolerationsAnnotation), numeric)
}

// validateAnnotationsUpdate keeps the annotations that the kubelet interprets.
// Upstream runs the checks of creates twice in updates, so each error appears
// twice.
func validateAnnotationsUpdate(p, old *corev1.Pod, options Options) field.ErrorList {
	at := field.NewPath("metadata", "annotations")
	var errs field.ErrorList
	fixed := func(key, verb string) {
		if strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) {
			errs = append(errs, field.Forbidden(at.Key(key), "may not "+verb+" AppArmor annotations"))
		}
		if key == corev1.MirrorPodAnnotationKey {
			errs = append(errs, field.Forbidden(at.Key(key), "may not "+verb+" mirror pod annotation"))
		}
	}
	for key, was := range old.Annotations {
		if is, ok := p.Annotations[key]; !ok || is != was {
			fixed(key, "remove or update")
		}
	}
	for key := range p.Annotations {
		if _, ok := old.Annotations[key]; !ok {
			fixed(key, "add")
		}
	}
	return append(errs, validateAnnotations(p.Annotations, &p.Spec, options, at)...)
}

// validateProfileAnnotations checks the annotations for seccomp and AppArmor
// profiles, which fields have replaced.
func validateProfileAnnotations(annotations map[string]string, spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	containers := map[string]bool{}
	for c := range podquery.AllContainers(spec) {
		containers[c.Name] = true
	}
	for key, value := range annotations {
		if key == corev1.SeccompPodAnnotationKey || strings.HasPrefix(key, corev1.SeccompContainerAnnotationKeyPrefix) {
			errs = append(errs, validateSeccompAnnotation(value, at.Child(key))...)
		}
		name, ok := strings.CutPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
		if !ok {
			continue
		}
		if !containers[name] {
			errs = append(errs, field.Invalid(at.Key(key), name, "container not found"))
		}
		switch {
		case value == "", value == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault,
			value == corev1.DeprecatedAppArmorBetaProfileNameUnconfined,
			strings.HasPrefix(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix):
		default:
			errs = append(errs, field.Invalid(at.Key(key), value, fmt.Sprintf("invalid AppArmor profile name: %q", value)))
		}
	}
	return errs
}

func validateSeccompAnnotation(value string, at *field.Path) field.ErrorList {
	switch value {
	case corev1.SeccompProfileRuntimeDefault, corev1.DeprecatedSeccompProfileDockerDefault, corev1.SeccompProfileNameUnconfined:
		return nil
	}
	if local, ok := strings.CutPrefix(value, corev1.SeccompLocalhostProfileNamePrefix); ok {
		return validators.DescendingPath(at, local)
	}
	return field.ErrorList{field.Invalid(at, value, "must be a valid seccomp profile")}
}

// profile has the fields that seccomp and AppArmor profiles share.
type profile struct {
	unconfined, runtimeDefault bool
	localhost                  bool
	name                       *string
}

// validateProfilesAgree checks that the annotations and the fields of a new
// pod, or of a template, name the same profiles.
func validateProfilesAgree(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var pod *corev1.AppArmorProfile
	if s := spec.SecurityContext; s != nil {
		pod = s.AppArmorProfile
		errs = append(errs, validateSeccompMatches(annotations, corev1.SeccompPodAnnotationKey, s.SeccompProfile, path.Child("securityContext"))...)
	}
	windows := spec.OS != nil && spec.OS.Name == corev1.Windows
	eachContainer(spec, path, func(c *corev1.Container, at *field.Path) {
		at = at.Child("securityContext")
		apparmor := pod
		if s := c.SecurityContext; s != nil {
			errs = append(errs, validateSeccompMatches(annotations, corev1.SeccompContainerAnnotationKeyPrefix+c.Name, s.SeccompProfile, at)...)
			if s.AppArmorProfile != nil {
				apparmor = s.AppArmorProfile
			}
		}
		if !windows {
			errs = append(errs, validateAppArmorMatches(annotations, c.Name, apparmor, at)...)
		}
	})
	return errs
}

func validateSeccompMatches(annotations map[string]string, key string, p *corev1.SeccompProfile, at *field.Path) field.ErrorList {
	value, annotated := annotations[key]
	if p == nil || !annotated {
		return nil
	}
	if value == corev1.DeprecatedSeccompProfileDockerDefault {
		value = corev1.SeccompProfileRuntimeDefault
	}
	field := profile{
		unconfined:     p.Type == corev1.SeccompProfileTypeUnconfined,
		runtimeDefault: p.Type == corev1.SeccompProfileTypeRuntimeDefault,
		localhost:      p.Type == corev1.SeccompProfileTypeLocalhost,
		name:           p.LocalhostProfile,
	}
	return field.validateMatches("seccomp", value, corev1.SeccompProfileNameUnconfined, corev1.SeccompProfileRuntimeDefault,
		corev1.SeccompLocalhostProfileNamePrefix, at.Child("seccompProfile"))
}

func validateAppArmorMatches(annotations map[string]string, container string, p *corev1.AppArmorProfile, at *field.Path) field.ErrorList {
	value, annotated := annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+container]
	if p == nil || !annotated {
		return nil
	}
	field := profile{
		unconfined:     p.Type == corev1.AppArmorProfileTypeUnconfined,
		runtimeDefault: p.Type == corev1.AppArmorProfileTypeRuntimeDefault,
		localhost:      p.Type == corev1.AppArmorProfileTypeLocalhost,
		name:           p.LocalhostProfile,
	}
	return field.validateMatches("apparmor", value, corev1.DeprecatedAppArmorBetaProfileNameUnconfined,
		corev1.DeprecatedAppArmorBetaProfileRuntimeDefault, corev1.DeprecatedAppArmorBetaProfileNamePrefix, at.Child("appArmorProfile"))
}

// validateMatches checks that a profile is the one in its annotation. The
// annotation's values for the profile types are unconfined, runtimeDefault,
// and localhost followed by the name of the profile.
func (p profile) validateMatches(kind, annotation, unconfined, runtimeDefault, localhost string, at *field.Path) field.ErrorList {
	local, isLocal := strings.CutPrefix(annotation, localhost)
	switch {
	case p.unconfined && annotation != unconfined, p.runtimeDefault && annotation != runtimeDefault, p.localhost && !isLocal:
		return field.ErrorList{field.Forbidden(at.Child("type"), kind+" type in annotation and field must match")}
	case p.localhost && (p.name == nil || *p.name != local):
		return field.ErrorList{field.Forbidden(at.Child("localhostProfile"), kind+" profile in annotation and field must match")}
	}
	return nil
}
