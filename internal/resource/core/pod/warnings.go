package pod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/nodeselector"
	"github.com/coracle-io/coracle/internal/resource/core/volume"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// warnings warns of new pods only: it is seldom a person who updates a pod.
func warnings(_ *resource.RequestContext, p, old *corev1.Pod) []string {
	if old != nil {
		return nil
	}
	return append(validators.HostnameWarnings(p.Name), templateWarnings(asTemplate(p), nil)...)
}

// TemplateWarnings returns warnings about fields that are accepted in a
// template but do not work as their author expects. It returns none if the
// template did not change.
func TemplateWarnings(template, old *corev1.PodTemplateSpec, path *field.Path) []string {
	if template == nil || old != nil && resource.Equal(template, old) {
		return nil
	}
	return templateWarnings(template, path)
}

func templateWarnings(t *corev1.PodTemplateSpec, path *field.Path) []string {
	var warnings []string
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	spec := path.Child("spec")
	for key := range t.Spec.NodeSelector {
		if message, deprecated := nodeselector.DeprecatedLabel(key); deprecated {
			warn("%s: %s", spec.Child("nodeSelector").Key(key), message)
		}
	}
	warnings = append(warnings, nodeWarnings(&t.Spec, spec)...)
	for key, message := range nonFunctionalAnnotations() {
		if _, ok := t.Annotations[key]; ok {
			warn("%s: %s", path.Child("metadata", "annotations").Key(key), message)
		}
	}
	for i := range t.Spec.Volumes {
		warnings = append(warnings, volumeWarnings(&t.Spec.Volumes[i].VolumeSource, spec.Child("volumes").Index(i))...)
	}
	warnings = append(warnings, pathWarnings(t.Spec.Volumes)...)
	addresses := map[string]bool{}
	for i, alias := range t.Spec.HostAliases {
		if addresses[alias.IP] {
			warn("%s: duplicate ip %q", spec.Child("hostAliases").Index(i).Child("ip"), alias.IP)
		}
		addresses[alias.IP] = true
	}
	warnings = append(warnings, pullSecretWarnings(t.Spec.ImagePullSecrets, spec.Child("imagePullSecrets"))...)
	warnings = append(warnings, fractionWarnings(t.Spec.Overhead, spec.Child("overhead"))...)
	warnings = append(warnings, profileAnnotationWarnings(t, path)...)
	eachContainer(&t.Spec, spec, func(c *corev1.Container, at *field.Path) {
		warnings = append(warnings, containerWarnings(c, at)...)
	})
	warnings = append(warnings, portWarnings(&t.Spec, spec)...)
	if grace := t.Spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		warn("%s: must be >= 0; negative values are invalid and will be treated as 1", spec.Child("terminationGracePeriodSeconds"))
	}
	warnings = append(warnings, selectorWarnings(&t.Spec, spec)...)
	if dns := t.Spec.DNSConfig; dns != nil {
		for i, server := range dns.Nameservers {
			warnings = append(warnings, utilvalidation.GetWarningsForIP(spec.Child("dnsConfig", "nameservers").Index(i), server)...)
		}
	}
	for i, alias := range t.Spec.HostAliases {
		warnings = append(warnings, utilvalidation.GetWarningsForIP(spec.Child("hostAliases").Index(i).Child("ip"), alias.IP)...)
	}
	return warnings
}

// nonFunctionalAnnotations are annotations that no longer have an effect, with
// the warnings about them.
func nonFunctionalAnnotations() map[string]string {
	return map[string]string{
		"scheduler.alpha.kubernetes.io/critical-pod":  `non-functional in v1.16+; use the "priorityClassName" field instead`,
		"security.alpha.kubernetes.io/sysctls":        `non-functional in v1.11+; use the "sysctls" field instead`,
		"security.alpha.kubernetes.io/unsafe-sysctls": `non-functional in v1.11+; use the "sysctls" field instead`,
	}
}

func pullSecretWarnings(secrets []corev1.LocalObjectReference, at *field.Path) []string {
	var warnings []string
	seen := map[string]bool{}
	for i, secret := range secrets {
		if seen[secret.Name] {
			warnings = append(warnings, fmt.Sprintf("%s: duplicate name %q", at.Index(i).Child("name"), secret.Name))
		}
		seen[secret.Name] = true
	}
	for i, secret := range secrets {
		if secret.Name == "" {
			warnings = append(warnings, fmt.Sprintf("%s: invalid empty name %q", at.Index(i).Child("name"), secret.Name))
		}
	}
	return warnings
}

// oldAppArmor is the warning about an annotation that names an AppArmor profile.
const oldAppArmor = `deprecated since v1.30; use the "appArmorProfile" field instead`

