package pod

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/core/resourcelist"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// specContext is shared by the rules for the parts of a spec. The rules of a
// part are methods of a type that embeds the context: volumeRules,
// resourceRules, containerRules, securityRules, schedulingRules and
// networkRules.
type specContext struct {
	Options
	spec *corev1.PodSpec
	// metadata is the pod's metadata, or nil for a template.
	metadata *metav1.ObjectMeta
}

// validateSpec checks a pod's spec, or the spec of a template if metadata is nil.
// Errors are in upstream's order.
func validateSpec(spec *corev1.PodSpec, metadata *metav1.ObjectMeta, path *field.Path, options Options) field.ErrorList {
	c := &specContext{Options: options, spec: spec, metadata: metadata}
	volumes := &volumeRules{specContext: c}
	resources := &resourceRules{specContext: c}
	security := &securityRules{c}
	scheduling := &schedulingRules{c}
	network := &networkRules{c}

	errs := volumes.validateVolumes(path.Child("volumes"))
	errs = append(errs, resources.validateResourceClaims(path.Child("resourceClaims"))...)
	containers := &containerRules{specContext: c, volumes: volumes.valid, resources: resources}
	errs = append(errs, containers.validateContainers(path.Child("containers"))...)
	errs = append(errs, containers.validateInitContainers(path.Child("initContainers"))...)
	errs = append(errs, containers.validateEphemeralContainers(path.Child("ephemeralContainers"))...)
	if spec.Resources != nil {
		errs = append(errs, resources.validatePodLevelResources(path.Child("resources"))...)
	}
	errs = append(errs, validateRestartPolicy(spec.RestartPolicy, path.Child("restartPolicy"))...)
	errs = append(errs, validateDNSPolicy(spec.DNSPolicy, path.Child("dnsPolicy"))...)
	errs = append(errs, validators.Labels(path.Child("nodeSelector"), spec.NodeSelector)...)
	errs = append(errs, security.validatePodSecurity(path)...)
	errs = append(errs, scheduling.validateAffinity(spec.Affinity, path.Child("affinity"))...)
	errs = append(errs, network.validateDNSConfig(path.Child("dnsConfig"))...)
	errs = append(errs, validateReadinessGates(spec.ReadinessGates, path.Child("readinessGates"))...)
	errs = append(errs, validateSchedulingGates(spec.SchedulingGates, path.Child("schedulingGates"))...)
	errs = append(errs, scheduling.validateTopologySpread(path.Child("topologySpreadConstraints"))...)
	errs = append(errs, validateHostProcess(spec, c.ForbidPrivileged, path)...)
	errs = append(errs, validateOS(spec, path)...)
	errs = append(errs, c.validateNames(path)...)
	errs = append(errs, validateGatedFields(spec, volumes.valid, path)...)
	if deadline := spec.ActiveDeadlineSeconds; deadline != nil && (*deadline < 1 || *deadline > math.MaxInt32) {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *deadline, utilvalidation.InclusiveRangeError(1, math.MaxInt32)))
	}
	if grace := spec.TerminationGracePeriodSeconds; grace == nil {
		errs = append(errs, field.Required(path.Child("terminationGracePeriodSeconds"), ""))
	}
	errs = append(errs, ValidateTolerations(spec.Tolerations, path.Child("tolerations"), c.NumericTolerations)...)
	errs = append(errs, network.validateHostAliases(path.Child("hostAliases"))...)
	if policy := spec.PreemptionPolicy; policy != nil {
		errs = append(errs, validatePreemptionPolicy(*policy, path.Child("preemptionPolicy"))...)
	}
	return append(errs, ValidateOverhead(spec.Overhead, path.Child("overhead"))...)
}

// validateNames checks the names of other objects, and the host names of the
// pod.
func (c *specContext) validateNames(path *field.Path) field.ErrorList {
	spec := c.spec
	var errs field.ErrorList
	check := func(name, value string, check func(*field.Path, string) field.ErrorList) {
		if value != "" {
			errs = append(errs, check(path.Child(name), value)...)
		}
	}
	check("serviceAccountName", spec.ServiceAccountName, validators.Subdomain)
	check("nodeName", spec.NodeName, validators.Subdomain)
	check("hostname", spec.Hostname, validators.Label)
	check("subdomain", spec.Subdomain, validators.Label)
	check("priorityClassName", spec.PriorityClassName, validators.Subdomain)
	if spec.RuntimeClassName != nil {
		errs = append(errs, validators.Subdomain(path.Child("runtimeClassName"), *spec.RuntimeClassName)...)
	}
	if name := spec.HostnameOverride; name != nil {
		at := path.Child("hostnameOverride")
		if *name != "" {
			errs = append(errs, validators.Subdomain(at, *name)...)
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
		errs = append(errs, validators.QualifiedName(path.Index(i).Child("conditionType"), string(gate.ConditionType))...)
	}
	return errs
}

func validateSchedulingGates(gates []corev1.PodSchedulingGate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, gate := range gates {
		errs = append(errs, validators.QualifiedName(path.Index(i), gate.Name)...)
		if seen[gate.Name] {
			errs = append(errs, field.Duplicate(path.Index(i), gate.Name))
		}
		seen[gate.Name] = true
	}
	return errs
}

// ValidateOverhead checks the resources that pods of a RuntimeClass need in
// addition to the resources of their containers.
func ValidateOverhead(overhead corev1.ResourceList, path *field.Path) field.ErrorList {
	r := &resourceRules{specContext: &specContext{}}
	return r.validateRequirements(&corev1.ResourceRequirements{Limits: overhead}, path, resourcelist.ValidateContainerName)
}
