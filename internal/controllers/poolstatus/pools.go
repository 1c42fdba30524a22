package poolstatus

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	resourcealpha "k8s.io/api/resource/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// snapshot is the input of answer.
type snapshot struct {
	slices []*resourceapi.ResourceSlice
	claims []*resourceapi.ResourceClaim
	rules  []*resourceapi.DeviceTaintRule
	// partitionTypes says that devices are grouped by the types of partitions.
	partitionTypes bool
}

// pool is a complete or incomplete pool of devices.
type pool struct {
	driver, name string
	generation   int64
	slices       []*resourceapi.ResourceSlice // of the generation
	allocated    allocated
}

// allocated is what claims have of a pool. Claims with administrator's access have nothing.
type allocated struct {
	devices  map[string]bool
	capacity amounts[resourceapi.QualifiedName]
}

// mostListed is the maximum number of entries of the lists in the status of a pool.
const mostListed = 32

// mostProblem is the maximum length of validationError.
const mostProblem = 256

// answer returns the status of a request. incomplete is true if a driver has not published all
// slices of a pool.
func answer(spec *resourcealpha.ResourcePoolStatusRequestSpec, s snapshot, now time.Time) (status resourcealpha.ResourcePoolStatusRequestStatus, incomplete bool) {
	pools := s.pools(spec)
	status.PoolCount = new(int32(len(pools)))
	problems := 0
	for _, p := range pools[:min(len(pools), int(ptr.Deref(spec.Limit, resourcealpha.ResourcePoolStatusRequestLimitDefault)))] {
		shown := s.status(p, spec.DefaultPartitionTypeAttribute)
		incomplete = incomplete || !p.complete()
		if shown.ValidationError != nil {
			problems++
		}
		status.Pools = append(status.Pools, shown)
	}
	message := fmt.Sprintf("Calculated status for %d pools", len(status.Pools))
	if problems > 0 {
		message += fmt.Sprintf(" (%d incomplete)", problems)
	}
	status.Conditions = []metav1.Condition{{
		Type: resourcealpha.ResourcePoolStatusRequestConditionComplete, Status: metav1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(now), Reason: "CalculationComplete", Message: message,
	}}
	return status, incomplete
}

// pools returns the pools that a request asks for, by name.
func (s snapshot) pools(spec *resourcealpha.ResourcePoolStatusRequestSpec) []*pool {
	byName := map[string]*pool{}
	for _, slice := range s.slices {
		in := slice.Spec.Pool
		if slice.Spec.Driver != spec.Driver || spec.PoolName != nil && *spec.PoolName != in.Name {
			continue
		}
		p := byName[in.Name]
		if p == nil || p.generation < in.Generation {
			p = &pool{driver: spec.Driver, name: in.Name, generation: in.Generation, allocated: allocated{
				devices: map[string]bool{}, capacity: amounts[resourceapi.QualifiedName]{},
			}}
			byName[in.Name] = p
		}
		if p.generation == in.Generation {
			p.slices = append(p.slices, slice)
		}
	}
	for _, claim := range s.claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			p := byName[r.Pool]
			if r.Driver != spec.Driver || p == nil || ptr.Deref(r.AdminAccess, false) {
				continue
			}
			p.allocated.devices[r.Device] = true
			for name, amount := range r.ConsumedCapacity {
				p.allocated.capacity.add(name, amount)
			}
		}
	}
	all := make([]*pool, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, byName[name])
	}
	return all
}

// complete reports whether all slices of a pool are there.
func (p *pool) complete() bool {
	return int64(len(p.slices)) >= p.slices[0].Spec.Pool.ResourceSliceCount
}

