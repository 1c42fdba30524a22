package dynamicresources

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/coracle-io/coracle/internal/feature"
)

// claimFields are the fields of a claim's spec that belong to features which
// are off by default or can be disabled.
func claimFields() []feature.Field[resourcev1.ResourceClaimSpec] {
	return []feature.Field[resourcev1.ResourceClaimSpec]{
		partField(feature.DRADerivedAttributes, eachRequest,
			func(r *request) bool { return *r.derived != nil },
			func(r *request) { *r.derived = nil }),
		partField(feature.DRADeviceTaints, eachRequest,
			func(r *request) bool { return *r.tolerations != nil },
			func(r *request) { *r.tolerations = nil }),
		partField(feature.DRAConsumableCapacity, eachRequest,
			func(r *request) bool { return *r.capacity != nil },
			func(r *request) { *r.capacity = nil }),
		partField(feature.DRAConsumableCapacity, func(s *resourcev1.ResourceClaimSpec, visit func(*resourcev1.DeviceConstraint)) {
			for i := range s.Devices.Constraints {
				visit(&s.Devices.Constraints[i])
			}
		}, func(c *resourcev1.DeviceConstraint) bool { return c.DistinctAttribute != nil },
			func(c *resourcev1.DeviceConstraint) { c.DistinctAttribute = nil }),
	}
}

// request has pointers to such fields that requests and their alternatives
// share.
type request struct {
	derived     *[]resourcev1.DeviceDerivedAttribute
	tolerations *[]resourcev1.DeviceToleration
	capacity    **resourcev1.CapacityRequirements
}

func eachRequest(s *resourcev1.ResourceClaimSpec, visit func(*request)) {
	for i := range s.Devices.Requests {
		r := &s.Devices.Requests[i]
		if e := r.Exactly; e != nil {
			visit(&request{&e.DerivedAttributes, &e.Tolerations, &e.Capacity})
		}
		for k := range r.FirstAvailable {
			a := &r.FirstAvailable[k]
			visit(&request{&a.DerivedAttributes, &a.Tolerations, &a.Capacity})
		}
	}
}

// allocationFields are such fields of an allocation.
func allocationFields() []feature.Field[resourcev1.AllocationResult] {
	return []feature.Field[resourcev1.AllocationResult]{
		partField(feature.DRAOptionalNodeOperations, eachResult,
			func(r *resourcev1.DeviceRequestAllocationResult) bool { return r.SkipNodeOperations != nil },
			func(r *resourcev1.DeviceRequestAllocationResult) { r.SkipNodeOperations = nil }),
		partField(feature.DRADeviceTaints, eachResult,
			func(r *resourcev1.DeviceRequestAllocationResult) bool { return r.Tolerations != nil },
			func(r *resourcev1.DeviceRequestAllocationResult) { r.Tolerations = nil }),
		partField(feature.DRADeviceBindingConditions, eachResult,
			func(r *resourcev1.DeviceRequestAllocationResult) bool {
				return r.BindingConditions != nil || r.BindingFailureConditions != nil
			},
			func(r *resourcev1.DeviceRequestAllocationResult) {
				r.BindingConditions, r.BindingFailureConditions = nil, nil
			}),
		{
			Gate:  feature.DRADeviceBindingConditions,
			Used:  func(a *resourcev1.AllocationResult) bool { return a.AllocationTimestamp != nil },
			Clear: func(a *resourcev1.AllocationResult) { a.AllocationTimestamp = nil },
		},
	}
}

func eachResult(a *resourcev1.AllocationResult, visit func(*resourcev1.DeviceRequestAllocationResult)) {
	for i := range a.Devices.Results {
		visit(&a.Devices.Results[i])
	}
}

// shareFields are the fields of a claim's status that name shares of devices. A claim
// that asks for shares uses the feature, too.
func shareFields() []feature.Field[resourcev1.ResourceClaim] {
	return []feature.Field[resourcev1.ResourceClaim]{{
		Gate:  feature.DRAConsumableCapacity,
		Used:  func(c *resourcev1.ResourceClaim) bool { return asksForShares(&c.Spec) || hasShares(&c.Status) },
		Clear: func(c *resourcev1.ResourceClaim) { clearShares(&c.Status) },
	}}
}

func asksForShares(s *resourcev1.ResourceClaimSpec) bool {
	return slices.ContainsFunc(claimFields(), func(f feature.Field[resourcev1.ResourceClaimSpec]) bool {
		return f.Gate == feature.DRAConsumableCapacity && f.Used(s)
	})
}

func hasShares(s *resourcev1.ResourceClaimStatus) bool {
	return s.Allocation != nil && slices.ContainsFunc(s.Allocation.Devices.Results, func(r resourcev1.DeviceRequestAllocationResult) bool {
		return r.ShareID != nil || r.ConsumedCapacity != nil
	}) || slices.ContainsFunc(s.Devices, func(d resourcev1.AllocatedDeviceStatus) bool { return d.ShareID != nil })
}