// profileAnnotationWarnings warns of annotations for seccomp and AppArmor
// profiles if the field that replaced them is not set. Of the AppArmor
// annotations of a pod, applyAppArmorAnnotations has warned.
func profileAnnotationWarnings(t *corev1.PodTemplateSpec, path *field.Path) []string {
	if len(t.Annotations) == 0 {
		return nil
	}
	var warnings []string
	warn := func(key, message string) {
		if _, ok := t.Annotations[key]; ok {
			warnings = append(warnings, fmt.Sprintf("%s: %s", path.Child("metadata", "annotations").Key(key), message))
		}
	}
	const seccomp = `non-functional in v1.27+; use the "seccompProfile" field instead`
	pod := t.Spec.SecurityContext
	if pod == nil || pod.SeccompProfile == nil {
		warn(corev1.SeccompPodAnnotationKey, seccomp)
	}
	eachContainer(&t.Spec, nil, func(c *corev1.Container, _ *field.Path) {
		if c.SecurityContext == nil || c.SecurityContext.SeccompProfile == nil {
			warn(corev1.SeccompContainerAnnotationKeyPrefix+c.Name, seccomp)
		}
		if path != nil && (pod == nil || pod.AppArmorProfile == nil) && (c.SecurityContext == nil || c.SecurityContext.AppArmorProfile == nil) {
			warn(corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name, oldAppArmor)
		}
	})
	return warnings
}

// nodeWarnings warns of deprecated node labels, and of topology spread
// constraints that select no pods.
func nodeWarnings(s *corev1.PodSpec, spec *field.Path) []string {
	var warnings []string
	if s.Affinity != nil && s.Affinity.NodeAffinity != nil {
		at := spec.Child("affinity", "nodeAffinity")
		if required := s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			warnings = append(warnings, nodeselector.TermsWarnings(required.NodeSelectorTerms, at.Child(requiredTerms, "nodeSelectorTerms"))...)
		}
		for i := range s.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			term := &s.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[i]
			warnings = append(warnings, nodeselector.TermWarnings(&term.Preference, at.Child(preferredTerms).Index(i).Child("preference"))...)
		}
	}
	for i := range s.TopologySpreadConstraints {
		c, at := &s.TopologySpreadConstraints[i], spec.Child("topologySpreadConstraints").Index(i)
		warnings = append(warnings, nodeselector.LabelWarnings(c.TopologyKey, at.Child("topologyKey"))...)
		warnings = append(warnings, nullSelectorWarning(c.LabelSelector, at)...)
	}
	return warnings
}

func nullSelectorWarning(selector *metav1.LabelSelector, at *field.Path) []string {
	if selector != nil {
		return nil
	}
	return []string{fmt.Sprintf("%s: a null labelSelector results in matching no pod", at.Child("labelSelector"))}
}

// selectorWarnings warns of affinity terms that select no pods.
func selectorWarnings(s *corev1.PodSpec, spec *field.Path) []string {
	if s.Affinity == nil {
		return nil
	}
	var warnings []string
	pods := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, at *field.Path) {
		for i := range required {
			warnings = append(warnings, nullSelectorWarning(required[i].LabelSelector, at.Child(requiredTerms).Index(i))...)
		}
		for i := range preferred {
			warnings = append(warnings, nullSelectorWarning(preferred[i].PodAffinityTerm.LabelSelector, at.Child(preferredTerms).Index(i).Child("podAffinityTerm"))...)
		}
	}
	if a := s.Affinity.PodAffinity; a != nil {
		pods(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution, spec.Child("affinity", "podAffinity"))
	}
	if a := s.Affinity.PodAntiAffinity; a != nil {
		pods(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution, spec.Child("affinity", "podAntiAffinity"))
	}
	return warnings
}

func volumeWarnings(v *corev1.VolumeSource, path *field.Path) []string {
	var warnings []string
	deprecated := func(set bool, name, message string) {
		if set {
			warnings = append(warnings, fmt.Sprintf("%s: %s", path.Child(name), message))
		}
	}
	deprecated(v.PhotonPersistentDisk != nil, "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+")
	deprecated(v.GitRepo != nil, "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+")
	deprecated(v.ScaleIO != nil, "scaleIO", "deprecated in v1.16, non-functional in v1.22+")
	deprecated(v.Flocker != nil, "flocker", "deprecated in v1.22, non-functional in v1.25+")
	deprecated(v.StorageOS != nil, "storageOS", "deprecated in v1.22, non-functional in v1.25+")
	deprecated(v.Quobyte != nil, "quobyte", "deprecated in v1.22, non-functional in v1.25+")
	deprecated(v.Glusterfs != nil, "glusterfs", "deprecated in v1.25, non-functional in v1.26+")
	deprecated(v.CephFS != nil, "cephfs", "deprecated in v1.28, non-functional in v1.31+")
	deprecated(v.RBD != nil, "rbd", "deprecated in v1.28, non-functional in v1.31+")
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		warnings = append(warnings, volume.ClaimWarnings(&v.Ephemeral.VolumeClaimTemplate.Spec, path.Child("ephemeral", "volumeClaimTemplate", "spec"))...)
	}
	return warnings
}
