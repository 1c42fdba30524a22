package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Names of compute resources and the quantities they may have.

const (
	notInteger       = "must be an integer"
	requestPrefix    = "requests."
	kubernetesDomain = "kubernetes.io/"
)

// containerResources are what a container may ask for without a domain.
var containerResources = map[corev1.ResourceName]bool{
	corev1.ResourceCPU:              true,
	corev1.ResourceMemory:           true,
	corev1.ResourceEphemeralStorage: true,
}

// quotaResources are what a quota can count without a domain.
var quotaResources = map[corev1.ResourceName]bool{
	corev1.ResourceCPU:                      true,
	corev1.ResourceMemory:                   true,
	corev1.ResourceEphemeralStorage:         true,
	corev1.ResourceRequestsCPU:              true,
	corev1.ResourceRequestsMemory:           true,
	corev1.ResourceRequestsStorage:          true,
	corev1.ResourceRequestsEphemeralStorage: true,
	corev1.ResourceLimitsCPU:                true,
	corev1.ResourceLimitsMemory:             true,
	corev1.ResourceLimitsEphemeralStorage:   true,
	corev1.ResourcePods:                     true,
	corev1.ResourceQuotas:                   true,
	corev1.ResourceServices:                 true,
	corev1.ResourceReplicationControllers:   true,
	corev1.ResourceSecrets:                  true,
	corev1.ResourcePersistentVolumeClaims:   true,
	corev1.ResourceConfigMaps:               true,
	corev1.ResourceServicesNodePorts:        true,
	corev1.ResourceServicesLoadBalancers:    true,
}

// integerResources are counted in whole numbers.
var integerResources = map[corev1.ResourceName]bool{
	corev1.ResourcePods:                   true,
	corev1.ResourceQuotas:                 true,
	corev1.ResourceServices:               true,
	corev1.ResourceReplicationControllers: true,
	corev1.ResourceSecrets:                true,
	corev1.ResourceConfigMaps:             true,
	corev1.ResourcePersistentVolumeClaims: true,
	corev1.ResourceServicesNodePorts:      true,
	corev1.ResourceServicesLoadBalancers:  true,
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

func isQuotaHugePages(name corev1.ResourceName) bool {
	return isHugePages(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// isNative reports whether a name is in the domain of Kubernetes.
func isNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), kubernetesDomain)
}

// isExtended reports whether a name stands for a resource that a device
// plugin or an administrator brought.
func isExtended(name corev1.ResourceName) bool {
	if isNative(name) || strings.HasPrefix(string(name), requestPrefix) {
		return false
	}
	return len(utilvalidation.IsQualifiedName(requestPrefix+string(name))) == 0
}

// overcommittable resources may be limited above what is requested.
func overcommittable(name corev1.ResourceName) bool { return isNative(name) && !isHugePages(name) }

func validateQualified(name string, path *field.Path) field.ErrorList {
	return invalid(path, name, utilvalidation.IsQualifiedName(name))
}

// validateResourceName checks a name that has a domain or is one of those
// that Kubernetes itself knows.
func validateResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := validateQualified(string(name), path)
	if len(errs) == 0 && !hasDomain(name) && !isStandard(name) {
		errs = append(errs, field.Invalid(path, name, "must be a standard resource type or fully qualified"))
	}
	return errs
}

func hasDomain(name corev1.ResourceName) bool { return strings.Contains(string(name), "/") }

func isStandard(name corev1.ResourceName) bool {
	return quotaResources[name] || name == corev1.ResourceStorage || isQuotaHugePages(name)
}

// validateContainerResourceName and validateQuotaResourceName find what is
// wrong with the name here besides what is wrong with it anywhere.
func validateContainerResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := validateResourceName(name, path)
	switch {
	case !hasDomain(name) && !containerResources[name] && !isHugePages(name):
		errs = append(errs, field.Invalid(path, name, "must be a standard resource for containers"))
	case hasDomain(name) && !isNative(name) && !isExtended(name):
		errs = append(errs, field.Invalid(path, name, "doesn't follow extended resource name standard"))
	}
	return errs
}

func validateQuotaResourceName(name string, path *field.Path) field.ErrorList {
	n := corev1.ResourceName(name)
	errs := validateResourceName(n, path)
	if !hasDomain(n) && !quotaResources[n] && !isQuotaHugePages(n) {
		errs = append(errs, field.Invalid(path, n, "must be a standard resource for quota"))
	}
	return errs
}

func validateLimitRangeType(name corev1.LimitType, path *field.Path) field.ErrorList {
	known := name == corev1.LimitTypePod || name == corev1.LimitTypeContainer || name == corev1.LimitTypePersistentVolumeClaim
	errs := validateQualified(string(name), path)
	if len(errs) == 0 && !strings.Contains(string(name), "/") && !known {
		errs = append(errs, field.Invalid(path, name, "must be a standard limit type or fully qualified"))
	}
	return errs
}

func validateLimitRangeResource(kind corev1.LimitType, name string, path *field.Path) field.ErrorList {
	if kind == corev1.LimitTypePod || kind == corev1.LimitTypeContainer {
		return validateContainerResourceName(corev1.ResourceName(name), path)
	}
	return validateResourceName(corev1.ResourceName(name), path)
}

// validateResourceQuantity checks that a quantity is not negative, and whole
// where the resource cannot be divided.
func validateResourceQuantity(name string, quantity resource.Quantity, path *field.Path) field.ErrorList {
	errs := nonnegativeQuantity(quantity, path)
	n := corev1.ResourceName(name)
	if (integerResources[n] || isExtended(n)) && quantity.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(path, quantity, notInteger))
	}
	return errs
}

func nonnegativeQuantity(quantity resource.Quantity, path *field.Path) field.ErrorList {
	if quantity.Cmp(resource.Quantity{}) < 0 {
		return field.ErrorList{field.Invalid(path, quantity.String(), isNegative)}
	}
	return nil
}

// basicQuantity checks the quantities of volumes, which messages show as
// whole numbers.
func basicQuantity(quantity resource.Quantity, path *field.Path) field.ErrorList {
	if quantity.Value() < 0 {
		return field.ErrorList{field.Invalid(path, quantity.Value(), "must be a valid resource quantity")}
	}
	return nil
}

func positiveQuantity(quantity resource.Quantity, path *field.Path) field.ErrorList {
	if quantity.Cmp(resource.Quantity{}) <= 0 {
		return field.ErrorList{field.Invalid(path, quantity.String(), isNotPositive)}
	}
	return nil
}

func limitMessage(name corev1.ResourceName, limit resource.Quantity) string {
	return fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())
}
