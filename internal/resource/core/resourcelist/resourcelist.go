// Package resourcelist validates the names and quantities of compute resources
// in a ResourceList.
package resourcelist

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

// The names of compute resources, and rules for their quantities.

const (
	notInteger       = "must be an integer"
	requestPrefix    = "requests."
	kubernetesDomain = "kubernetes.io/"
)

// isContainerStandard reports whether a container can request the resource of
// this name, which has no domain.
func isContainerStandard(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	return false
}

// isQuotaNamed reports whether a quota can limit the resource of this name,
// which has no domain and is not huge pages.
func isQuotaNamed(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceRequestsCPU,
		corev1.ResourceRequestsMemory, corev1.ResourceRequestsStorage, corev1.ResourceRequestsEphemeralStorage,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage, corev1.ResourcePods,
		corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers, corev1.ResourceSecrets,
		corev1.ResourcePersistentVolumeClaims, corev1.ResourceConfigMaps, corev1.ResourceServicesNodePorts,
		corev1.ResourceServicesLoadBalancers:
		return true
	}
	return false
}

// isInteger reports whether a resource is counted in whole numbers.
func isInteger(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
		corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims,
		corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers:
		return true
	}
	return false
}

// IsHugePages reports whether a name stands for huge pages of some size.
func IsHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// IsQuotaStandard reports whether a quota can limit the resource of this name,
// which has no domain.
func IsQuotaStandard(name corev1.ResourceName) bool {
	return isQuotaNamed(name) || isQuotaHugePages(name)
}

func isQuotaHugePages(name corev1.ResourceName) bool {
	return IsHugePages(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// IsNative reports whether a name has no domain or one of Kubernetes.
func IsNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), kubernetesDomain)
}

// IsExtended reports whether a name stands for an extended resource, which a
// device plugin or an administrator provides.
func IsExtended(name corev1.ResourceName) bool {
	if IsNative(name) || strings.HasPrefix(string(name), requestPrefix) {
		return false
	}
	return len(utilvalidation.IsQualifiedName(requestPrefix+string(name))) == 0
}

// IsOvercommittable reports whether the limit of a resource may exceed its
// request.
func IsOvercommittable(name corev1.ResourceName) bool { return IsNative(name) && !IsHugePages(name) }

// ValidateName checks a name: it has a domain, or is one that Kubernetes
// defines.
func ValidateName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := validators.QualifiedName(path, string(name))
	if len(errs) == 0 && !hasDomain(name) && !isStandard(name) {
		errs = append(errs, field.Invalid(path, name, "must be a standard resource type or fully qualified"))
	}
	return errs
}

func hasDomain(name corev1.ResourceName) bool { return strings.Contains(string(name), "/") }

func isStandard(name corev1.ResourceName) bool {
	return IsQuotaStandard(name) || name == corev1.ResourceStorage
}

// ValidateContainerName checks the name of a resource that a container
// requests. It includes the checks of [ValidateName].
func ValidateContainerName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := ValidateName(name, path)
	switch {
	case !hasDomain(name) && !isContainerStandard(name) && !IsHugePages(name):
		errs = append(errs, field.Invalid(path, name, "must be a standard resource for containers"))
	case hasDomain(name) && !IsNative(name) && !IsExtended(name):
		errs = append(errs, field.Invalid(path, name, "doesn't follow extended resource name standard"))
	}
	return errs
}

// ValidateQuotaName checks the name of a resource that a quota limits. It
// includes the checks of [ValidateName].
func ValidateQuotaName(name string, path *field.Path) field.ErrorList {
	n := corev1.ResourceName(name)
	errs := ValidateName(n, path)
	if !hasDomain(n) && !IsQuotaStandard(n) {
		errs = append(errs, field.Invalid(path, n, "must be a standard resource for quota"))
	}
	return errs
}

// ValidateQuantity checks that a quantity is not negative, and that it is
// whole if the resource cannot be divided.
func ValidateQuantity(name string, quantity resource.Quantity, path *field.Path) field.ErrorList {
	errs := Nonnegative(quantity, path)
	n := corev1.ResourceName(name)
	if (isInteger(n) || IsExtended(n)) && quantity.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(path, quantity, notInteger))
	}
	return errs
}

// Nonnegative requires a quantity of 0 or more.
func Nonnegative(quantity resource.Quantity, path *field.Path) field.ErrorList {
	if quantity.Cmp(resource.Quantity{}) < 0 {
		return field.ErrorList{field.Invalid(path, quantity.String(), validation.IsNegativeErrorMsg)}
	}
	return nil
}

// ValidateVolumeQuantity checks the quantity of a volume. Its messages show
// the quantity as a whole number.
func ValidateVolumeQuantity(quantity resource.Quantity, path *field.Path) field.ErrorList {
	if quantity.Value() < 0 {
		return field.ErrorList{field.Invalid(path, quantity.Value(), "must be a valid resource quantity")}
	}
	return nil
}

// Positive requires a quantity above 0.
func Positive(quantity resource.Quantity, path *field.Path) field.ErrorList {
	if quantity.Cmp(resource.Quantity{}) <= 0 {
		return field.ErrorList{field.Invalid(path, quantity.String(), validators.NotPositive)}
	}
	return nil
}

// LimitMessage returns the error message for a request above its limit.
func LimitMessage(name corev1.ResourceName, limit resource.Quantity) string {
	return fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())
}

// RoundUp rounds quantities up to thousandths of a unit.
func RoundUp(list corev1.ResourceList) {
	for name, quantity := range list {
		const milli = -3
		quantity.RoundUp(milli)
		_ = quantity.String() // caches the string for later encodings
		list[name] = quantity
	}
}
