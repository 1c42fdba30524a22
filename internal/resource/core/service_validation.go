package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

var protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}

var serviceTypes = []corev1.ServiceType{
	corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName,
}

func validateService(_ *resource.Request, s *corev1.Service) field.ErrorList {
	return validateServiceSpec(&s.Spec, nil)
}

func validateServiceSpec(spec, old *corev1.ServiceSpec) field.ErrorList {
	path := field.NewPath("spec")
	headless := isHeadless(spec)
	var errs field.ErrorList
	if len(spec.Ports) == 0 && !headless && spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(path.Child("ports"), ""))
	}
	errs = append(errs, validateServiceType(spec, path)...)
	errs = append(errs, validateServicePorts(spec, headless, path)...)
	if spec.Selector != nil {
		errs = append(errs, validateLabels(spec.Selector, path.Child("selector"))...)
	}
	errs = append(errs, validateSessionAffinity(spec, path)...)
	errs = append(errs, validateClusterIPs(spec, old, path)...)
	errs = append(errs, validateExternalIPs(spec, old, path)...)
	errs = append(errs, validateServiceTypeCombinations(spec, path)...)
	errs = append(errs, validateSourceRanges(spec, old, path)...)
	errs = append(errs, validateTrafficPolicies(spec, path)...)
	return append(errs, validateLoadBalancerClass(spec, old, path)...)
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
		// A trailing dot is allowed: the name may be given as fully qualified.
		if name := strings.TrimSuffix(spec.ExternalName, "."); name == "" {
			errs = append(errs, field.Required(path.Child("externalName"), ""))
		} else {
			errs = append(errs, invalid(path.Child("externalName"), name, utilvalidation.IsDNS1123Subdomain(name))...)
		}
	}
	if spec.Type == "" {
		return append(errs, field.Required(path.Child("type"), ""))
	}
	return append(errs, oneOf(spec.Type, path.Child("type"), serviceTypes...)...)
}

func validateServicePorts(spec *corev1.ServiceSpec, headless bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	ports := path.Child("ports")
	for i := range spec.Ports {
		errs = append(errs, validateServicePort(&spec.Ports[i], len(spec.Ports) > 1, headless, names, ports.Index(i))...)
	}
	type portKey struct {
		protocol corev1.Protocol
		port     int32
		nodePort int32
	}
	seen, nodePorts := map[portKey]bool{}, map[portKey]bool{}
	for i := range spec.Ports {
		port := &spec.Ports[i]
		key := portKey{protocol: port.Protocol, port: port.Port}
		if seen[key] {
			errs = append(errs, field.Duplicate(ports.Index(i), rule.Shown(corev1.ServicePort{Protocol: key.protocol, Port: key.port})))
		}
		seen[key] = true
		if port.NodePort == 0 {
			continue
		}
		key = portKey{protocol: port.Protocol, nodePort: port.NodePort}
		if nodePorts[key] {
			errs = append(errs, field.Duplicate(ports.Index(i).Child("nodePort"), port.NodePort))
		}
		nodePorts[key] = true
		if spec.Type == corev1.ServiceTypeClusterIP {
			errs = append(errs, field.Forbidden(ports.Index(i).Child("nodePort"), "may not be used when `type` is 'ClusterIP'"))
		}
	}
	return errs
}

func validateServicePort(p *corev1.ServicePort, named, headless bool, names map[string]bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if named && p.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else if p.Name != "" {
		errs = append(errs, invalid(path.Child("name"), p.Name, utilvalidation.IsDNS1123Label(p.Name))...)
		if names[p.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), p.Name))
		}
		names[p.Name] = true
	}
	errs = append(errs, invalid(path.Child("port"), p.Port, utilvalidation.IsValidPortNum(int(p.Port)))...)
	if p.Protocol == "" {
		errs = append(errs, field.Required(path.Child("protocol"), ""))
	} else {
		errs = append(errs, oneOf(p.Protocol, path.Child("protocol"), protocols...)...)
	}
	errs = append(errs, validatePortNumberOrName(p.TargetPort, path.Child("targetPort"))...)
	if p.AppProtocol != nil {
		errs = append(errs, validateQualified(*p.AppProtocol, path.Child("appProtocol"))...)
	}
	return errs
}

func validatePortNumberOrName(port intstr.IntOrString, path *field.Path) field.ErrorList {
	switch port.Type {
	case intstr.Int:
		return invalid(path, port.IntValue(), utilvalidation.IsValidPortNum(port.IntValue()))
	case intstr.String:
		return invalid(path, port.StrVal, utilvalidation.IsValidPortName(port.StrVal))
	default:
		return field.ErrorList{field.InternalError(path, fmt.Errorf("unknown type: %v", port.Type))}
	}
}

