package scheduling

import (
	"time"

	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/declarative"
)

// CompositePodGroups is the resource compositepodgroups (KEP-6012), which is
// not served by default.
func CompositePodGroups() *resource.Resource {
	return resource.Define(resource.Definition[schedulingv1alpha3.CompositePodGroup, *schedulingv1alpha3.CompositePodGroup]{
		GroupVersion: schedulingv1alpha3.SchemeGroupVersion,
		Names:        resource.Names{Kind: "CompositePodGroup", Plural: "compositepodgroups"},
		Gate:         feature.CompositePodGroup,
		Default: func(g *schedulingv1alpha3.CompositePodGroup) {
			if g.Spec.DisruptionMode == nil {
				g.Spec.DisruptionMode = &schedulingv1alpha3.CompositeDisruptionMode{Single: &schedulingv1alpha3.SingleCompositeDisruptionMode{}}
			}
		},
		Status: resource.Status[*schedulingv1alpha3.CompositePodGroup]{
			Copy:          func(g, from *schedulingv1alpha3.CompositePodGroup) { g.Status = from.Status },
			KeepsMetadata: true,
			Validate: func(_ *resource.RequestContext, g, _ *schedulingv1alpha3.CompositePodGroup) field.ErrorList {
				return metav1validation.ValidateConditions(g.Status.Conditions, field.NewPath("status", "conditions"))
			},
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*schedulingv1alpha3.CompositePodGroup]{
			PrepareForCreate: func(r *resource.RequestContext, g *schedulingv1alpha3.CompositePodGroup) {
				if !r.Features.Enabled(groupPreemption) {
					g.Spec.PreemptionPolicy = nil
				}
			},
			PrepareForUpdate: func(r *resource.RequestContext, g, old *schedulingv1alpha3.CompositePodGroup) {
				if old.Spec.PreemptionPolicy == nil && !r.Features.Enabled(groupPreemption) {
					g.Spec.PreemptionPolicy = nil
				}
			},
			Validate: func(r *resource.RequestContext, g *schedulingv1alpha3.CompositePodGroup) field.ErrorList {
				return validateCompositePodGroup(declarative.Create(), r.Features, field.NewPath("spec"), &g.Spec, nil)
			},
			ValidateUpdate: func(r *resource.RequestContext, g, old *schedulingv1alpha3.CompositePodGroup) field.ErrorList {
				return validateCompositePodGroup(declarative.Update(), r.Features, field.NewPath("spec"), &g.Spec, &old.Spec)
			},
		},
		Table: resource.Table[*schedulingv1alpha3.CompositePodGroup]{
			Columns: []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()},
			Row: func(g *schedulingv1alpha3.CompositePodGroup, now time.Time) []any {
				return []any{g.Name, resource.Age(g.CreationTimestamp, now)}
			},
		},
	})
}

func validateCompositePodGroup(op declarative.Operation, features *feature.Set, p *field.Path, s, old *schedulingv1alpha3.CompositePodGroupSpec) field.ErrorList {
	var parent *string
	var workload *schedulingv1beta1.WorkloadReference
	var before *schedulingv1beta1.CompositePodGroupTemplate
	if old != nil {
		parent, workload, before = old.ParentCompositePodGroupName, (*schedulingv1beta1.WorkloadReference)(old.WorkloadRef), partsOfComposite(old)
	}
	errs := validateParent(op, p, s.ParentCompositePodGroupName, parent, declarative.Optional)
	errs = append(errs, validateWorkloadRef(op, p.Child("workloadRef"), (*schedulingv1beta1.WorkloadReference)(s.WorkloadRef), workload, declarative.Required)...)
	parts := partsOfComposite(s)
	if old != nil {
		if wrong := declarative.Immutable(op, p.Child("schedulingPolicy"), &parts.SchedulingPolicy, &before.SchedulingPolicy); len(wrong) > 0 {
			errs = append(errs, wrong...)
			parts.SchedulingPolicy = before.SchedulingPolicy
		}
	}
	return append(errs, validateCompositeParts(op, features, p, parts, before)...)
}

