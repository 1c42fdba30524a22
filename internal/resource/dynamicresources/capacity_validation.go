package dynamicresources

import (
	"fmt"
	"math"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateCapacity checks the request policy of a capacity. Only a device with
// allowMultipleAllocations can have one.
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

// maxValidValues is the maximum length of validValues.
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
		for i, value := range values {
			if value.Cmp(whole) > 0 {
				errs = append(errs, field.Invalid(p.Index(i), value.String(), "option is larger than capacity value: "+whole.String()))
			}
			found = found || value.Cmp(standard) == 0
		}
		seen := sets.New[string]()
		for i, value := range values {
			key := value.AsDec().String()
			if seen.Has(key) {
				errs = append(errs, field.Duplicate(p.Index(i), key))
			}
			seen.Insert(key)
		}
	}
	if !found {
		errs = append(errs, field.Invalid(p, standard.String(), "default value is not valid according to the requestPolicy"))
	}
	return errs
}

func validateValidRange(p *field.Path, r *resourcev1.CapacityRequestPolicyRange, standard, whole resource.Quantity) field.ErrorList {
	lower, upper, start := p.Child("min"), p.Child("max"), p.Child("default")
	if r.Min == nil {
		return field.ErrorList{field.Required(lower, "required when validRange is defined")}
	}
	var errs field.ErrorList
	if r.Min.Cmp(whole) > 0 {
		errs = append(errs, field.Invalid(lower, r.Min.String(), "min is larger than capacity value: "+whole.String()))
	}
	if standard.Cmp(*r.Min) < 0 {
		errs = append(errs, field.Invalid(start, standard.String(), "default is less than min: "+r.Min.String()))
	}
	if r.Max != nil {
		if r.Min.Cmp(*r.Max) > 0 {
			errs = append(errs, field.Invalid(upper, r.Min.String(), "min is larger than max: "+r.Max.String()))
		}
		if r.Max.Cmp(whole) > 0 {
			errs = append(errs, field.Invalid(upper, r.Max.String(), "max is larger than capacity value: "+whole.String()))
		}
		if standard.Cmp(*r.Max) > 0 {
			errs = append(errs, field.Invalid(start, standard.String(), "default is more than max: "+r.Max.String()))
		}
	}
	return append(errs, validateSteps(p, r, standard, whole)...)
}

// validateSteps requires that the default and the maximum are whole steps
// above the minimum. It counts in thousandths if any quantity has a fraction.
func validateSteps(p *field.Path, r *resourcev1.CapacityRequestPolicyRange, standard, whole resource.Quantity) field.ErrorList {
	amounts := []struct {
		name string
		q    *resource.Quantity
	}{{"default", &standard}, {"min", r.Min}, {"max", r.Max}, {"step", r.Step}}
	fractional := false
	for _, a := range amounts {
		fractional = fractional || a.q != nil && hasFraction(*a.q)
	}
	unsafe := func(problem func(q resource.Quantity) string) field.ErrorList {
		var errs field.ErrorList
		for _, a := range amounts {
			if a.q == nil {
				continue
			}
			if detail := problem(*a.q); detail != "" {
				errs = append(errs, field.Invalid(p.Child(a.name), a.q.String(), detail))
			}
		}
		return errs
	}
	if fractional {
		if errs := unsafe(milliProblem); len(errs) > 0 {
			return errs
		}
	}
	if r.Step == nil {
		return nil
	}
	step := p.Child("step")
	if r.Step.Sign() <= 0 {
		return field.ErrorList{field.Invalid(step, r.Step.String(), "must be greater than zero")}
	}
	var errs field.ErrorList
	first := r.Min.DeepCopy()
	first.Add(*r.Step)
	if first.Cmp(whole) > 0 {
		errs = append(errs, field.Invalid(step, r.Step.String(), fmt.Sprintf("one step %s is larger than capacity value: %s", first.String(), whole.String())))
	}
	count := (*resource.Quantity).MilliValue
	if !fractional {
		count = (*resource.Quantity).Value
		if problems := unsafe(integerProblem); len(problems) > 0 {
			return append(errs, problems...)
		}
	}
	for _, q := range []*resource.Quantity{&standard, r.Max} {
		if q != nil && (count(q)-count(r.Min))%count(r.Step) != 0 {
			errs = append(errs, field.Invalid(step, q.String(),
				fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)", r.Step.String(), r.Min.String())))
		}
	}
	return errs
}

func hasFraction(q resource.Quantity) bool {
	rounded := q.DeepCopy()
	return !rounded.RoundUp(0)
}

func milliProblem(q resource.Quantity) string {
	if q.Cmp(*resource.NewMilliQuantity(q.MilliValue(), q.Format)) != 0 {
		return "value cannot be represented as a milli value"
	}
	return ""
}

// integerProblem returns why a quantity is not usable for integer arithmetic,
// or "".
func integerProblem(q resource.Quantity) string {
	switch {
	case q.Sign() < 0:
		return "must be greater than or equal to 0"
	case q.CmpInt64(math.MaxInt64) > 0:
		return "must not be larger than 9223372036854775807"
	default:
		return ""
	}
}