func validateSessionAffinity(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	at := path.Child("sessionAffinity")
	if spec.SessionAffinity == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := oneOf(spec.SessionAffinity, at, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
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
	var known []string
	if old != nil {
		known = old.ExternalIPs
	}
	for i, ip := range spec.ExternalIPs {
		at := path.Child("externalIPs").Index(i)
		list := utilvalidation.IsValidIPForLegacyField(at, ip, strictAddresses, known)
		errs = append(errs, list...)
		if len(list) == 0 {
			errs = append(errs, validateEndpointIP(ip, at)...)
		}
	}
	return errs
}

// strictAddresses refuses addresses that different parsers read differently
// (leading zeros); unchanged old ones are let through.
const strictAddresses = true

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
	var known []string
	if old != nil {
		known = old.LoadBalancerSourceRanges
	}
	for i, cidr := range spec.LoadBalancerSourceRanges {
		// Spaces around an entry were always allowed.
		errs = append(errs, utilvalidation.IsValidCIDRForLegacyField(at.Index(i), strings.TrimSpace(cidr), strictAddresses, known)...)
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
		errs = append(errs, oneOf(spec.ExternalTrafficPolicy, external,
			corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)...)
	}
	health := path.Child("healthCheckNodePort")
	if !needsHealthCheckPort(spec) && spec.HealthCheckNodePort != 0 {
		errs = append(errs, field.Invalid(health, spec.HealthCheckNodePort,
			"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	}
	if spec.HealthCheckNodePort < 0 {
		errs = append(errs, field.Invalid(health, spec.HealthCheckNodePort, isNegative))
	}
	internal := path.Child("internalTrafficPolicy")
	if hasClusterIPType(spec) && spec.InternalTrafficPolicy == nil {
		errs = append(errs, field.Required(internal, ""))
	}
	if spec.InternalTrafficPolicy != nil {
		errs = append(errs, oneOf(*spec.InternalTrafficPolicy, internal,
			corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)...)
	}
	if spec.TrafficDistribution != nil {
		errs = append(errs, oneOf(*spec.TrafficDistribution, path.Child("trafficDistribution"),
			corev1.ServiceTrafficDistributionPreferClose,
			corev1.ServiceTrafficDistributionPreferSameZone,
			corev1.ServiceTrafficDistributionPreferSameNode)...)
	}
	return errs
}

func validateLoadBalancerClass(spec, old *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	at := path.Child("loadBalancerClass")
	if old != nil && old.Type == corev1.ServiceTypeLoadBalancer && spec.Type == corev1.ServiceTypeLoadBalancer &&
		!equal(spec.LoadBalancerClass, old.LoadBalancerClass) {
		return field.ErrorList{field.Invalid(at, spec.LoadBalancerClass, "may not change once set")}
	}
	if spec.LoadBalancerClass == nil {
		return nil
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		return field.ErrorList{field.Forbidden(at, "may only be used when `type` is 'LoadBalancer'")}
	}
	return validateQualified(*spec.LoadBalancerClass, at)
}

// validateServiceUpdate checks the primary address only in a service that is
// otherwise good: a bad address is not a change of address.
func validateServiceUpdate(_ *resource.Request, s, old *corev1.Service) field.ErrorList {
	errs := resource.ValidateNamedMetadata(s, true, validation.NameIsDNSLabel)
	found := validateServiceSpec(&s.Spec, &old.Spec)
	errs = append(errs, found...)
	if len(found) == 0 && hasClusterIPType(&old.Spec) && hasClusterIPType(&s.Spec) {
		errs = append(errs, validateClusterIPsUpdate(s, old, field.NewPath("spec"))...)
	}
	return errs
}

func validateServiceStatus(_ *resource.Request, s, old *corev1.Service) field.ErrorList {
	return validateLoadBalancerStatus(&s.Status.LoadBalancer, &old.Status.LoadBalancer, &s.Spec,
		field.NewPath("status", "loadBalancer"))
}

func validateLoadBalancerStatus(status, old *corev1.LoadBalancerStatus, spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	ingresses := path.Child("ingress")
	if spec.Type != corev1.ServiceTypeLoadBalancer && len(status.Ingress) > 0 && !equal(status, old) {
		errs = append(errs, field.Forbidden(ingresses, fmt.Sprintf("may only be used when `spec.type` is %q", corev1.ServiceTypeLoadBalancer)))
		return errs
	}
	var known []string
	for _, ingress := range old.Ingress {
		known = append(known, ingress.IP)
	}
	for i, ingress := range status.Ingress {
		at := ingresses.Index(i)
		if ingress.IP != "" {
			errs = append(errs, utilvalidation.IsValidIPForLegacyField(at.Child("ip"), ingress.IP, strictAddresses, known)...)
			if ingress.IPMode == nil {
				errs = append(errs, field.Required(at.Child("ipMode"), "must be specified when `ip` is set"))
			} else {
				errs = append(errs, oneOf(*ingress.IPMode, at.Child("ipMode"), corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)...)
			}
		} else if ingress.IPMode != nil {
			errs = append(errs, field.Forbidden(at.Child("ipMode"), "may not be specified when `ip` is not set"))
		}
		if ingress.Hostname != "" {
			errs = append(errs, invalid(at.Child("hostname"), ingress.Hostname, utilvalidation.IsDNS1123Subdomain(ingress.Hostname))...)
			if netutils.ParseIPSloppy(ingress.Hostname) != nil {
				errs = append(errs, field.Invalid(at.Child("hostname"), ingress.Hostname, "must be a DNS name, not an IP address"))
			}
		}
	}
	return errs
}