// status returns the status of a pool. attribute is the default attribute that has the type of a
// partition; it may be nil.
func (s snapshot) status(p *pool, attribute *string) resourcealpha.PoolStatus {
	shown := resourcealpha.PoolStatus{Driver: p.driver, PoolName: p.name, Generation: p.generation, NodeName: p.node()}
	if !p.complete() {
		shown.ValidationError = problem("PoolIncomplete", "pool %s is incomplete: observed %d/%d slices at generation %d", p, len(p.slices), p.slices[0].Spec.Pool.ResourceSliceCount, p.generation)
		return shown
	}
	var total, unavailable int32
	for d := range p.devices() {
		total++
		if !p.allocated.devices[d.Name] && s.tainted(p, d) {
			unavailable++
		}
	}
	inUse := int32(len(p.allocated.devices))
	shown.ResourceSliceCount, shown.TotalDevices = new(int32(len(p.slices))), &total
	shown.AllocatedDevices, shown.UnavailableDevices = &inUse, &unavailable
	shown.AvailableDevices = new(max(0, total-inUse-unavailable))
	if s.partitionTypes {
		shown.PartitionSummary, shown.ValidationError = p.partitions(attribute)
	}
	shareable, invalid := p.shareable()
	if invalid != nil {
		shown.PartitionSummary = nil
	}
	shown.ShareableSummary, shown.ValidationError = shareable, cmp.Or(shown.ValidationError, invalid)
	return shown
}

// node returns the node of all slices of a pool, or nil.
func (p *pool) node() *string {
	name := ptr.Deref(p.slices[0].Spec.NodeName, "")
	other := func(slice *resourceapi.ResourceSlice) bool { return ptr.Deref(slice.Spec.NodeName, "") != name }
	if name == "" || slices.ContainsFunc(p.slices, other) {
		return nil
	}
	return &name
}

// devices returns the devices of a pool.
func (p *pool) devices() iter.Seq[*resourceapi.Device] {
	return func(yield func(*resourceapi.Device) bool) {
		for _, slice := range p.slices {
			for i := range slice.Spec.Devices {
				if !yield(&slice.Spec.Devices[i]) {
					return
				}
			}
		}
	}
}

// tainted reports whether a taint of a device, or of a rule about it, keeps claims away.
func (s snapshot) tainted(p *pool, d *resourceapi.Device) bool {
	keeps := func(t resourceapi.DeviceTaint) bool {
		return t.Effect == resourceapi.DeviceTaintEffectNoSchedule || t.Effect == resourceapi.DeviceTaintEffectNoExecute
	}
	return slices.ContainsFunc(d.Taints, keeps) || slices.ContainsFunc(s.rules, func(rule *resourceapi.DeviceTaintRule) bool {
		of := rule.Spec.DeviceSelector
		return keeps(rule.Spec.Taint) && of != nil &&
			ptr.Deref(of.Driver, p.driver) == p.driver && ptr.Deref(of.Pool, p.name) == p.name && ptr.Deref(of.Device, d.Name) == d.Name
	})
}

// String implements fmt.Stringer. It names the pool as upstream does.
func (p *pool) String() string { return p.driver + "/" + p.name }

// problem returns a validationError, with one of upstream's reasons.
func problem(reason, format string, args ...any) *string {
	text := reason + ": " + fmt.Sprintf(format, args...)
	return new(strings.ToValidUTF8(text[:min(len(text), mostProblem)], ""))
}

// shareable returns the sums of what the devices have that several claims can share, nil if
// there are none.
func (p *pool) shareable() (*resourcealpha.ShareableSummaryStatus, *string) {
	var untouched, partly int32
	total, found := amounts[resourceapi.QualifiedName]{}, false
	for d := range p.devices() {
		if !ptr.Deref(d.AllowMultipleAllocations, false) {
			continue
		}
		found = true
		if p.allocated.devices[d.Name] {
			partly++
		} else {
			untouched++
		}
		for name, capacity := range d.Capacity {
			total.add(name, capacity.Value)
		}
	}
	if !found {
		return nil, nil
	}
	if len(total) > mostListed {
		return nil, problem("ShareableSummaryOverCap", "pool %s has %d shareable capacity keys, exceeding the maximum of %d", p, len(total), mostListed)
	}
	summary := &resourcealpha.ShareableSummaryStatus{FullyAvailableDevices: &untouched, PartiallyAvailableDevices: &partly}
	for _, name := range slices.Sorted(maps.Keys(total)) {
		summary.Capacity = append(summary.Capacity, resourcealpha.ShareableCapacityStatus{
			Name: string(name), Total: new(total[name]), Consumed: new(p.allocated.capacity[name]), Available: new(total.left(name, p.allocated.capacity[name])),
		})
	}
	return summary, nil
}
