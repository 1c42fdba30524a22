package scheduling

import (
	"time"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/validate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/declarative"
)

// Workloads is the resource workloads (KEP-4671), which is not served by
// default.
func Workloads() *resource.Resource {
	return resource.Define(resource.Definition[schedulingv1beta1.Workload, *schedulingv1beta1.Workload]{
		GroupVersion:         schedulingv1beta1.SchemeGroupVersion,
		Names:                resource.Names{Kind: "Workload", Plural: "workloads"},
		Gate:                 feature.GenericWorkload,
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*schedulingv1beta1.Workload]{
			PrepareForCreate: func(r *resource.RequestContext, w *schedulingv1beta1.Workload) {
				dropWorkloadFields(r.Features, &w.Spec, &schedulingv1beta1.WorkloadSpec{})
			},
			PrepareForUpdate: func(r *resource.RequestContext, w, old *schedulingv1beta1.Workload) {
				dropWorkloadFields(r.Features, &w.Spec, &old.Spec)
			},
			Validate: func(r *resource.RequestContext, w *schedulingv1beta1.Workload) field.ErrorList {
				return validateWorkload(declarative.Create(), r.Features, field.NewPath("spec"), &w.Spec, nil)
			},
			ValidateUpdate: func(r *resource.RequestContext, w, old *schedulingv1beta1.Workload) field.ErrorList {
				return validateWorkload(declarative.Update(), r.Features, field.NewPath("spec"), &w.Spec, &old.Spec)
			},
		},
		Table: resource.Table[*schedulingv1beta1.Workload]{
			Columns: []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()},
			Row: func(w *schedulingv1beta1.Workload, now time.Time) []any {
				return []any{w.Name, resource.Age(w.CreationTimestamp, now)}
			},
		},
	})
}

// dropWorkloadFields clears the fields of disabled features in all templates
// unless a template of the old workload uses them.
func dropWorkloadFields(features *feature.Set, s, old *schedulingv1beta1.WorkloadSpec) {
	if len(old.CompositePodGroupTemplates) == 0 && !features.Enabled(compositeGroups) {
		s.CompositePodGroupTemplates = nil
	}
	used := usedBy(old)
	topology := used.topology || features.Enabled(groupTopology)
	claims := used.claims || features.Enabled(groupClaims)
	preemption := used.preemption || features.Enabled(groupPreemption)
	eachTemplate(s, func(t *schedulingv1beta1.PodGroupTemplate) {
		if !topology {
			t.SchedulingConstraints = nil
		}
		if !claims {
			t.ResourceClaims = nil
		}
		if !preemption {
			t.PreemptionPolicy = nil
		}
	}, func(t *schedulingv1beta1.CompositePodGroupTemplate) {
		if !preemption {
			t.PreemptionPolicy = nil
		}
	})
}

// templateUses has which fields of features the templates use.
type templateUses struct{ topology, claims, preemption bool }

func usedBy(s *schedulingv1beta1.WorkloadSpec) templateUses {
	var u templateUses
	eachTemplate(s, func(t *schedulingv1beta1.PodGroupTemplate) {
		u.topology = u.topology || t.SchedulingConstraints != nil
		u.claims = u.claims || len(t.ResourceClaims) > 0
		u.preemption = u.preemption || t.PreemptionPolicy != nil
	}, func(t *schedulingv1beta1.CompositePodGroupTemplate) {
		u.preemption = u.preemption || t.PreemptionPolicy != nil
	})
	return u
}

func eachTemplate(s *schedulingv1beta1.WorkloadSpec, group func(*schedulingv1beta1.PodGroupTemplate), composite func(*schedulingv1beta1.CompositePodGroupTemplate)) {
	groups := func(list []schedulingv1beta1.PodGroupTemplate) {
		for i := range list {
			group(&list[i])
		}
	}
	var walk func(list []schedulingv1beta1.CompositePodGroupTemplate)
	walk = func(list []schedulingv1beta1.CompositePodGroupTemplate) {
		for i := range list {
			composite(&list[i])
			groups(list[i].PodGroupTemplates)
			walk(list[i].CompositePodGroupTemplates)
		}
	}
	groups(s.PodGroupTemplates)
	walk(s.CompositePodGroupTemplates)
}

