package poolstatus

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	resourcealpha "k8s.io/api/resource/v1alpha3"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// amounts are sums by name.
type amounts[K comparable] map[K]resource.Quantity

func (a amounts[K]) add(name K, more resource.Quantity) {
	sum := a[name].DeepCopy()
	sum.Add(more)
	a[name] = sum
}

// left returns what is left of a sum, at least nothing.
func (a amounts[K]) left(name K, used resource.Quantity) resource.Quantity {
	rest := a[name].DeepCopy()
	rest.Sub(used)
	if rest.Sign() < 0 {
		return *resource.NewQuantity(0, rest.Format)
	}
	return rest
}

// counter is one of the counters that the devices of a pool share.
type counter struct{ set, name string }

// costOf returns what a device takes of each counter.
func costOf(d *resourceapi.Device) amounts[counter] {
	cost := amounts[counter]{}
	for _, set := range d.ConsumesCounters {
		for name, c := range set.Counters {
			cost.add(counter{set.CounterSet, name}, c.Value)
		}
	}
	return cost
}

// take subtracts what a device takes, if there is enough of everything.
func (a amounts[K]) take(cost amounts[K]) bool {
	for name, amount := range cost {
		if have, ok := a[name]; !ok || have.Cmp(amount) < 0 {
			return false
		}
	}
	for name, amount := range cost {
		a[name] = a.left(name, amount)
	}
	return true
}

// partition is an attribute and its value. Devices that share them are partitions of one type,
// which take the same of each counter.
type partition struct{ attribute, value string }

// group has the devices of a partition.
type group struct {
	cost        amounts[counter]
	total, free int32
}

// partitions returns, for each type of partitions, how many devices there are and how many of them
// could still be allocated if no other type were. attribute has the type of a partition if no slice
// names an attribute; it may be nil. A pool without such attributes has no types.
func (p *pool) partitions(attribute *string) ([]resourcealpha.PartitionTypeStatus, *string) {
	left := amounts[counter]{}
	for _, slice := range p.slices {
		for _, set := range slice.Spec.SharedCounters {
			for name, c := range set.Counters {
				left.add(counter{set.Name, name}, c.Value)
			}
		}
	}
	groups, invalid := p.groups(attribute, len(left) > 0)
	if invalid != nil {
		return nil, invalid
	}
	for d := range p.devices() {
		if p.allocated.devices[d.Name] {
			for name, amount := range costOf(d) {
				if _, ok := left[name]; ok {
					left[name] = left.left(name, amount)
				}
			}
		}
	}
	if len(groups) > mostListed {
		return nil, problem("PartitionSummaryOverCap", "pool %s has %d partition types, exceeding the maximum of %d", p, len(groups), mostListed)
	}
	var all []resourcealpha.PartitionTypeStatus
	for _, of := range slices.SortedFunc(maps.Keys(groups), func(a, b partition) int {
		return cmp.Or(strings.Compare(a.attribute, b.attribute), strings.Compare(a.value, b.value))
	}) {
		g, room, fit := groups[of], maps.Clone(left), int32(0)
		for fit < g.free && room.take(g.cost) {
			fit++
		}
		all = append(all, resourcealpha.PartitionTypeStatus{Attribute: of.attribute, Type: of.value, Total: &g.total, Allocatable: &fit})
	}
	return all, nil
}

// groups returns the devices of a pool by their partitions. Devices that take nothing of a counter
// are no partitions. attribute is the one of all slices if none names an attribute; it may be nil.
// counted is true if the pool has counters.
func (p *pool) groups(attribute *string, counted bool) (map[partition]*group, *string) {
	if slices.ContainsFunc(p.slices, func(slice *resourceapi.ResourceSlice) bool {
		return slice.Spec.PartitionTypeAttribute != nil && len(slice.Spec.Devices) > 0
	}) {
		attribute = nil
	}
	groups := map[partition]*group{}
	for _, slice := range p.slices {
		named := attribute
		if own := slice.Spec.PartitionTypeAttribute; own != nil {
			named = new(string(*own))
		}
		if named == nil || len(slice.Spec.Devices) == 0 {
			continue
		}
		if !counted {
			return nil, problem("PartitionTypeMissing", "pool %s declares partitionTypeAttribute but publishes no sharedCounters", p)
		}
		for i := range slice.Spec.Devices {
			d := &slice.Spec.Devices[i]
			if len(d.ConsumesCounters) == 0 {
				continue
			}
			value, ok := stringOf(p.driver, d, *named)
			if !ok {
				return nil, problem("PartitionTypeMissing", "device %q in pool %s does not carry partition type attribute %q", d.Name, p, *named)
			}
			of, cost := partition{*named, value}, costOf(d)
			g := groups[of]
			if g == nil {
				g = &group{cost: cost}
				groups[of] = g
			}
			if !maps.EqualFunc(g.cost, cost, resource.Quantity.Equal) {
				return nil, problem("PartitionCostMismatch", "devices of partition type %q in pool %s consume different counters", value, p)
			}
			g.total++
			if !p.allocated.devices[d.Name] {
				g.free++
			}
		}
	}
	return groups, nil
}

// stringOf returns the value of an attribute of a device that is a string. The domain of an
// attribute without one is the driver.
func stringOf(driver string, d *resourceapi.Device, attribute string) (value string, ok bool) {
	a, ok := d.Attributes[resourceapi.QualifiedName(attribute)]
	if name, own := strings.CutPrefix(attribute, driver+"/"); own && !ok {
		a, ok = d.Attributes[resourceapi.QualifiedName(name)]
	}
	return ptr.Deref(a.StringValue, ""), ok && a.StringValue != nil
}
