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

// AssignServiceFamilies sets ipFamilyPolicy and ipFamilies as far as they follow from the
// service and from the cluster's families, the preferred one first. It removes the second
// family and address of a service that becomes single-stack. It returns what is wrong with
// addresses and families; some of that, validation does not find. Call it before addresses
// are allocated.
func AssignServiceFamilies(s, old *corev1.Service, cluster []corev1.IPFamily) field.ErrorList {
	spec, path := &s.Spec, field.NewPath("spec")
	var before *corev1.ServiceSpec
	if old != nil {
		before = &old.Spec
	}
	if spec.Type == corev1.ServiceTypeExternalName || keepsPreference(spec, before) {
		return nil
	}
	assignFamilyPolicy(spec, before)
	if errs := validateClusterIPs(spec, before, path); len(errs) > 0 {
		return errs
	}
	spec.ClusterIPs, spec.IPFamilies = slices.Clone(spec.ClusterIPs), slices.Clone(spec.IPFamilies) // they may be those of old
	errs := releaseSecond(spec, before, path.Child("ipFamilyPolicy"))
	errs = append(errs, validateSingleStack(spec, path.Child("ipFamilyPolicy"))...)
	errs = append(errs, inferFamilies(spec, cluster, path.Child("clusterIPs"))...)
	if len(errs) > 0 {
		return errs
	}
	if isHeadless(spec) && len(spec.Selector) == 0 { // its endpoints may have any family
		completeFamilies(spec, cluster[0], true)
		return nil
	}
	if errs := validateConfigured(spec, cluster, path); len(errs) > 0 {
		return errs
	}
	completeFamilies(spec, cluster[0], len(cluster) > 1)
	return nil
}

// keepsPreference reports whether an update of a service that prefers two families does
// not concern them. It neither gains nor loses one then, even if the cluster has.
func keepsPreference(spec, before *corev1.ServiceSpec) bool {
	prefers := func(policy *corev1.IPFamilyPolicy) bool {
		return policy != nil && *policy == corev1.IPFamilyPolicyPreferDualStack
	}
	return before != nil && hasClusterIPType(spec) && spec.Type == before.Type &&
		prefers(spec.IPFamilyPolicy) && (before.IPFamilyPolicy == nil || prefers(before.IPFamilyPolicy)) &&
		slices.Equal(spec.ClusterIPs, before.ClusterIPs) && slices.Equal(spec.IPFamilies, before.IPFamilies)
}

// assignFamilyPolicy sets a policy that is not given: the one from before, so that no
// service gains or loses a family that was not asked to.
func assignFamilyPolicy(spec, before *corev1.ServiceSpec) {
	switch {
	case spec.IPFamilyPolicy != nil:
	case before != nil && before.IPFamilyPolicy != nil:
		spec.IPFamilyPolicy = new(*before.IPFamilyPolicy)
	case isHeadless(spec) && len(spec.Selector) == 0:
		spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	default:
		spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
	}
}

// releaseSecond removes the second address and family if the service becomes
// single-stack and they are as before. Otherwise it refuses that the client has removed
// them. path is that of the policy.
func releaseSecond(spec, before *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	switch {
	case before == nil:
		return nil
	case *spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack:
		if len(spec.ClusterIPs) > 1 && slices.Equal(spec.ClusterIPs, before.ClusterIPs) {
			spec.ClusterIPs = spec.ClusterIPs[:1]
		}
		if len(spec.IPFamilies) > 1 && slices.Equal(spec.IPFamilies, before.IPFamilies) {
			spec.IPFamilies = spec.IPFamilies[:1]
		}
		return nil
	}
	var errs field.ErrorList
	if n := len(spec.ClusterIPs); n > 0 && n < len(before.ClusterIPs) {
		errs = append(errs, field.Invalid(path, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary cluster IP"))
	}
	if n := len(spec.IPFamilies); n > 0 && n < len(before.IPFamilies) {
		errs = append(errs, field.Invalid(path, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary IP family"))
	}
	return errs
}

// validateSingleStack refuses two of anything in a single-stack service. path is that of
// the policy.
func validateSingleStack(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if *spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack {
		return nil
	}
	if len(spec.ClusterIPs) == 2 {
		errs = append(errs, field.Invalid(path, spec.IPFamilyPolicy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified"))
	}
	if len(spec.IPFamilies) == 2 {
		errs = append(errs, field.Invalid(path, spec.IPFamilyPolicy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"))
	}
	return errs
}

// inferFamilies adds the families of addresses for which none is given. path is that of
// the addresses.
func inferFamilies(spec *corev1.ServiceSpec, cluster []corev1.IPFamily, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, ip := range spec.ClusterIPs {
		if ip == corev1.ClusterIPNone || i < len(spec.IPFamilies) {
			continue
		}
		family := familyOf(ip)
		if !slices.Contains(cluster, family) {
			errs = append(errs, field.Invalid(path.Index(i), spec.ClusterIPs, fmt.Sprintf("%s is not configured on this cluster", family)))
			continue
		}
		spec.IPFamilies = append(spec.IPFamilies, family)
	}
	return errs
}

// validateConfigured refuses families that the cluster does not have.
func validateConfigured(spec *corev1.ServiceSpec, cluster []corev1.IPFamily, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if *spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack && len(cluster) < 2 {
		errs = append(errs, field.Invalid(path.Child("ipFamilyPolicy"), spec.IPFamilyPolicy, "this cluster is not configured for dual-stack services"))
	}
	for i, family := range spec.IPFamilies {
		if !slices.Contains(cluster, family) {
			errs = append(errs, field.Invalid(path.Child("ipFamilies").Index(i), family, "not configured on this cluster"))
		}
	}
	return errs
}

// completeFamilies sets the family if none is given, and adds the other one if the
// service wants two and may have them.
func completeFamilies(spec *corev1.ServiceSpec, preferred corev1.IPFamily, two bool) {
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{preferred}
	}
	if two && len(spec.IPFamilies) == 1 && *spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack {
		spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
	}
}

func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}
