package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

func serviceTypes() []corev1.ServiceType {
	return []corev1.ServiceType{
		corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName,
	}
}

func validateService(_ *resource.RequestContext, s *corev1.Service) field.ErrorList {
	errs := validateTopologyAnnotations(s)
	errs = append(errs, validateServiceSpec(&s.Spec, nil)...)
	return append(errs, validateSourceRangesAnnotation(s, nil)...)
}

// validateTopologyAnnotations refuses an annotation that contradicts the older
// one of the same meaning.
func validateTopologyAnnotations(s *corev1.Service) field.ErrorList {
	old, both := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	mode, ok := s.Annotations[corev1.AnnotationTopologyMode]
	if !both || !ok || mode == old {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations").Key(corev1.AnnotationTopologyMode), mode,
		fmt.Sprintf("must match annotations[%s] when both are specified", corev1.DeprecatedAnnotationTopologyAwareHints))}
}

func validateServiceSpec(spec, old *corev1.ServiceSpec) field.ErrorList {
	path := field.NewPath("spec")
	headless := isHeadless(spec)
	var errs field.ErrorList
	if len(spec.Ports) == 0 && !headless && spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(path.Child("ports"), ""))
	}
	errs = append(errs, validateServiceType(spec, path)...)
	errs = append(errs, validateServicePorts(spec, path)...)
	if spec.Selector != nil {
		errs = append(errs, validators.Labels(path.Child("selector"), spec.Selector)...)
	}
	errs = append(errs, validateSessionAffinity(spec, path)...)
	errs = append(errs, validateClusterIPs(spec, old, path)...)
	errs = append(errs, validateExternalIPs(spec, old, path)...)
	errs = append(errs, validateSourceRanges(spec, old, path)...)
	errs = append(errs, validateServiceTypeCombinations(spec, path)...)
	errs = append(errs, validateTrafficPolicies(spec, path)...)
	return append(errs, validateLoadBalancerClass(spec, path)...)
}

func isHeadless(spec *corev1.ServiceSpec) bool {
	return slices.Equal(spec.ClusterIPs, []string{corev1.ClusterIPNone}) || spec.ClusterIP == corev1.ClusterIPNone
}

func validateServiceType(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch spec.Type {
	case corev1.ServiceTypeLoadBalancer:
		if isHeadless(spec) {
			errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(0), corev1.ClusterIPNone,
				"may not be set to 'None' for LoadBalancer services"))
		}
	case corev1.ServiceTypeNodePort:
		if isHeadless(spec) {
			errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(0), corev1.ClusterIPNone,
				"may not be set to 'None' for NodePort services"))
		}
	case corev1.ServiceTypeExternalName:
		if len(spec.ClusterIPs) > 0 {
			errs = append(errs, field.Forbidden(path.Child("clusterIPs"), "may not be set for ExternalName services"))
		}
		if len(spec.IPFamilies) > 0 {
			errs = append(errs, field.Forbidden(path.Child("ipFamilies"), "may not be set for ExternalName services"))
		}
		if spec.IPFamilyPolicy != nil {
			errs = append(errs, field.Forbidden(path.Child("ipFamilyPolicy"), "may not be set for ExternalName services"))
		}
		// A trailing dot is allowed, because the name may be fully qualified.
		if name := strings.TrimSuffix(spec.ExternalName, "."); name == "" {
			errs = append(errs, field.Required(path.Child("externalName"), ""))
		} else {
			errs = append(errs, validators.Subdomain(path.Child("externalName"), name)...)
		}
	}
	if spec.Type == "" {
		return append(errs, field.Required(path.Child("type"), ""))
	}
	return append(errs, validators.Enum(path.Child("type"), spec.Type, serviceTypes()...)...)
}

func validateSessionAffinity(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	at := path.Child("sessionAffinity")
	if spec.SessionAffinity == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validators.Enum(at, spec.SessionAffinity, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	config := path.Child("sessionAffinityConfig")
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityClientIP:
		if spec.SessionAffinityConfig == nil {
			return append(errs, field.Required(config, ""))
		}
		client := spec.SessionAffinityConfig.ClientIP
		at := config.Child("clientIP", "timeoutSeconds")
		if client == nil || client.TimeoutSeconds == nil {
			return append(errs, field.Required(at, ""))
		}
		const most = 86400
		if *client.TimeoutSeconds <= 0 || *client.TimeoutSeconds > most {
			errs = append(errs, field.Invalid(at, *client.TimeoutSeconds, fmt.Sprintf("must be greater than 0 and less than %d", most)))
		}
	case corev1.ServiceAffinityNone:
		if spec.SessionAffinityConfig != nil {
			errs = append(errs, field.Forbidden(config, fmt.Sprintf("must not be set when session affinity is %s", corev1.ServiceAffinityNone)))
		}
	}
	return errs
}

func validateExternalIPs(spec, old *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var known sets.Set[string]
	if old != nil {
		known = sets.New(old.ExternalIPs...)
	}
	for i, ip := range spec.ExternalIPs {
		at := path.Child("externalIPs").Index(i)
		list := utilvalidation.IsValidIPForLegacyField(at, ip, validators.StrictAddresses, validators.KnownAddress(known, ip))
		errs = append(errs, list...)
		if len(list) == 0 {
			errs = append(errs, validateEndpointIP(ip, at)...)
		}
	}
	return errs
}

