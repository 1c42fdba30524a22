package core

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
)

func podWarnings(_ *resource.Request, p, old *corev1.Pod) []string {
	if old != nil && p.Generation == old.Generation && maps.Equal(p.Annotations, old.Annotations) {
		return nil
	}
	return templateWarnings(podAsTemplate(p), nil)
}

// PodTemplateWarnings lists what is accepted in a template but will not do
// what its author means. A template that did not change was warned of before.
func PodTemplateWarnings(template, old *corev1.PodTemplateSpec, path *field.Path) []string {
	if template == nil || old != nil && equal(template, old) {
		return nil
	}
	return templateWarnings(template, path)
}

// deprecatedNodeLabels are node labels that have been replaced.
var deprecatedNodeLabels = map[string]string{
	"beta.kubernetes.io/arch":                  `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                    `deprecated since v1.14; use "kubernetes.io/os" instead`,
	"failure-domain.beta.kubernetes.io/region": `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	"failure-domain.beta.kubernetes.io/zone":   `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	"beta.kubernetes.io/instance-type":         `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
}

func templateWarnings(t *corev1.PodTemplateSpec, path *field.Path) []string {
	var warnings []string
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	spec := path.Child("spec")
	for key := range t.Spec.NodeSelector {
		if message, ok := deprecatedNodeLabels[key]; ok {
			warn("%s: %s", spec.Child("nodeSelector").Key(key), message)
		}
	}
	warnings = append(warnings, schedulingWarnings(&t.Spec, spec)...)
	for key := range t.Annotations {
		if strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) {
			warn(`%s: deprecated since v1.30; use the "appArmorProfile" field instead`, path.Child("metadata", "annotations").Key(key))
		}
		if key == seccompPodAnnotation || strings.HasPrefix(key, seccompContainerAnnotation) {
			warn(`%s: non-functional in v1.27+; use the "seccompProfile" field instead`, path.Child("metadata", "annotations").Key(key))
		}
	}
	for i, alias := range t.Spec.ImagePullSecrets {
		if alias.Name == "" {
			warn("%s: invalid empty name %q", spec.Child("imagePullSecrets").Index(i).Child("name"), "")
		}
	}
	seen := map[string]bool{}
	for i, secret := range t.Spec.ImagePullSecrets {
		if seen[secret.Name] {
			warn("%s: duplicate name %q", spec.Child("imagePullSecrets").Index(i).Child("name"), secret.Name)
		}
		seen[secret.Name] = true
	}
	for i := range t.Spec.Volumes {
		warnings = append(warnings, volumeWarnings(&t.Spec.Volumes[i].VolumeSource, spec.Child("volumes").Index(i))...)
	}
	hostnames := map[string]bool{}
	for i, alias := range t.Spec.HostAliases {
		if hostnames[alias.IP] {
			warn("%s: duplicate ip %q", spec.Child("hostAliases").Index(i).Child("ip"), alias.IP)
		}
		hostnames[alias.IP] = true
	}
	if len(t.Spec.Overhead) > 0 && t.Spec.RuntimeClassName == nil {
		warn("%s: fields are not supported without runtimeClassName", spec.Child("overhead"))
	}
	if grace := t.Spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		warn("%s: must be >= 0; negative values are invalid and will be treated as 1", spec.Child("terminationGracePeriodSeconds"))
	}
	eachContainer(&t.Spec, spec, func(c *corev1.Container, at *field.Path) {
		warnings = append(warnings, containerWarnings(c, at)...)
	})
	return warnings
}

// Annotations that once had the seccomp profiles.
const (
	seccompPodAnnotation       = "seccomp.security.alpha.kubernetes.io/pod"
	seccompContainerAnnotation = "container.seccomp.security.alpha.kubernetes.io/"
)

// schedulingWarnings find node labels that have been replaced, and selectors
// that select nothing.
func schedulingWarnings(s *corev1.PodSpec, spec *field.Path) []string {
	var warnings []string
	label := func(key string, at *field.Path) {
		if message, ok := deprecatedNodeLabels[key]; ok {
			warnings = append(warnings, fmt.Sprintf("%s: %s is %s", at, key, message))
		}
	}
	empty := func(selector *metav1.LabelSelector, at *field.Path) {
		if selector == nil {
			warnings = append(warnings, fmt.Sprintf("%s: a null labelSelector results in matching no pod", at.Child("labelSelector")))
		}
	}
	for i := range s.TopologySpreadConstraints {
		at := spec.Child("topologySpreadConstraints").Index(i)
		label(s.TopologySpreadConstraints[i].TopologyKey, at.Child("topologyKey"))
		empty(s.TopologySpreadConstraints[i].LabelSelector, at)
	}
	if s.Affinity == nil {
		return warnings
	}
	if node := s.Affinity.NodeAffinity; node != nil {
		at := spec.Child("affinity", "nodeAffinity")
		term := func(t *corev1.NodeSelectorTerm, at *field.Path) {
			for i := range t.MatchExpressions {
				label(t.MatchExpressions[i].Key, at.Child("matchExpressions").Index(i).Child("key"))
			}
		}
		if required := node.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			for i := range required.NodeSelectorTerms {
				term(&required.NodeSelectorTerms[i], at.Child(requiredTerms, "nodeSelectorTerms").Index(i))
			}
		}
		for i := range node.PreferredDuringSchedulingIgnoredDuringExecution {
			term(&node.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference, at.Child(preferredTerms).Index(i).Child("preference"))
		}
	}
	pods := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, at *field.Path) {
		for i := range required {
			empty(required[i].LabelSelector, at.Child(requiredTerms).Index(i))
		}
		for i := range preferred {
			empty(preferred[i].PodAffinityTerm.LabelSelector, at.Child(preferredTerms).Index(i).Child("podAffinityTerm"))
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
		warnings = append(warnings, claimWarnings(&v.Ephemeral.VolumeClaimTemplate.Spec, path.Child("ephemeral", "volumeClaimTemplate", "spec"))...)
	}
	return warnings
}

func containerWarnings(c *corev1.Container, path *field.Path) []string {
	var warnings []string
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	for _, list := range []struct {
		name  string
		items corev1.ResourceList
	}{{"limits", c.Resources.Limits}, {"requests", c.Resources.Requests}} {
		for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			if quantity, ok := list.items[name]; ok && quantity.MilliValue()%1000 != 0 {
				warn("%s: fractional byte value %q is invalid, must be an integer",
					path.Child("resources", list.name).Key(string(name)), quantity.String())
			}
		}
	}
	values := map[string]corev1.EnvVar{}
	for i, v := range c.Env {
		if before, ok := values[v.Name]; ok {
			if before.Value != "" && before.Value == v.Value || !equal(before, v) {
				warn("%s: hides previous definition of %q, which may be dropped when using apply", path.Child("env").Index(i), v.Name)
			}
		}
		values[v.Name] = v
	}
	type port struct {
		number   int32
		protocol corev1.Protocol
		hostIP   string
		hostPort int32
	}
	ports := map[port]int{}
	for i, p := range c.Ports {
		key := port{p.ContainerPort, p.Protocol, p.HostIP, p.HostPort}
		if first, ok := ports[key]; ok {
			warn("%s: duplicate port definition with %s", path.Child("ports").Index(i), path.Child("ports").Index(first))
		} else {
			ports[key] = i
		}
	}
	return warnings
}
