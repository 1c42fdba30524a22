package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	rules "github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/resourcelist"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// LimitRanges is the resource limitranges.
func LimitRanges() *rules.Resource {
	return rules.Define(rules.Definition[corev1.LimitRange, *corev1.LimitRange]{
		GroupVersion: corev1.SchemeGroupVersion,
		Names: rules.Names{
			Kind:       "LimitRange",
			Plural:     "limitranges",
			ShortNames: []string{"limits"},
		},
		Default:                 defaultLimitRange,
		MetadataUpdateUnchecked: true,
		Strategy: rules.Strategy[*corev1.LimitRange]{
			Validate: validateLimitRange,
			PrepareForCreate: func(_ *rules.RequestContext, l *corev1.LimitRange) {
				defaults.Zero(&l.Name, string(l.UID))
			},
			AllowCreateOnUpdate: true,
		},
	})
}

// defaultLimitRange derives the defaults of containers: the limit from the
// maximum, and the request from the limit or else the minimum.
func defaultLimitRange(l *corev1.LimitRange) {
	if len(l.Spec.Limits) == 0 {
		l.Spec.Limits = nil
	}
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio} {
			resourcelist.RoundUp(list)
		}
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		if item.Default == nil {
			item.Default = corev1.ResourceList{}
		}
		if item.DefaultRequest == nil {
			item.DefaultRequest = corev1.ResourceList{}
		}
		setMissing(item.Default, item.Max)
		setMissing(item.DefaultRequest, item.Default)
		setMissing(item.DefaultRequest, item.Min)
	}
}

func setMissing(list, from corev1.ResourceList) {
	for name, quantity := range from {
		if _, ok := list[name]; !ok {
			list[name] = quantity.DeepCopy()
		}
	}
}

func validateLimitRange(_ *rules.RequestContext, l *corev1.LimitRange) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.LimitType]bool{}
	for i := range l.Spec.Limits {
		item, path := &l.Spec.Limits[i], field.NewPath("spec", "limits").Index(i)
		errs = append(errs, validateLimitRangeType(item.Type, path.Child("type"))...)
		if seen[item.Type] {
			errs = append(errs, field.Duplicate(path.Child("type"), item.Type))
		}
		seen[item.Type] = true
		errs = append(errs, validateLimitRangeItem(item, path)...)
	}
	return errs
}

func validateLimitRangeItem(item *corev1.LimitRangeItem, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	collect := func(list corev1.ResourceList, name string) {
		for key := range list {
			errs = append(errs, validateLimitRangeResource(item.Type, string(key), path.Child(name).Key(string(key)))...)
			names.Insert(string(key))
		}
	}
	collect(item.Max, "max")
	collect(item.Min, "min")
	if item.Type == corev1.LimitTypePod {
		if len(item.Default) > 0 {
			errs = append(errs, field.Forbidden(path.Child("default"), "may not be specified when `type` is 'Pod'"))
		}
		if len(item.DefaultRequest) > 0 {
			errs = append(errs, field.Forbidden(path.Child("defaultRequest"), "may not be specified when `type` is 'Pod'"))
		}
	} else {
		collect(item.Default, "default")
		collect(item.DefaultRequest, "defaultRequest")
	}
	if item.Type == corev1.LimitTypePersistentVolumeClaim {
		_, hasMin := item.Min[corev1.ResourceStorage]
		_, hasMax := item.Max[corev1.ResourceStorage]
		if !hasMin && !hasMax {
			errs = append(errs, field.Required(path.Child("limits"), "either minimum or maximum storage value is required, but neither was provided"))
		}
	}
	collect(item.MaxLimitRequestRatio, "maxLimitRequestRatio")
	ordered := *item
	if item.Type == corev1.LimitTypePod {
		ordered.Default, ordered.DefaultRequest = nil, nil
	}
	for _, name := range sets.List(names) {
		errs = append(errs, validateLimitOrder(&ordered, corev1.ResourceName(name), path)...)
	}
	return errs
}

// validateLimitOrder checks min <= defaultRequest <= default <= max, and that
// limits within these bounds can satisfy maxLimitRequestRatio.
func validateLimitOrder(item *corev1.LimitRangeItem, name corev1.ResourceName, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	least, hasLeast := item.Min[name]
	most, hasMost := item.Max[name]
	limit, hasLimit := item.Default[name]
	request, hasRequest := item.DefaultRequest[name]
	ratio, hasRatio := item.MaxLimitRequestRatio[name]
	order := func(both bool, child string, value *resource.Quantity, low, high *resource.Quantity, what string) {
		if both && low.Cmp(*high) > 0 {
			errs = append(errs, field.Invalid(path.Child(child).Key(string(name)), value.String(),
				fmt.Sprintf(what, low.String(), high.String())))
		}
	}
	order(hasLeast && hasMost, "min", &least, &least, &most, "min value %s is greater than max value %s")
	order(hasRequest && hasLeast, "defaultRequest", &request, &least, &request, "min value %s is greater than default request value %s")
	order(hasRequest && hasMost, "defaultRequest", &request, &request, &most, "default request value %s is greater than max value %s")
	order(hasRequest && hasLimit, "defaultRequest", &request, &request, &limit, "default request value %s is greater than default limit value %s")
	order(hasLimit && hasLeast, "default", &least, &least, &limit, "min value %s is greater than default value %s")
	order(hasLimit && hasMost, "default", &most, &limit, &most, "default value %s is greater than max value %s")
	if hasRatio {
		at := path.Child("maxLimitRequestRatio").Key(string(name))
		if ratio.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 {
			errs = append(errs, field.Invalid(at, ratio.String(), fmt.Sprintf("ratio %s is less than 1", ratio.String())))
		}
		if hasLeast && hasMost {
			possible := float64(most.Value()) / float64(least.Value())
			if least.Value() < resource.MaxMilliValue && most.Value() < resource.MaxMilliValue {
				possible = float64(most.MilliValue()) / float64(least.MilliValue())
			}
			if asked := ratio.AsApproximateFloat64(); asked > possible {
				errs = append(errs, field.Invalid(at, ratio.String(),
					fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), possible)))
			}
		}
	}
	if !resourcelist.IsOvercommittable(name) {
		if hasLimit && hasRequest && limit.Cmp(request) != 0 {
			errs = append(errs, field.Invalid(path.Child("defaultRequest").Key(string(name)), request.String(),
				fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", limit.String(), request.String(), name)))
		}
	}
	return errs
}

func validateLimitRangeType(name corev1.LimitType, path *field.Path) field.ErrorList {
	known := name == corev1.LimitTypePod || name == corev1.LimitTypeContainer || name == corev1.LimitTypePersistentVolumeClaim
	errs := validators.QualifiedName(path, string(name))
	if len(errs) == 0 && !strings.Contains(string(name), "/") && !known {
		errs = append(errs, field.Invalid(path, name, "must be a standard limit type or fully qualified"))
	}
	return errs
}

func validateLimitRangeResource(kind corev1.LimitType, name string, path *field.Path) field.ErrorList {
	if kind == corev1.LimitTypePod || kind == corev1.LimitTypeContainer {
		return resourcelist.ValidateContainerName(corev1.ResourceName(name), path)
	}
	return resourcelist.ValidateName(corev1.ResourceName(name), path)
}
