package devices

import (
	"fmt"
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/rule"
)

// validateCapacity checks how a capacity may be requested in parts, which is
// possible only of devices that are allocated more than once.
func validateCapacity(p *field.Path, c resourcev1.DeviceCapacity, shared bool) field.ErrorList {
	policy, at := c.RequestPolicy, p.Child("requestPolicy")
	switch {
	case policy == nil:
		return nil
	case !shared:
		return field.ErrorList{field.Forbidden(at, "allowMultipleAllocations must be true")}
	case len(policy.ValidValues) > 0 && policy.ValidRange != nil:
		return field.ErrorList{field.Forbidden(at, `exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`)}
	case len(policy.ValidValues) > 0 && policy.Default == nil:
		return field.ErrorList{field.Required(at.Child("default"), "required when validValues is defined")}
	case len(policy.ValidValues) > 0:
		return validateValidValues(at.Child("validValues"), policy.ValidValues, *policy.Default, c.Value)
	case policy.ValidRange != nil && policy.Default == nil:
		return field.ErrorList{field.Required(at.Child("default"), "required when validRange is defined")}
	case policy.ValidRange != nil:
		return validateValidRange(at.Child("validRange"), policy.ValidRange, *policy.Default, c.Value)
	default:
		return nil
	}
}

// maxValidValues is how many amounts of a capacity may be offered.
const maxValidValues = 10

func validateValidValues(p *field.Path, values []resource.Quantity, standard, whole resource.Quantity) field.ErrorList {
	var errs field.ErrorList
	for i := 1; i < len(values); i++ {
		if values[i-1].Cmp(values[i]) > 0 {
			errs = append(errs, field.Invalid(p.Index(i), values[i].String(), "values must be sorted in ascending order"))
		}
	}
	found := false
	if n := len(values); n > maxValidValues {
		errs = append(errs, field.TooMany(p, n, maxValidValues))
	} else {
		seen := sets.New[int64]()
		for i, value := range values {
			if value.Cmp(whole) > 0 {
				errs = append(errs, field.Invalid(p.Index(i), value.String(), "option is larger than capacity value: "+whole.String()))
			}
			found = found || value.Cmp(standard) == 0
			if seen.Has(value.Value()) {
				errs = append(errs, field.Duplicate(p.Index(i), fmt.Sprint(value.Value())))
			}
			seen.Insert(value.Value())
		}
	}
	if !found {
		errs = append(errs, field.Invalid(p, standard.String(), "default value is not valid according to the requestPolicy"))
	}
	return errs
}

func validateValidRange(p *field.Path, r *resourcev1.CapacityRequestPolicyRange, standard, whole resource.Quantity) field.ErrorList {
	lower, upper := p.Child("min"), p.Child("max")
	if r.Min == nil {
		return field.ErrorList{field.Required(lower, "required when validRange is defined")}
	}
	var errs field.ErrorList
	if r.Min.Cmp(whole) > 0 {
		errs = append(errs, field.Invalid(lower, r.Min.String(), "min is larger than capacity value: "+whole.String()))
	}
	if standard.Cmp(*r.Min) < 0 {
		errs = append(errs, field.Invalid(lower, standard.String(), "default is less than min: "+r.Min.String()))
	}
	if r.Max != nil {
		if r.Min.Cmp(*r.Max) > 0 {
			errs = append(errs, field.Invalid(upper, r.Min.String(), "min is larger than max: "+r.Max.String()))
		}
		if r.Max.Cmp(whole) > 0 {
			errs = append(errs, field.Invalid(upper, r.Max.String(), "max is larger than capacity value: "+whole.String()))
		}
		if standard.Cmp(*r.Max) > 0 {
			errs = append(errs, field.Invalid(upper, standard.String(), "default is more than max: "+r.Max.String()))
		}
	}
	if r.Step == nil {
		return errs
	}
	at, first := p.Child("step"), r.Min.DeepCopy()
	first.Add(*r.Step)
	if first.Cmp(whole) > 0 {
		errs = append(errs, field.Invalid(at, r.Step.String(), fmt.Sprintf("one step %s is larger than capacity value: %s", first.String(), whole.String())))
	}
	errs = append(errs, validateStep(at, standard, r)...)
	if r.Max != nil {
		errs = append(errs, validateStep(at, *r.Max, r)...)
	}
	return errs
}

// validateStep requires that whole steps lead from the least to the value. A
// step of nothing leads nowhere else.
func validateStep(p *field.Path, value resource.Quantity, r *resourcev1.CapacityRequestPolicyRange) field.ErrorList {
	distance, step := value.Value()-r.Min.Value(), r.Step.Value()
	if distance == 0 || step != 0 && distance%step == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(p, value.String(), fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)", r.Step.String(), r.Min.String()))}
}

func validateCounterSets(p *field.Path, counters []resourcev1.CounterSet) field.ErrorList {
	if len(counters) > resourcev1.ResourceSliceMaxCounterSets {
		return field.ErrorList{field.TooMany(p, len(counters), resourcev1.ResourceSliceMaxCounterSets)}
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, c := range counters {
		errs = append(errs, validateNamedCounters(p.Index(i), "name", c.Name, c.Counters, seen, resourcev1.ResourceSliceMaxCountersPerCounterSet)...)
	}
	return errs
}

func validateConsumedCounters(p *field.Path, consumed []resourcev1.DeviceCounterConsumption) field.ErrorList {
	if len(consumed) > resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice {
		return field.ErrorList{field.TooMany(p, len(consumed), resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice)}
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, c := range consumed {
		errs = append(errs, validateNamedCounters(p.Index(i), "counterSet", c.CounterSet, c.Counters, seen,
			resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption)...)
	}
	return errs
}

// validateNamedCounters checks counters and the set they belong to, which
// must not have been seen.
func validateNamedCounters(p *field.Path, key, name string, counters map[string]resourcev1.Counter, seen sets.Set[string], most int) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(p.Child(key), ""))
	} else {
		errs = append(errs, rule.Label(p.Child(key), name)...)
	}
	if seen.Has(name) {
		errs = append(errs, field.Duplicate(p, name))
	}
	seen.Insert(name)
	at := p.Child("counters")
	switch n := len(counters); {
	case n == 0:
		return append(errs, field.Required(at, ""))
	case n > most:
		return append(errs, field.TooMany(at, n, most))
	}
	for _, counter := range slices.Sorted(maps.Keys(counters)) {
		errs = append(errs, rule.Label(at.Key(counter), counter)...)
	}
	return errs
}
