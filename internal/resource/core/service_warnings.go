package core

import (
	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
)

func serviceWarnings(_ *resource.RequestContext, s, _ *corev1.Service) []string {
	var warnings []string
	if _, ok := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; ok {
		warnings = append(warnings, "annotation "+corev1.DeprecatedAnnotationTopologyAwareHints+" is deprecated, please use "+corev1.AnnotationTopologyMode+" instead")
	}
	warnings = append(warnings, addressWarnings(&s.Spec)...)
	warnings = append(warnings, ignoredWarnings(&s.Spec)...)
	if d := s.Spec.TrafficDistribution; d != nil && *d == corev1.ServiceTrafficDistributionPreferClose {
		warnings = append(warnings, `spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`)
	}
	return warnings
}

// addressWarnings warns of addresses in non-standard notation, and of fields
// that have better replacements.
func addressWarnings(s *corev1.ServiceSpec) []string {
	var warnings []string
	path := field.NewPath("spec")
	if s.Type != corev1.ServiceTypeExternalName && !isHeadless(s) {
		for i, ip := range s.ClusterIPs {
			warnings = append(warnings, utilvalidation.GetWarningsForIP(path.Child("clusterIPs").Index(i), ip)...)
		}
	}
	if len(s.ExternalIPs) > 0 {
		warnings = append(warnings, "spec.externalIPs is deprecated")
	}
	for i, ip := range s.ExternalIPs {
		warnings = append(warnings, utilvalidation.GetWarningsForIP(path.Child("externalIPs").Index(i), ip)...)
	}
	if s.LoadBalancerIP != "" {
		warnings = append(warnings, utilvalidation.GetWarningsForIP(path.Child("loadBalancerIP"), s.LoadBalancerIP)...)
	}
	for i, cidr := range s.LoadBalancerSourceRanges {
		warnings = append(warnings, utilvalidation.GetWarningsForCIDR(path.Child("loadBalancerSourceRanges").Index(i), cidr)...)
	}
	return warnings
}

// ignoredWarnings warns of fields that services of that type ignore.
func ignoredWarnings(s *corev1.ServiceSpec) []string {
	var warnings []string
	if s.Type == corev1.ServiceTypeClusterIP && isHeadless(s) {
		if s.LoadBalancerIP != "" {
			warnings = append(warnings, "spec.loadBalancerIP is ignored for headless services")
		}
		if len(s.ExternalIPs) > 0 {
			warnings = append(warnings, "spec.externalIPs is ignored for headless services")
		}
		if s.SessionAffinity != corev1.ServiceAffinityNone {
			warnings = append(warnings, "spec.SessionAffinity is ignored for headless services")
		}
	}
	if s.Type == corev1.ServiceTypeExternalName && len(s.ExternalIPs) > 0 {
		warnings = append(warnings, `spec.externalIPs is ignored when spec.type is "ExternalName"`)
	}
	if s.Type != corev1.ServiceTypeExternalName && s.ExternalName != "" {
		warnings = append(warnings, `spec.externalName is ignored when spec.type is not "ExternalName"`)
	}
	return warnings
}

// serviceStatusWarnings warns of addresses in other notations than the usual one.
func serviceStatusWarnings(s *corev1.Service) []string {
	var warnings []string
	path := field.NewPath("status", "loadBalancer", "ingress")
	for i, ingress := range s.Status.LoadBalancer.Ingress {
		if ingress.IP != "" {
			warnings = append(warnings, utilvalidation.GetWarningsForIP(path.Index(i), ingress.IP)...)
		}
	}
	return warnings
}