// partsOfComposite returns the fields of a composite group that templates
// have, too.
func partsOfComposite(s *schedulingv1alpha3.CompositePodGroupSpec) *schedulingv1beta1.CompositePodGroupTemplate {
	t := &schedulingv1beta1.CompositePodGroupTemplate{
		PriorityClassName: s.PriorityClassName, Priority: s.Priority, PreemptionPolicy: (*schedulingv1beta1.PreemptionPolicy)(s.PreemptionPolicy),
	}
	t.SchedulingPolicy.Basic = (*schedulingv1beta1.CompositeBasicSchedulingPolicy)(s.SchedulingPolicy.Basic)
	t.SchedulingPolicy.Gang = (*schedulingv1beta1.CompositeGangSchedulingPolicy)(s.SchedulingPolicy.Gang)
	if s.DisruptionMode != nil {
		t.DisruptionMode = &schedulingv1beta1.CompositeDisruptionMode{
			Single: (*schedulingv1beta1.SingleCompositeDisruptionMode)(s.DisruptionMode.Single),
			All:    (*schedulingv1beta1.AllCompositeDisruptionMode)(s.DisruptionMode.All),
		}
	}
	if s.SchedulingConstraints != nil {
		t.SchedulingConstraints = &schedulingv1beta1.CompositePodGroupSchedulingConstraints{}
		for _, c := range s.SchedulingConstraints.Topology {
			t.SchedulingConstraints.Topology = append(t.SchedulingConstraints.Topology, schedulingv1beta1.TopologyConstraint(c))
		}
	}
	return t
}

// validateCompositeParts checks the fields that composite groups and their
// templates share. old is nil on create.
func validateCompositeParts(op declarative.Operation, features *feature.Set, p *field.Path, t, old *schedulingv1beta1.CompositePodGroupTemplate) field.ErrorList {
	var policy *schedulingv1beta1.CompositePodGroupSchedulingPolicy
	before := old
	if old == nil {
		op, before = declarative.Create(), &schedulingv1beta1.CompositePodGroupTemplate{}
	} else {
		policy = &old.SchedulingPolicy
	}
	errs := validateCompositePolicy(op, p.Child("schedulingPolicy"), &t.SchedulingPolicy, policy)
	constraints, mode := p.Child("schedulingConstraints"), p.Child("disruptionMode")
	errs = append(errs, immutable(op, constraints, t.SchedulingConstraints, before.SchedulingConstraints, func() field.ErrorList {
		if t.SchedulingConstraints == nil {
			return nil
		}
		return validateTopology(op, constraints.Child("topology"), t.SchedulingConstraints.Topology)
	})...)
	errs = append(errs, immutable(op, mode, t.DisruptionMode, before.DisruptionMode, func() field.ErrorList {
		if t.DisruptionMode == nil {
			return nil
		}
		return declarative.Union(op, mode, t.DisruptionMode, before.DisruptionMode, []string{"single", "all"},
			func(m *schedulingv1beta1.CompositeDisruptionMode) bool { return m.Single != nil },
			func(m *schedulingv1beta1.CompositeDisruptionMode) bool { return m.All != nil })
	})...)
	return append(errs, validateGroupPriority(op, features, p, groupPriorityOf(t.PriorityClassName, t.Priority, t.PreemptionPolicy),
		groupPriorityOf(before.PriorityClassName, before.Priority, before.PreemptionPolicy))...)
}

func validateCompositePolicy(op declarative.Operation, p *field.Path, s, old *schedulingv1beta1.CompositePodGroupSchedulingPolicy) field.ErrorList {
	type policy = schedulingv1beta1.CompositePodGroupSchedulingPolicy
	return validatePolicy(op, p, s, old,
		func(m *policy) *schedulingv1beta1.CompositeBasicSchedulingPolicy { return m.Basic },
		func(m *policy) *schedulingv1beta1.CompositeGangSchedulingPolicy { return m.Gang },
		"minGroupCount", func(g *schedulingv1beta1.CompositeGangSchedulingPolicy) *int32 { return &g.MinGroupCount })
}