func validateServiceTypeCombinations(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.Type != corev1.ServiceTypeLoadBalancer && spec.AllocateLoadBalancerNodePorts != nil {
		errs = append(errs, field.Forbidden(path.Child("allocateLoadBalancerNodePorts"),
			"may only be used when `type` is 'LoadBalancer'"))
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer && spec.AllocateLoadBalancerNodePorts == nil {
		errs = append(errs, field.Required(path.Child("allocateLoadBalancerNodePorts"), ""))
	}
	return errs
}

func validateSourceRanges(spec, old *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	if len(spec.LoadBalancerSourceRanges) == 0 {
		return nil
	}
	at := path.Child("LoadBalancerSourceRanges")
	var errs field.ErrorList
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		errs = append(errs, field.Forbidden(at, "may only be used when `type` is 'LoadBalancer'"))
	}
	var known sets.Set[string]
	if old != nil {
		known = sets.New(old.LoadBalancerSourceRanges...)
	}
	for i, cidr := range spec.LoadBalancerSourceRanges {
		cidr = strings.TrimSpace(cidr) // spaces around an entry have always been allowed
		errs = append(errs, utilvalidation.IsValidCIDRForLegacyField(at.Index(i), cidr, validators.StrictAddresses, validators.KnownAddress(known, cidr))...)
	}
	return errs
}

// validateSourceRangesAnnotation checks the annotation that the field
// loadBalancerSourceRanges replaced. The field takes precedence. An unchanged
// annotation is not checked again.
func validateSourceRangesAnnotation(s, old *corev1.Service) field.ErrorList {
	value, ok := s.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
	if !ok || len(s.Spec.LoadBalancerSourceRanges) > 0 {
		return nil
	}
	at := field.NewPath("metadata", "annotations").Key(corev1.AnnotationLoadBalancerSourceRangesKey)
	var errs field.ErrorList
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		errs = append(errs, field.Forbidden(at, "may only be used when `type` is 'LoadBalancer'"))
	}
	if old != nil && old.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey] == value || strings.TrimSpace(value) == "" {
		return errs
	}
	for _, cidr := range strings.Split(value, ",") {
		errs = append(errs, utilvalidation.IsValidCIDRForLegacyField(at, strings.TrimSpace(cidr), validators.StrictAddresses, nil)...)
	}
	return errs
}

func validateTrafficPolicies(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	external := path.Child("externalTrafficPolicy")
	accessible := externallyAccessible(spec)
	switch {
	case !accessible && spec.ExternalTrafficPolicy != "":
		errs = append(errs, field.Invalid(external, spec.ExternalTrafficPolicy, "may only be set for externally-accessible services"))
	case accessible && spec.ExternalTrafficPolicy == "":
		errs = append(errs, field.Required(external, "for externally-accessible services"))
	case accessible:
		errs = append(errs, validators.Enum(external, spec.ExternalTrafficPolicy,
			corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)...)
	}
	health := path.Child("healthCheckNodePort")
	switch port := spec.HealthCheckNodePort; {
	case port == 0:
	case needsHealthCheckPort(spec):
		errs = append(errs, validators.Problems(health, port, utilvalidation.IsValidPortNum(int(port)))...)
	default:
		errs = append(errs, field.Invalid(health, port, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	}
	internal := path.Child("internalTrafficPolicy")
	if hasClusterIPType(spec) && spec.InternalTrafficPolicy == nil {
		errs = append(errs, field.Required(internal, ""))
	}
	if spec.InternalTrafficPolicy != nil {
		errs = append(errs, validators.Enum(internal, *spec.InternalTrafficPolicy,
			corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)...)
	}
	if spec.TrafficDistribution != nil {
		errs = append(errs, validators.Enum(path.Child("trafficDistribution"), *spec.TrafficDistribution,
			corev1.ServiceTrafficDistributionPreferClose,
			corev1.ServiceTrafficDistributionPreferSameZone,
			corev1.ServiceTrafficDistributionPreferSameNode)...)
	}
	return errs
}

func validateLoadBalancerClass(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	at := path.Child("loadBalancerClass")
	switch {
	case spec.LoadBalancerClass == nil:
		return nil
	case spec.Type != corev1.ServiceTypeLoadBalancer:
		return field.ErrorList{field.Forbidden(at, "may only be used when `type` is 'LoadBalancer'")}
	}
	return validators.QualifiedName(at, *spec.LoadBalancerClass)
}

// validateLoadBalancerClassUpdate keeps the class of a load balancer. Upstream
// runs the checks of creates twice in updates, so each error appears twice.
func validateLoadBalancerClassUpdate(spec, old *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if old.Type == corev1.ServiceTypeLoadBalancer && spec.Type == corev1.ServiceTypeLoadBalancer &&
		!resource.Equal(spec.LoadBalancerClass, old.LoadBalancerClass) {
		errs = append(errs, field.Invalid(path.Child("loadBalancerClass"), spec.LoadBalancerClass, "may not change once set"))
	}
	return append(errs, validateLoadBalancerClass(spec, path)...)
}

// validateServiceUpdate checks the primary address only if the service is
// otherwise valid: an invalid address is not reported as a change, too.
func validateServiceUpdate(_ *resource.RequestContext, s, old *corev1.Service) field.ErrorList {
	errs := resource.ValidateNamedMetadata(s, true, validation.NameIsDNSLabel)
	errs = append(errs, validateTopologyAnnotations(s)...)
	found := validateServiceSpec(&s.Spec, &old.Spec)
	errs = append(errs, found...)
	errs = append(errs, validateSourceRangesAnnotation(s, old)...)
	errs = append(errs, validateLoadBalancerClassUpdate(&s.Spec, &old.Spec, field.NewPath("spec"))...)
	if needsHealthCheckPort(&old.Spec) && needsHealthCheckPort(&s.Spec) && s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "healthCheckNodePort"), "field is immutable"))
	}
	if len(found) == 0 && hasClusterIPType(&old.Spec) && hasClusterIPType(&s.Spec) {
		errs = append(errs, validateClusterIPsUpdate(s, old, field.NewPath("spec"))...)
	}
	return errs
}
