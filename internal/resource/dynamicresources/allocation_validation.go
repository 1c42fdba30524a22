package dynamicresources

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/nodeselector"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// deviceOf returns the identity of an allocated device.
func deviceOf(driver, pool, device string, share *types.UID) schedulerapi.SharedDeviceID {
	return schedulerapi.MakeSharedDeviceID(schedulerapi.MakeDeviceID(driver, pool, device), share)
}

// dropReleasedDevices removes the device statuses of devices that an update
// deallocates.
func dropReleasedDevices(_ *resource.RequestContext, c, old *resourcev1.ResourceClaim) {
	released := sets.New[schedulerapi.DeviceID]()
	if old.Status.Allocation != nil {
		for _, r := range old.Status.Allocation.Devices.Results {
			released.Insert(schedulerapi.MakeDeviceID(r.Driver, r.Pool, r.Device))
		}
	}
	if c.Status.Allocation != nil {
		for _, r := range c.Status.Allocation.Devices.Results {
			released.Delete(schedulerapi.MakeDeviceID(r.Driver, r.Pool, r.Device))
		}
	}
	var kept []resourcev1.AllocatedDeviceStatus
	for _, d := range c.Status.Devices {
		if !released.Has(schedulerapi.MakeDeviceID(d.Driver, d.Pool, d.Device)) {
			kept = append(kept, d)
		}
	}
	c.Status.Devices = kept
}

