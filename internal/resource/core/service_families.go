package core

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Cluster IPs and their families: at most two of each, one per family, and in
// the same order.

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
		found := utilvalidation.IsValidIPForLegacyField(list.Index(i), ip, validators.StrictAddresses, known)
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
		errs = append(errs, validators.Enum(path.Child("ipFamilyPolicy"), *spec.IPFamilyPolicy,
			corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack)...)
	}
	if len(spec.IPFamilies) > 2 {
		errs = append(errs, field.Invalid(path.Child("ipFamilies"), spec.IPFamilies, "may only hold up to 2 values"))
	}
	seen := map[corev1.IPFamily]bool{}
	for i, family := range spec.IPFamilies {
		at := path.Child("ipFamilies").Index(i)
		errs = append(errs, validators.Enum(at, family, corev1.IPv4Protocol, corev1.IPv6Protocol)...)
		if seen[family] {
			errs = append(errs, field.Duplicate(at, family))
		}
		seen[family] = true
	}
	return errs
}

// AssignServiceFamilies sets ipFamilies and ipFamilyPolicy as far as they
// follow from the service and from the cluster's families, the preferred one
// first. Call it before addresses are allocated.
func AssignServiceFamilies(s, old *corev1.Service, cluster []corev1.IPFamily) {
	if s.Spec.Type == corev1.ServiceTypeExternalName || len(cluster) == 0 {
		return
	}
	spec := &s.Spec
	if old != nil && hasClusterIPType(&old.Spec) {
		if spec.IPFamilyPolicy == nil {
			spec.IPFamilyPolicy = old.Spec.IPFamilyPolicy
		}
		if len(spec.IPFamilies) == 0 {
			spec.IPFamilies = old.Spec.IPFamilies
		}
	}
	given := len(spec.IPFamilies) > 0
	for _, ip := range spec.ClusterIPs {
		if ip == corev1.ClusterIPNone || given {
			continue
		}
		if netutils.IsIPv6String(ip) {
			spec.IPFamilies = append(spec.IPFamilies, corev1.IPv6Protocol)
		} else if netutils.IsIPv4String(ip) {
			spec.IPFamilies = append(spec.IPFamilies, corev1.IPv4Protocol)
		}
	}
	selectorless := len(spec.Selector) == 0 && slices.Equal(spec.ClusterIPs, []string{corev1.ClusterIPNone})
	if spec.IPFamilyPolicy == nil {
		policy := corev1.IPFamilyPolicySingleStack
		switch {
		case len(spec.ClusterIPs) == 2 || len(spec.IPFamilies) == 2:
			policy = corev1.IPFamilyPolicyRequireDualStack
		case selectorless && len(spec.IPFamilies) == 0:
			policy = corev1.IPFamilyPolicyRequireDualStack
		}
		spec.IPFamilyPolicy = &policy
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{cluster[0]}
	}
	wantsTwo := *spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack ||
		*spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack && len(cluster) > 1
	if len(spec.IPFamilies) == 1 && wantsTwo && (selectorless || len(cluster) > 1) {
		spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
	}
}

// CheckedServiceFamilies is AssignServiceFamilies for services that have not
// been validated. If the addresses or families are invalid, it returns the
// errors and assigns nothing.
func CheckedServiceFamilies(s, old *corev1.Service, cluster []corev1.IPFamily) field.ErrorList {
	var before *corev1.ServiceSpec
	if old != nil {
		before = &old.Spec
	}
	if errs := validateClusterIPs(&s.Spec, before, field.NewPath("spec")); len(errs) > 0 {
		return errs
	}
	AssignServiceFamilies(s, old, cluster)
	return nil
}

func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}
