package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// Cluster IPs and their families: at most two of each, one of a family, and
// in the same order.

func validateClusterIPs(spec, old *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	if spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	errs := validateFamilies(spec, path)
	list := path.Child("clusterIPs")
	if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
		errs = append(errs, field.Required(list, ""))
	}
	if len(spec.ClusterIPs) == 0 {
		return errs
	}
	first := true
	if spec.ClusterIP == "" && spec.ClusterIPs[0] != "" {
		errs = append(errs, field.Invalid(list, spec.ClusterIPs, "must be empty when `clusterIP` is not specified"))
		first = false
	}
	if first && spec.ClusterIP != spec.ClusterIPs[0] {
		errs = append(errs, field.Invalid(list, spec.ClusterIPs, "first value must match `clusterIP`"))
	}
	var known []string
	if old != nil {
		known = old.ClusterIPs
	}
	families := map[corev1.IPFamily]int{}
	for i, ip := range spec.ClusterIPs {
		if i == 0 && ip == corev1.ClusterIPNone {
			if len(spec.ClusterIPs) > 1 {
				return append(errs, field.Invalid(list, spec.ClusterIPs, "'None' must be the first and only value"))
			}
			return errs
		}
		found := utilvalidation.IsValidIPForLegacyField(list.Index(i), ip, strictAddresses, known)
		if len(found) > 0 {
			errs = append(errs, found...)
			return errs
		}
		families[familyOf(ip)]++
	}
	if len(spec.ClusterIPs) > 2 {
		errs = append(errs, field.Invalid(list, spec.ClusterIPs, "may only hold up to 2 values"))
	}
	if families[corev1.IPv4Protocol] > 1 || families[corev1.IPv6Protocol] > 1 {
		errs = append(errs, field.Invalid(list, spec.ClusterIPs, "may specify no more than one IP for each IP family"))
		return errs
	}
	for i, ip := range spec.ClusterIPs {
		if i >= len(spec.IPFamilies) {
			break
		}
		known := spec.IPFamilies[i] == corev1.IPv4Protocol || spec.IPFamilies[i] == corev1.IPv6Protocol
		if known && familyOf(ip) != spec.IPFamilies[i] {
			errs = append(errs, field.Invalid(list.Index(i), ip, fmt.Sprintf("expected an %v value as indicated by `ipFamilies[%v]`", spec.IPFamilies[i], i)))
		}
	}
	return errs
}

func familyOf(ip string) corev1.IPFamily {
	if netutils.IsIPv6String(ip) {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func validateFamilies(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.IPFamilyPolicy != nil {
		errs = append(errs, oneOf(*spec.IPFamilyPolicy, path.Child("ipFamilyPolicy"),
			corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack)...)
	}
	if len(spec.IPFamilies) > 2 {
		errs = append(errs, field.Invalid(path.Child("ipFamilies"), spec.IPFamilies, "may only hold up to 2 values"))
	}
	seen := map[corev1.IPFamily]bool{}
	for i, family := range spec.IPFamilies {
		at := path.Child("ipFamilies").Index(i)
		errs = append(errs, oneOf(family, at, corev1.IPv4Protocol, corev1.IPv6Protocol)...)
		if seen[family] {
			errs = append(errs, field.Duplicate(at, family))
		}
		seen[family] = true
	}
	return errs
}

// validateClusterIPsUpdate keeps the primary address and family; a second one
// may come, and go with the policy that asked for it.
func validateClusterIPsUpdate(s, old *corev1.Service, path *field.Path) field.ErrorList {
	if isHeadless(&s.Spec) && isHeadless(&old.Spec) {
		return nil
	}
	var errs field.ErrorList
	const fixed = "may not change once set"
	is, was, list := s.Spec.ClusterIPs, old.Spec.ClusterIPs, path.Child("clusterIPs")
	if len(is) > 0 && len(was) > 0 && is[0] != was[0] && was[0] != "" && s.Spec.ClusterIP != "" {
		errs = append(errs, field.Invalid(list.Index(0), is, fixed))
	}
	if len(is) > 1 && len(was) > 1 && is[1] != was[1] {
		errs = append(errs, field.Invalid(list.Index(1), is, fixed))
	}
	policy := s.Spec.IPFamilyPolicy
	single := policy != nil && *policy == corev1.IPFamilyPolicySingleStack
	if len(is) == 1 && len(was) > 1 && !single {
		errs = append(errs, field.Invalid(path.Child("ipFamilyPolicy"), policy, "must be set to 'SingleStack' when releasing the secondary clusterIP"))
	}
	now, before, families := s.Spec.IPFamilies, old.Spec.IPFamilies, path.Child("ipFamilies")
	if len(now) > 0 && len(before) > 0 && now[0] != before[0] {
		errs = append(errs, field.Invalid(families.Index(0), now, fixed))
	}
	if len(now) > 1 && len(before) > 1 && now[1] != before[1] {
		errs = append(errs, field.Invalid(families.Index(0), now, fixed))
	}
	if len(now) == 1 && len(before) > 1 && !single {
		errs = append(errs, field.Invalid(path.Child("ipFamilyPolicy"), policy, "must be set to 'SingleStack' when releasing the secondary ipFamily"))
	}
	return errs
}
