package core

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// podRules is what the rules about one part of a pod need to know of the rest.
type podRules struct {
	PodOptions
	spec *corev1.PodSpec
	// metadata is the pod's, nil for a template.
	metadata *metav1.ObjectMeta
	volumes  map[string]*corev1.VolumeSource
	claims   map[string]bool
	// claimsTold says which claims there are, once somebody names another.
	claimsTold string
}

// ValidatePodSpec checks a pod's spec, or a template's, where metadata is nil.
func ValidatePodSpec(spec *corev1.PodSpec, metadata *metav1.ObjectMeta, path *field.Path, options PodOptions) field.ErrorList {
	rules := &podRules{PodOptions: options, spec: spec, metadata: metadata}
	errs := rules.validateVolumes(path.Child("volumes"))
	errs = append(errs, rules.validateResourceClaims(path.Child("resourceClaims"))...)
	errs = append(errs, rules.validateContainers(path.Child("containers"))...)
	errs = append(errs, rules.validateInitContainers(path.Child("initContainers"))...)
	errs = append(errs, rules.validateEphemeralContainers(path.Child("ephemeralContainers"))...)
	if spec.Resources != nil {
		errs = append(errs, rules.validatePodLevelResources(path.Child("resources"))...)
	}
	errs = append(errs, validateRestartPolicy(spec.RestartPolicy, path.Child("restartPolicy"))...)
	errs = append(errs, validateDNSPolicy(spec.DNSPolicy, path.Child("dnsPolicy"))...)
	errs = append(errs, validateLabels(spec.NodeSelector, path.Child("nodeSelector"))...)
	errs = append(errs, rules.validatePodSecurity(path)...)
	errs = append(errs, rules.validateAffinity(spec.Affinity, path.Child("affinity"))...)
	errs = append(errs, rules.validateDNSConfig(path.Child("dnsConfig"))...)
	errs = append(errs, validateReadinessGates(spec.ReadinessGates, path.Child("readinessGates"))...)
	errs = append(errs, validateSchedulingGates(spec.SchedulingGates, path.Child("schedulingGates"))...)
	errs = append(errs, rules.validateTopologySpread(path.Child("topologySpreadConstraints"))...)
	errs = append(errs, validateHostProcess(spec, path)...)
	errs = append(errs, validateOS(spec, path)...)
	errs = append(errs, rules.validateNames(path)...)
	errs = append(errs, rules.validateGated(path)...)
	if deadline := spec.ActiveDeadlineSeconds; deadline != nil && (*deadline < 1 || *deadline > math.MaxInt32) {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *deadline, utilvalidation.InclusiveRangeError(1, math.MaxInt32)))
	}
	if grace := spec.TerminationGracePeriodSeconds; grace == nil {
		errs = append(errs, field.Required(path.Child("terminationGracePeriodSeconds"), ""))
	}
	errs = append(errs, ValidateTolerations(spec.Tolerations, path.Child("tolerations"), rules.NumericTolerations)...)
	errs = append(errs, rules.validateHostAliases(path.Child("hostAliases"))...)
	if policy := spec.PreemptionPolicy; policy != nil {
		errs = append(errs, validatePreemptionPolicy(*policy, path.Child("preemptionPolicy"))...)
	}
	return append(errs, ValidateOverhead(spec.Overhead, path.Child("overhead"))...)
}

// validateNames checks what names other objects, or the pod in the network.
func (r *podRules) validateNames(path *field.Path) field.ErrorList {
	spec := r.spec
	var errs field.ErrorList
	check := func(name, value string, rule func(string) []string) {
		if value != "" {
			errs = append(errs, invalid(path.Child(name), value, rule(value))...)
		}
	}
	subdomain := func(name string) []string { return validation.NameIsDNSSubdomain(name, false) }
	check("serviceAccountName", spec.ServiceAccountName, subdomain)
	check("nodeName", spec.NodeName, subdomain)
	check("hostname", spec.Hostname, utilvalidation.IsDNS1123Label)
	check("subdomain", spec.Subdomain, utilvalidation.IsDNS1123Label)
	check("priorityClassName", spec.PriorityClassName, subdomain)
	if spec.RuntimeClassName != nil {
		errs = append(errs, invalid(path.Child("runtimeClassName"), *spec.RuntimeClassName, subdomain(*spec.RuntimeClassName))...)
	}
	if name := spec.HostnameOverride; name != nil {
		at := path.Child("hostnameOverride")
		if *name != "" {
			errs = append(errs, invalid(at, *name, utilvalidation.IsDNS1123Subdomain(*name))...)
			if len(*name) > 64 {
				errs = append(errs, field.TooLongMaxLength(at, *name, 64))
			}
		}
		if spec.HostNetwork {
			errs = append(errs, field.Forbidden(at, "may not be specified when hostNetwork is true"))
		}
		if spec.SetHostnameAsFQDN != nil && *spec.SetHostnameAsFQDN {
			errs = append(errs, field.Forbidden(at, "may not be specified when setHostnameAsFQDN is true"))
		}
	}
	return errs
}

func validateRestartPolicy(policy corev1.RestartPolicy, path *field.Path) field.ErrorList {
	if policy == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	switch policy {
	case corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever:
		return nil
	}
	return field.ErrorList{field.NotSupported(path, policy,
		[]corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever})}
}

func validatePreemptionPolicy(policy corev1.PreemptionPolicy, path *field.Path) field.ErrorList {
	switch policy {
	case corev1.PreemptLowerPriority, corev1.PreemptNever:
		return nil
	case "":
		return field.ErrorList{field.Required(path, "")}
	}
	return field.ErrorList{field.NotSupported(path, policy, []corev1.PreemptionPolicy{corev1.PreemptLowerPriority, corev1.PreemptNever})}
}

func validateReadinessGates(gates []corev1.PodReadinessGate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, gate := range gates {
		errs = append(errs, validateQualified(string(gate.ConditionType), path.Index(i).Child("conditionType"))...)
	}
	return errs
}

func validateSchedulingGates(gates []corev1.PodSchedulingGate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, gate := range gates {
		errs = append(errs, validateQualified(gate.Name, path.Index(i))...)
		if seen[gate.Name] {
			errs = append(errs, field.Duplicate(path.Index(i), gate.Name))
		}
		seen[gate.Name] = true
	}
	return errs
}

// ValidateOverhead checks what pods take beside their containers, like limits.
func ValidateOverhead(overhead corev1.ResourceList, path *field.Path) field.ErrorList {
	r := &podRules{}
	return r.validateRequirements(&corev1.ResourceRequirements{Limits: overhead}, path, validateContainerResourceName)
}
