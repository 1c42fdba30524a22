package noderesources

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/scheduler/plugin/utilization"
)

const maxWeight = 100

func setFitDefaults(a *kubescheduler.NodeResourcesFitArgs) {
	if a.ScoringStrategy == nil {
		a.ScoringStrategy = &kubescheduler.ScoringStrategy{Type: kubescheduler.LeastAllocated}
	}
	setResourceDefaults(&a.ScoringStrategy.Resources)
}

func setBalancedDefaults(a *kubescheduler.NodeResourcesBalancedAllocationArgs) {
	setResourceDefaults(&a.Resources)
}

// setResourceDefaults gives resources without a weight the weight 1. An empty list
// defaults to cpu and memory.
func setResourceDefaults(resources *[]kubescheduler.ResourceSpec) {
	if len(*resources) == 0 {
		*resources = []kubescheduler.ResourceSpec{{Name: string(v1.ResourceCPU), Weight: 1}, {Name: string(v1.ResourceMemory), Weight: 1}}
	}
	for i := range *resources {
		if r := &(*resources)[i]; r.Weight == 0 {
			r.Weight = 1
		}
	}
}

func validateFit(path *field.Path, a *kubescheduler.NodeResourcesFitArgs) field.ErrorList {
	var errs field.ErrorList
	for i, name := range a.IgnoredResources {
		for _, problem := range validation.IsQualifiedName(name) {
			errs = append(errs, field.Invalid(path.Child("ignoredResources").Index(i), name, problem))
		}
	}
	for i, group := range a.IgnoredResourceGroups {
		path := path.Child("ignoredResourceGroups").Index(i)
		if strings.Contains(group, "/") {
			errs = append(errs, field.Invalid(path, group, "resource group name can't contain '/'"))
			continue
		}
		for _, problem := range validation.IsQualifiedName(group) {
			errs = append(errs, field.Invalid(path, group, problem))
		}
	}
	return append(errs, validateStrategy(path.Child("scoringStrategy"), a.ScoringStrategy)...)
}

func validateStrategy(path *field.Path, s *kubescheduler.ScoringStrategy) field.ErrorList {
	var errs field.ErrorList
	switch s.Type {
	case kubescheduler.LeastAllocated, kubescheduler.MostAllocated:
	case kubescheduler.RequestedToCapacityRatio:
		var shape []kubescheduler.UtilizationShapePoint
		if s.RequestedToCapacityRatio != nil {
			shape = s.RequestedToCapacityRatio.Shape
		}
		errs = append(errs, utilization.Validate(path.Child("requestedToCapacityRatio", "shape"), shape)...)
	default:
		errs = append(errs, field.NotSupported(path.Child("type"), s.Type,
			[]kubescheduler.ScoringStrategyType{kubescheduler.LeastAllocated, kubescheduler.MostAllocated, kubescheduler.RequestedToCapacityRatio}))
	}
	for i, r := range s.Resources {
		if r.Weight <= 0 || r.Weight > maxWeight {
			errs = append(errs, field.Invalid(path.Child("resources").Index(i).Child("weight"), r.Weight,
				fmt.Sprintf("resource weight of %v not in valid range (0, 100]", r.Name)))
		}
	}
	return errs
}

func validateBalanced(path *field.Path, a *kubescheduler.NodeResourcesBalancedAllocationArgs) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, r := range a.Resources {
		path := path.Child("resources").Index(i)
		if r.Weight != 1 {
			errs = append(errs, field.Invalid(path.Child("weight"), r.Weight, "must be 1"))
		}
		if seen[r.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), r.Name))
		}
		seen[r.Name] = true
	}
	return errs
}