func validateWorkload(op declarative.Operation, features *feature.Set, p *field.Path, s, old *schedulingv1beta1.WorkloadSpec) field.ErrorList {
	before := old
	if before == nil {
		before = &schedulingv1beta1.WorkloadSpec{}
	}
	errs := declarative.Union(op, p, s, old, []string{"podGroupTemplates", "compositePodGroupTemplates"},
		func(s *schedulingv1beta1.WorkloadSpec) bool { return len(s.PodGroupTemplates) > 0 },
		func(s *schedulingv1beta1.WorkloadSpec) bool { return len(s.CompositePodGroupTemplates) > 0 })
	controller := p.Child("controllerRef")
	errs = append(errs, immutable(op, controller, s.ControllerRef, before.ControllerRef, func() field.ErrorList {
		return validateControllerRef(controller, s.ControllerRef)
	})...)
	errs = append(errs, validateTemplates(op, features, p.Child("podGroupTemplates"), s.PodGroupTemplates, before.PodGroupTemplates, old != nil)...)
	composites := p.Child("compositePodGroupTemplates")
	if len(s.CompositePodGroupTemplates) > 0 && len(before.CompositePodGroupTemplates) == 0 && !features.Enabled(compositeGroups) {
		return append(errs, field.Forbidden(composites, ""))
	}
	errs = append(errs, validateComposites(op, features, composites, s.CompositePodGroupTemplates, before.CompositePodGroupTemplates, old != nil)...)
	return append(errs, validateHierarchy(p, s)...)
}

func validateControllerRef(p *field.Path, c *schedulingv1beta1.TypedLocalObjectReference) field.ErrorList {
	if c == nil {
		return nil
	}
	op := declarative.Create()
	errs := declarative.Value(op, p.Child("apiGroup"), &c.APIGroup, nil, declarative.Optional, validate.LongName)
	errs = append(errs, declarative.Value(op, p.Child("kind"), &c.Kind, nil, declarative.Required, validate.PathSegmentName)...)
	return append(errs, declarative.Value(op, p.Child("name"), &c.Name, nil, declarative.Required, validate.PathSegmentName)...)
}

func groupTemplateName(t *schedulingv1beta1.PodGroupTemplate) string { return t.Name }

func compositeTemplateName(t *schedulingv1beta1.CompositePodGroupTemplate) string { return t.Name }

func validateTemplates(op declarative.Operation, features *feature.Set, p *field.Path, list, old []schedulingv1beta1.PodGroupTemplate, exists bool) field.ErrorList {
	return validateTemplateList(op, p, list, old, exists, groupTemplateName,
		func(op declarative.Operation, p *field.Path, t, old *schedulingv1beta1.PodGroupTemplate) field.ErrorList {
			name := declarative.Of(old, func(o *schedulingv1beta1.PodGroupTemplate) *string { return &o.Name })
			errs := declarative.Value(op, p.Child("name"), &t.Name, name, declarative.Required, validate.ShortName)
			return append(errs, validateGroupParts(op, features, p, t, old)...)
		})
}

func validateComposites(op declarative.Operation, features *feature.Set, p *field.Path, list, old []schedulingv1beta1.CompositePodGroupTemplate, exists bool) field.ErrorList {
	return validateTemplateList(op, p, list, old, exists, compositeTemplateName,
		func(op declarative.Operation, p *field.Path, t, old *schedulingv1beta1.CompositePodGroupTemplate) field.ErrorList {
			before := old
			if before == nil {
				before = &schedulingv1beta1.CompositePodGroupTemplate{}
			}
			name := declarative.Of(old, func(o *schedulingv1beta1.CompositePodGroupTemplate) *string { return &o.Name })
			errs := declarative.Value(op, p.Child("name"), &t.Name, name, declarative.Required, validate.ShortName)
			errs = append(errs, validateCompositeParts(op, features, p, t, old)...)
			errs = append(errs, validateTemplates(op, features, p.Child("podGroupTemplates"), t.PodGroupTemplates, before.PodGroupTemplates, old != nil)...)
			return append(errs, validateComposites(op, features, p.Child("compositePodGroupTemplates"), t.CompositePodGroupTemplates, before.CompositePodGroupTemplates, old != nil)...)
		})
}

// validateTemplateList checks a list of templates, which names identify. An
// update can change fields of a template, but neither add nor remove
// templates.
func validateTemplateList[T any](
	op declarative.Operation, p *field.Path, list, old []T, exists bool, name func(*T) string,
	check func(op declarative.Operation, p *field.Path, t, old *T) field.ErrorList,
) field.ErrorList {
	if exists {
		if errs := declarative.FixedKeys(op, p, list, old, name); len(errs) > 0 {
			return errs
		}
	}
	return declarative.List(op, p, list, old, name, schedulingv1beta1.WorkloadMaxPodGroupTemplates, check)
}
