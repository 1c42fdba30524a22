package dynamicresources

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// listSlices returns all ResourceSlices with the taints of DeviceTaintRules.
func (p *plugin) listSlices() ([]*resourceapi.ResourceSlice, error) {
	slices, err := p.slices.List(labels.Everything())
	if err != nil || p.taintRules == nil {
		return slices, err
	}
	rules, err := p.taintRules.List(labels.Everything())
	if err != nil || len(rules) == 0 {
		return slices, err
	}
	tainted := make([]*resourceapi.ResourceSlice, len(slices))
	for i, slice := range slices {
		tainted[i] = withTaints(slice, rules)
	}
	return tainted, nil
}

// withTaints adds the taints of the rules to the devices of a slice, which is
// copied if there are any.
func withTaints(slice *resourceapi.ResourceSlice, rules []*resourceapi.DeviceTaintRule) *resourceapi.ResourceSlice {
	out := slice
	for _, rule := range rules {
		selector := rule.Spec.DeviceSelector
		if selector == nil || selector.Driver != nil && *selector.Driver != slice.Spec.Driver ||
			selector.Pool != nil && *selector.Pool != slice.Spec.Pool.Name {
			continue
		}
		for i := range slice.Spec.Devices {
			if selector.Device != nil && *selector.Device != slice.Spec.Devices[i].Name {
				continue
			}
			if out == slice {
				out = slice.DeepCopy()
			}
			out.Spec.Devices[i].Taints = append(out.Spec.Devices[i].Taints, rule.Spec.Taint)
		}
	}
	return out
}
