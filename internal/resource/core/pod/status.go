package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// prepareStatus copies from the old pod what an update of the status cannot
// change, and clears the fields of disabled features.
func prepareStatus(r *resource.RequestContext, p, old *corev1.Pod) {
	p.DeletionTimestamp = old.DeletionTimestamp
	p.OwnerReferences = old.OwnerReferences
	if p.Status.QOSClass == "" {
		p.Status.QOSClass = old.Status.QOSClass
	}
	keepObservedGenerations(&p.Status, &old.Status)
	keepClaimStatuses(&p.Status, &old.Status)
	dropStatusFields(r.Features, &p.Status, &old.Status)
	if p.Status.HostIP != "" && len(p.Status.HostIPs) == 0 {
		p.Status.HostIPs = []corev1.HostIP{{IP: p.Status.HostIP}}
	}
	if p.Status.PodIP == "" && len(p.Status.PodIPs) > 0 {
		p.Status.PodIP = p.Status.PodIPs[0].IP
	}
	if p.Status.PodIP != "" && len(p.Status.PodIPs) == 0 {
		p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
	}
}

// keepObservedGenerations copies the observed generations that the new status
// leaves out: its own and those of its conditions. Clients of older versions do
// not know these fields. Several conditions of a type are taken in their order.
func keepObservedGenerations(s, old *corev1.PodStatus) {
	defaults.Zero(&s.ObservedGeneration, old.ObservedGeneration)
	had := map[corev1.PodConditionType][]int64{}
	for i := range old.Conditions {
		c := &old.Conditions[i]
		had[c.Type] = append(had[c.Type], c.ObservedGeneration)
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if generations := had[c.Type]; len(generations) > 0 {
			defaults.Zero(&c.ObservedGeneration, generations[0])
			had[c.Type] = generations[1:]
		}
	}
}

// keepClaimStatuses copies what the old status reports of ResourceClaims and the
// new one leaves out. Clients of older versions do not know these fields, and a
// pod without them could never release its devices.
func keepClaimStatuses(s, old *corev1.PodStatus) {
	if len(s.ResourceClaimStatuses) == 0 {
		s.ResourceClaimStatuses = old.ResourceClaimStatuses
	}
	if s.ExtendedResourceClaimStatus == nil {
		s.ExtendedResourceClaimStatus = old.ExtendedResourceClaimStatus
	}
	if len(s.NodeAllocatableResourceClaimStatuses) == 0 {
		s.NodeAllocatableResourceClaimStatuses = old.NodeAllocatableResourceClaimStatuses
	}
}

// notNegativeInteger is the error message for generations.
const notNegativeInteger = "must be a non-negative integer"

func validateStatus(_ *resource.RequestContext, p, old *corev1.Pod) field.ErrorList {
	path := field.NewPath("status")
	errs := validateAnnotationsUpdate(p, old, Options{InvalidDeletionCost: hasInvalidDeletionCost(old.Annotations)})
	errs = append(errs, validateConditions(p.Status.Conditions, path.Child("conditions"))...)
	if p.Spec.NodeName != old.Spec.NodeName {
		errs = append(errs, field.Forbidden(path.Child("nodeName"), "may not be changed directly"))
	}
	errs = append(errs, validateNomination(p, old, path.Child("nominatedNodeName"))...)
	if p.Status.ObservedGeneration < 0 {
		errs = append(errs, field.Invalid(path.Child("observedGeneration"), p.Status.ObservedGeneration, notNegativeInteger))
	}
	errs = append(errs, validateQOSFixed(p, old, path)...)
	errs = append(errs, validateContainerStatuses(p, old, path)...)
	errs = append(errs, validateClaimStatuses(p, path.Child("resourceClaimStatuses"))...)
	errs = append(errs, validateExtendedClaimStatus(p, path.Child("extendedResourceClaimStatus"))...)
	errs = append(errs, validateGatedStatus(&p.Status, &old.Status, path)...)
	errs = append(errs, validatePodIPs(p.Status.PodIPs, old.Status.PodIPs, path.Child("podIPs"))...)
	return append(errs, validateHostIPs(&p.Status, &old.Status, path.Child("hostIPs"))...)
}

