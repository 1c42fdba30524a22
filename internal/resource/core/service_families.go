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
// may come and go.
func validateClusterIPsUpdate(s, old *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	list := path.Child("clusterIPs")
	if len(old.Spec.ClusterIPs) > 0 && old.Spec.ClusterIPs[0] != "" && len(s.Spec.ClusterIPs) > 0 &&
		s.Spec.ClusterIPs[0] != old.Spec.ClusterIPs[0] && s.Spec.ClusterIP != "" {
		errs = append(errs, field.Invalid(list.Index(0), s.Spec.ClusterIPs, "may not change once set"))
	}
	if len(old.Spec.ClusterIPs) > 1 && len(s.Spec.ClusterIPs) > 1 && s.Spec.ClusterIPs[1] != old.Spec.ClusterIPs[1] {
		errs = append(errs, field.Invalid(list.Index(1), s.Spec.ClusterIPs, "may not change once set"))
	}
	families := path.Child("ipFamilies")
	if len(old.Spec.IPFamilies) > 0 && len(s.Spec.IPFamilies) > 0 && s.Spec.IPFamilies[0] != old.Spec.IPFamilies[0] {
		errs = append(errs, field.Invalid(families.Index(0), s.Spec.IPFamilies, "may not change once set"))
	}
	return errs
}
