package devices

import resourcev1 "k8s.io/api/resource/v1"

// dropDisabled takes out of a claim's spec what belongs to features that are
// off.
func dropDisabled(s *resourcev1.ResourceClaimSpec) {
	for i := range s.Devices.Requests {
		request := &s.Devices.Requests[i]
		if request.Exactly != nil {
			request.Exactly.DerivedAttributes = nil
		}
		for k := range request.FirstAvailable {
			request.FirstAvailable[k].DerivedAttributes = nil
		}
	}
}

// dropDisabledResults takes out of an allocation what belongs to features that
// are off.
func dropDisabledResults(a *resourcev1.AllocationResult) {
	if a == nil {
		return
	}
	for i := range a.Devices.Results {
		a.Devices.Results[i].SkipNodeOperations = nil
	}
}

// dropDisabledDevices takes out of a slice what belongs to features that are
// off: lists as attributes, groups of counters, and what of a node's own
// resources a device takes.
func dropDisabledDevices(s *resourcev1.ResourceSliceSpec) {
	s.PartitionTypeAttribute, s.SkipNodeOperations = nil, nil
	for i := range s.Devices {
		d := &s.Devices[i]
		d.NodeAllocatableResources = nil
		for k := range d.ConsumesCounters {
			d.ConsumesCounters[k].CompatibilityGroups = nil
		}
		for name, a := range d.Attributes {
			if a.IntValues != nil || a.BoolValues != nil || a.StringValues != nil || a.VersionValues != nil {
				a.IntValues, a.BoolValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
				d.Attributes[name] = a
			}
		}
	}
}