// validateNomination checks nominatedNodeName, which only a pod without a node
// can have.
func validateNomination(p, old *corev1.Pod, at *field.Path) field.ErrorList {
	name := p.Status.NominatedNodeName
	if name == "" || name == old.Status.NominatedNodeName {
		return nil
	}
	errs := validators.Subdomain(at, name)
	if old.Spec.NodeName != "" {
		errs = append(errs, field.Forbidden(at, "may not be set on pods that are already bound to a node"))
	}
	return errs
}

func validateQOSFixed(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	if old.Status.QOSClass == "" || p.Status.QOSClass == old.Status.QOSClass {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("qosClass"), p.Status.QOSClass, validation.FieldImmutableErrorMsg)}
}

// validateConditions checks the types of conditions that the system does not
// define.
func validateConditions(conditions []corev1.PodCondition, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range conditions {
		c, at := &conditions[i], at.Index(i)
		if c.ObservedGeneration < 0 {
			errs = append(errs, field.Invalid(at.Child("observedGeneration"), c.ObservedGeneration, notNegativeInteger))
		}
		switch c.Type {
		case corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized:
		default:
			errs = append(errs, validators.QualifiedName(at.Child("Type"), string(c.Type))...)
		}
	}
	return errs
}

func validatePodIPs(ips, old []corev1.PodIP, at *field.Path) field.ErrorList {
	list, known := make([]string, len(ips)), make([]string, len(old))
	for i := range ips {
		list[i] = ips[i].IP
	}
	for i := range old {
		known[i] = old[i].IP
	}
	return validateIPPair(list, known, validators.Shown(ips), at)
}

// validateHostIPs checks that the first address is also in the older field
// hostIP.
func validateHostIPs(status, old *corev1.PodStatus, at *field.Path) field.ErrorList {
	if len(status.HostIPs) == 0 {
		return nil
	}
	list, known := make([]string, len(status.HostIPs)), make([]string, len(old.HostIPs))
	for i := range status.HostIPs {
		list[i] = status.HostIPs[i].IP
	}
	for i := range old.HostIPs {
		known[i] = old.HostIPs[i].IP
	}
	var errs field.ErrorList
	if list[0] != status.HostIP {
		errs = append(errs, field.Invalid(at.Index(0).Child("ip"), list[0], "must be equal to `hostIP`"))
	}
	return append(errs, validateIPPair(list, known, validators.Shown(status.HostIPs), at)...)
}

// validateIPPair checks a list of addresses: one, or one of each family. The
// addresses in known can have any notation.
func validateIPPair(ips, known []string, value any, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	ipv6 := 0
	for i, ip := range ips {
		errs = append(errs, utilvalidation.IsValidIPForLegacyField(at.Index(i), ip, validators.StrictAddresses, known)...)
		if netutils.IsIPv6String(ip) {
			ipv6++
		}
	}
	if len(ips) > 1 && (len(ips) != 2 || ipv6 != 1) {
		errs = append(errs, field.Invalid(at, value, "may specify no more than one IP for each IP family"))
	}
	return errs
}

// statusWarnings warns of addresses in other notations than the usual one.
func statusWarnings(p *corev1.Pod) []string {
	var warnings []string
	path := field.NewPath("status")
	for i, ip := range p.Status.PodIPs {
		warnings = append(warnings, utilvalidation.GetWarningsForIP(path.Child("podIPs").Index(i).Child("ip"), ip.IP)...)
	}
	for i, ip := range p.Status.HostIPs {
		warnings = append(warnings, utilvalidation.GetWarningsForIP(path.Child("hostIPs").Index(i).Child("ip"), ip.IP)...)
	}
	return warnings
}