func clearShares(s *resourcev1.ResourceClaimStatus) {
	if s.Allocation != nil {
		eachResult(s.Allocation, func(r *resourcev1.DeviceRequestAllocationResult) { r.ShareID, r.ConsumedCapacity = nil, nil })
	}
	for i := range s.Devices {
		s.Devices[i].ShareID = nil
	}
}

// dropFromStatus clears the fields of disabled features in a claim's status
// unless the old claim uses them.
func dropFromStatus(features *feature.Set, c, old *resourcev1.ResourceClaim) {
	feature.Drop(features, shareFields(), c, old)
	if c.Status.Allocation != nil {
		feature.Drop(features, allocationFields(), c.Status.Allocation, old.Status.Allocation)
	}
}

// sliceFields are such fields of a slice: partitions, taints, binding
// conditions, list attributes, compatibility groups, and node allocatable
// resources.
func sliceFields() []feature.Field[resourcev1.ResourceSliceSpec] {
	return []feature.Field[resourcev1.ResourceSliceSpec]{
		{
			Gate: feature.DRAPartitionableDevices,
			Used: func(s *resourcev1.ResourceSliceSpec) bool {
				return s.SharedCounters != nil || s.PerDeviceNodeSelection != nil || slices.ContainsFunc(s.Devices, isPart)
			},
			Clear: func(s *resourcev1.ResourceSliceSpec) {
				s.SharedCounters, s.PerDeviceNodeSelection = nil, nil
				eachDevice(s, func(d *resourcev1.Device) {
					d.ConsumesCounters, d.NodeName, d.NodeSelector, d.AllNodes = nil, nil, nil, nil
				})
			},
		},
		partField(feature.DRADeviceTaints, eachDevice,
			func(d *resourcev1.Device) bool { return d.Taints != nil },
			func(d *resourcev1.Device) { d.Taints = nil }),
		partField(feature.DRADeviceBindingConditions, eachDevice,
			func(d *resourcev1.Device) bool {
				return d.BindsToNode != nil || d.BindingConditions != nil || d.BindingFailureConditions != nil
			},
			func(d *resourcev1.Device) {
				d.BindsToNode, d.BindingConditions, d.BindingFailureConditions = nil, nil, nil
			}),
		partField(feature.DRAConsumableCapacity, eachDevice, isShared, func(d *resourcev1.Device) {
			d.AllowMultipleAllocations = nil
			for name, c := range d.Capacity {
				c.RequestPolicy = nil
				d.Capacity[name] = c
			}
		}),
		{
			Gate:  feature.DRAPartitionableDevicesType,
			Used:  func(s *resourcev1.ResourceSliceSpec) bool { return s.PartitionTypeAttribute != nil },
			Clear: func(s *resourcev1.ResourceSliceSpec) { s.PartitionTypeAttribute = nil },
		},
		{
			Gate:  feature.DRAOptionalNodeOperations,
			Used:  func(s *resourcev1.ResourceSliceSpec) bool { return s.SkipNodeOperations != nil },
			Clear: func(s *resourcev1.ResourceSliceSpec) { s.SkipNodeOperations = nil },
		},
		partField(feature.DRANodeAllocatableResources, eachDevice,
			func(d *resourcev1.Device) bool { return d.NodeAllocatableResources != nil },
			func(d *resourcev1.Device) { d.NodeAllocatableResources = nil }),
		partField(feature.DRADeviceCompatibilityGroups, func(s *resourcev1.ResourceSliceSpec, visit func(*resourcev1.DeviceCounterConsumption)) {
			eachDevice(s, func(d *resourcev1.Device) {
				for k := range d.ConsumesCounters {
					visit(&d.ConsumesCounters[k])
				}
			})
		}, func(c *resourcev1.DeviceCounterConsumption) bool { return c.CompatibilityGroups != nil },
			func(c *resourcev1.DeviceCounterConsumption) { c.CompatibilityGroups = nil }),
		partField(feature.DRAListTypeAttributes, eachDevice, hasLists, func(d *resourcev1.Device) {
			for name, a := range d.Attributes {
				if isList(&a) {
					a.IntValues, a.BoolValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
					d.Attributes[name] = a
				}
			}
		}),
	}
}

// isPart reports whether a device shares counters with others, or selects its
// own nodes.
func isPart(d resourcev1.Device) bool {
	return d.ConsumesCounters != nil || d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil
}

func isShared(d *resourcev1.Device) bool {
	if d.AllowMultipleAllocations != nil {
		return true
	}
	for _, c := range d.Capacity {
		if c.RequestPolicy != nil {
			return true
		}
	}
	return false
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

// partField describes a field that occurs in several parts of an object.
func partField[T, P any](gate feature.Gate, each func(obj *T, visit func(*P)), used func(*P) bool, clear func(*P)) feature.Field[T] {
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
