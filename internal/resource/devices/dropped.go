package devices

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/coracle-io/coracle/internal/feature"
)

// claimFields are the parts of a claim's spec that belong to features which
// are off by default.
var claimFields = []feature.Field[resourcev1.ResourceClaimSpec]{
	among("DRADerivedAttributes", derivedAttributes,
		func(d *[]resourcev1.DeviceDerivedAttribute) bool { return *d != nil },
		func(d *[]resourcev1.DeviceDerivedAttribute) { *d = nil }),
}

func derivedAttributes(s *resourcev1.ResourceClaimSpec, visit func(*[]resourcev1.DeviceDerivedAttribute)) {
	for i := range s.Devices.Requests {
		request := &s.Devices.Requests[i]
		if request.Exactly != nil {
			visit(&request.Exactly.DerivedAttributes)
		}
		for k := range request.FirstAvailable {
			visit(&request.FirstAvailable[k].DerivedAttributes)
		}
	}
}

// allocationFields are those of what a claim was given.
var allocationFields = []feature.Field[resourcev1.AllocationResult]{
	among("DRAOptionalNodeOperations", func(a *resourcev1.AllocationResult, visit func(*resourcev1.DeviceRequestAllocationResult)) {
		for i := range a.Devices.Results {
			visit(&a.Devices.Results[i])
		}
	}, func(r *resourcev1.DeviceRequestAllocationResult) bool { return r.SkipNodeOperations != nil },
		func(r *resourcev1.DeviceRequestAllocationResult) { r.SkipNodeOperations = nil }),
}

// dropFromAllocation clears in a claim's allocation what belongs to features
// that are off.
func dropFromAllocation(features *feature.Set, a, old *resourcev1.AllocationResult) {
	if a != nil {
		feature.Drop(features, allocationFields, a, old)
	}
}

// sliceFields are those of a slice: lists as attributes, groups of counters,
// and what of a node's own resources a device takes.
var sliceFields = []feature.Field[resourcev1.ResourceSliceSpec]{
	{
		Gate:  "DRAPartitionableDevicesType",
		Used:  func(s *resourcev1.ResourceSliceSpec) bool { return s.PartitionTypeAttribute != nil },
		Clear: func(s *resourcev1.ResourceSliceSpec) { s.PartitionTypeAttribute = nil },
	},
	{
		Gate:  "DRAOptionalNodeOperations",
		Used:  func(s *resourcev1.ResourceSliceSpec) bool { return s.SkipNodeOperations != nil },
		Clear: func(s *resourcev1.ResourceSliceSpec) { s.SkipNodeOperations = nil },
	},
	among("DRANodeAllocatableResources", eachDevice,
		func(d *resourcev1.Device) bool { return d.NodeAllocatableResources != nil },
		func(d *resourcev1.Device) { d.NodeAllocatableResources = nil }),
	among("DRADeviceCompatibilityGroups", func(s *resourcev1.ResourceSliceSpec, visit func(*resourcev1.DeviceCounterConsumption)) {
		eachDevice(s, func(d *resourcev1.Device) {
			for k := range d.ConsumesCounters {
				visit(&d.ConsumesCounters[k])
			}
		})
	}, func(c *resourcev1.DeviceCounterConsumption) bool { return c.CompatibilityGroups != nil },
		func(c *resourcev1.DeviceCounterConsumption) { c.CompatibilityGroups = nil }),
	among("DRAListTypeAttributes", eachDevice, hasLists, func(d *resourcev1.Device) {
		for name, a := range d.Attributes {
			if isList(&a) {
				a.IntValues, a.BoolValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
				d.Attributes[name] = a
			}
		}
	}),
}

func eachDevice(s *resourcev1.ResourceSliceSpec, visit func(*resourcev1.Device)) {
	for i := range s.Devices {
		visit(&s.Devices[i])
	}
}

func hasLists(d *resourcev1.Device) bool {
	for _, a := range d.Attributes {
		if isList(&a) {
			return true
		}
	}
	return false
}

func isList(a *resourcev1.DeviceAttribute) bool {
	return a.IntValues != nil || a.BoolValues != nil || a.StringValues != nil || a.VersionValues != nil
}

// among describes a field that is in several parts of an object.
func among[T, P any](gate string, each func(obj *T, visit func(*P)), used func(*P) bool, clear func(*P)) feature.Field[T] {
	return feature.Field[T]{
		Gate: gate,
		Used: func(obj *T) bool {
			found := false
			each(obj, func(part *P) { found = found || used(part) })
			return found
		},
		Clear: func(obj *T) { each(obj, clear) },
	}
}