func validateClaimStatus(_ *resource.RequestContext, c, old *resourcev1.ResourceClaim) field.ErrorList {
	p, s := field.NewPath("status"), &c.Status
	reserved := p.Child("reservedFor")
	errs := validateUniqueItems(reserved, s.ReservedFor, resourcev1.ResourceClaimReservedForMaxSize,
		func(r *resourcev1.ResourceClaimConsumerReference) types.UID { return r.UID }, validateConsumer)

	allocated := sets.New[schedulerapi.SharedDeviceID]()
	if s.Allocation != nil {
		for _, r := range s.Allocation.Devices.Results {
			allocated.Insert(deviceOf(r.Driver, r.Pool, r.Device, r.ShareID))
		}
	}
	errs = append(errs, validateUniqueItems(p.Child("devices"), s.Devices, unlimited,
		func(d *resourcev1.AllocatedDeviceStatus) schedulerapi.SharedDeviceID {
			return deviceOf(d.Driver, d.Pool, d.Device, (*types.UID)(d.ShareID))
		},
		func(p *field.Path, d *resourcev1.AllocatedDeviceStatus) field.ErrorList {
			return validateDeviceStatus(p, d, allocated)
		})...)

	switch {
	case len(s.ReservedFor) > 0 && s.Allocation == nil:
		errs = append(errs, field.Forbidden(reserved, "may not be specified when `allocated` is not set"))
	case c.DeletionTimestamp != nil && len(sets.New(s.ReservedFor...).Difference(sets.New(old.Status.ReservedFor...))) > 0:
		errs = append(errs, field.Forbidden(reserved, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"))
	}
	switch at := p.Child("allocation"); {
	case s.Allocation == nil:
	case old.Status.Allocation == nil:
		errs = append(errs, validateAllocation(at, s.Allocation, requestNames(&c.Spec.Devices))...)
	case !equality.Semantic.DeepEqual(s.Allocation, old.Status.Allocation):
		errs = append(errs, field.Invalid(at, nil, "field cannot be modified once set"))
	}
	return errs
}

func validateConsumer(p *field.Path, c *resourcev1.ResourceClaimConsumerReference) field.ErrorList {
	var errs field.ErrorList
	for _, part := range []struct{ name, value string }{{"resource", c.Resource}, {"name", c.Name}, {"uid", string(c.UID)}} {
		if part.value == "" {
			errs = append(errs, field.Required(p.Child(part.name), ""))
		}
	}
	return errs
}

// validateAllocation checks a new allocation.
func validateAllocation(p *field.Path, a *resourcev1.AllocationResult, names sets.Set[string]) field.ErrorList {
	devices := p.Child("devices")
	errs := validateItems(devices.Child("results"), a.Devices.Results, resourcev1.AllocationResultsMaxSize,
		func(p *field.Path, r *resourcev1.DeviceRequestAllocationResult) field.ErrorList {
			return validateResult(p, r, names)
		})
	errs = append(errs, validateItems(devices.Child("config"), a.Devices.Config, 2*resourcev1.DeviceConfigMaxSize,
		func(p *field.Path, c *resourcev1.DeviceAllocationConfiguration) field.ErrorList {
			errs := validateSource(p.Child("source"), c.Source)
			errs = append(errs, validateRequestNames(p.Child("requests"), c.Requests, names)...)
			return append(errs, validateConfiguration(p, &c.DeviceConfiguration, false)...)
		})...)
	if a.NodeSelector != nil {
		errs = append(errs, nodeselector.Validate(a.NodeSelector, p.Child("nodeSelector"))...)
	}
	return errs
}

func validateResult(p *field.Path, r *resourcev1.DeviceRequestAllocationResult, names sets.Set[string]) field.ErrorList {
	errs := validateRequestName(p.Child("request"), r.Request, names)
	errs = append(errs, validateDriverName(p.Child("driver"), r.Driver)...)
	errs = append(errs, validatePoolName(p.Child("pool"), r.Pool)...)
	errs = append(errs, validators.Label(p.Child("device"), r.Device)...)
	errs = append(errs, validateBindingConditions(p, r.BindingConditions, r.BindingFailureConditions)...)
	errs = append(errs, validateTolerations(p.Child("tolerations"), r.Tolerations)...)
	if r.ShareID != nil {
		errs = append(errs, validateUID(p.Child("shareID"), string(*r.ShareID))...)
	}
	return append(errs, validateSkipped(p.Child("skipNodeOperations"), r.SkipNodeOperations)...)
}

func validateSource(p *field.Path, source resourcev1.AllocationConfigSource) field.ErrorList {
	if source == "" {
		return field.ErrorList{field.Required(p, "")}
	}
	return validators.OneOf(p, source, resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass)
}

// validateUID requires a UUID in its canonical form (RFC 4122).
func validateUID(p *field.Path, uid string) field.ErrorList {
	if err := uuid.Validate(uid); err != nil {
		return field.ErrorList{field.Invalid(p, uid, fmt.Sprintf("error validating uid: %v", err))}
	}
	const usual = len("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")
	if len(uid) != usual || uid != strings.ToLower(uid) {
		return field.ErrorList{field.Invalid(p, uid, "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters")}
	}
	return nil
}

// validateDeviceStatus checks the status that a driver reports for an
// allocated device.
func validateDeviceStatus(p *field.Path, d *resourcev1.AllocatedDeviceStatus, allocated sets.Set[schedulerapi.SharedDeviceID]) field.ErrorList {
	errs := validateDriverName(p.Child("driver"), d.Driver)
	errs = append(errs, validatePoolName(p.Child("pool"), d.Pool)...)
	errs = append(errs, validators.Label(p.Child("device"), d.Device)...)
	if d.ShareID != nil {
		errs = append(errs, validateUID(p.Child("shareID"), *d.ShareID)...)
	}
	if device := deviceOf(d.Driver, d.Pool, d.Device, (*types.UID)(d.ShareID)); !allocated.Has(device) {
		errs = append(errs, field.Invalid(p, device, "must be an allocated device in the claim"))
	}
	conditions := p.Child("conditions")
	if n := len(d.Conditions); n > resourcev1.AllocatedDeviceStatusMaxConditions {
		errs = append(errs, field.TooMany(conditions, n, resourcev1.AllocatedDeviceStatusMaxConditions))
	}
	errs = append(errs, metav1validation.ValidateConditions(d.Conditions, conditions)...)
	if d.Data != nil && len(d.Data.Raw) > 0 {
		errs = append(errs, validateJSONObject(p.Child("data"), *d.Data, resourcev1.AllocatedDeviceStatusDataMaxLength)...)
	}
	if d.NetworkData != nil {
		errs = append(errs, validateNetworkData(p.Child("networkData"), d.NetworkData)...)
	}
	return errs
}

func validateNetworkData(p *field.Path, n *resourcev1.NetworkDeviceData) field.ErrorList {
	var errs field.ErrorList
	if len(n.InterfaceName) > resourcev1.NetworkDeviceDataInterfaceNameMaxLength {
		errs = append(errs, field.TooLong(p.Child("interfaceName"), "", resourcev1.NetworkDeviceDataInterfaceNameMaxLength))
	}
	if len(n.HardwareAddress) > resourcev1.NetworkDeviceDataHardwareAddressMaxLength {
		errs = append(errs, field.TooLong(p.Child("hardwareAddress"), "", resourcev1.NetworkDeviceDataHardwareAddressMaxLength))
	}
	return append(errs, validateUniqueItems(p.Child("ips"), n.IPs, resourcev1.NetworkDeviceDataMaxIPs, identity,
		func(p *field.Path, address *string) field.ErrorList {
			return utilvalidation.IsValidInterfaceAddress(p, *address)
		})...)
}
