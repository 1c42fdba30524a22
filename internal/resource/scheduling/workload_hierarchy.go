package scheduling

import (
	"fmt"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

// validateHierarchy checks the rules for the tree of a workload's templates:
//
//	compositePodGroupTemplates      names are unique across lists
//	  compositePodGroupTemplates    depth is limited
//	    podGroupTemplates           all have one priority; each composite has groups
func validateHierarchy(p *field.Path, s *schedulingv1beta1.WorkloadSpec) field.ErrorList {
	names := sets.New[string]()
	for i := range s.PodGroupTemplates {
		names.Insert(s.PodGroupTemplates[i].Name)
	}
	composites := p.Child("compositePodGroupTemplates")
	errs := repeatedNames(composites, s.CompositePodGroupTemplates, names)
	for i := range s.CompositePodGroupTemplates {
		if depth(&s.CompositePodGroupTemplates[i]) >= schedulingv1beta1.WorkloadMaxTreeDepth {
			errs = append(errs, field.Invalid(composites.Index(i), validators.Shown(s.CompositePodGroupTemplates[i].CompositePodGroupTemplates),
				fmt.Sprintf("maximum template hierarchy depth is %d", schedulingv1beta1.WorkloadMaxTreeDepth)))
		}
	}
	errs = append(errs, validateOnePriority(p, s)...)
	return append(errs, childless(composites, s.CompositePodGroupTemplates)...)
}

// repeatedNames reports names that earlier lists have. It adds the names of
// this list and of the lists below it to names. It does not report names that
// occur twice in one list, because the checks of lists do.
func repeatedNames(p *field.Path, list []schedulingv1beta1.CompositePodGroupTemplate, names sets.Set[string]) field.ErrorList {
	var errs field.ErrorList
	here := sets.New[string]()
	for i := range list {
		if names.Has(list[i].Name) {
			errs = append(errs, field.Duplicate(p.Index(i).Child("name"), list[i].Name))
		}
		here.Insert(list[i].Name)
	}
	names.Insert(here.UnsortedList()...)
	for i := range list {
		t, at := &list[i], p.Index(i)
		below := sets.New[string]()
		for k := range t.PodGroupTemplates {
			if name := t.PodGroupTemplates[k].Name; names.Has(name) {
				errs = append(errs, field.Duplicate(at.Child("podGroupTemplates").Index(k).Child("name"), name))
			}
			below.Insert(t.PodGroupTemplates[k].Name)
		}
		names.Insert(below.UnsortedList()...)
		errs = append(errs, repeatedNames(at.Child("compositePodGroupTemplates"), t.CompositePodGroupTemplates, names)...)
	}
	return errs
}

// depth returns the number of levels of composites, including t.
func depth(t *schedulingv1beta1.CompositePodGroupTemplate) int {
	below := 0
	for i := range t.CompositePodGroupTemplates {
		below = max(below, depth(&t.CompositePodGroupTemplates[i]))
	}
	return below + 1
}

func validateOnePriority(p *field.Path, s *schedulingv1beta1.WorkloadSpec) field.ErrorList {
	type priority struct {
		class string
		set   bool
		value int32
	}
	found := sets.New[priority]()
	add := func(class string, value *int32) {
		found.Insert(priority{class, value != nil, ptr.Deref(value, 0)})
	}
	eachTemplate(s, func(t *schedulingv1beta1.PodGroupTemplate) { add(t.PriorityClassName, t.Priority) },
		func(t *schedulingv1beta1.CompositePodGroupTemplate) { add(t.PriorityClassName, t.Priority) })
	switch {
	case found.Len() < 2:
		return nil
	case len(s.CompositePodGroupTemplates) == 0:
		return field.ErrorList{field.Invalid(p, nil, "detected multiple priority configurations")}
	}
	return field.ErrorList{field.Invalid(p, nil, "all priority and priorityClassName values must be identical, detected multiple values")}
}

func childless(p *field.Path, list []schedulingv1beta1.CompositePodGroupTemplate) field.ErrorList {
	var errs field.ErrorList
	for i := range list {
		t := &list[i]
		if len(t.PodGroupTemplates) == 0 && len(t.CompositePodGroupTemplates) == 0 {
			errs = append(errs, field.Invalid(p.Index(i), t.Name, "must have at least one child PodGroupTemplate or CompositePodGroupTemplate"))
		}
		errs = append(errs, childless(p.Index(i).Child("compositePodGroupTemplates"), t.CompositePodGroupTemplates)...)
	}
	return errs
}
