package scheduling

import (
	"context"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource/declarative"
)

// validateGroupParts checks the fields that pod groups and their templates
// share. old is nil on create.
func validateGroupParts(op declarative.Operation, features *feature.Set, p *field.Path, t, old *schedulingv1beta1.PodGroupTemplate) field.ErrorList {
	if old == nil {
		op = declarative.Create()
	}
	before := old
	if before == nil {
		before = &schedulingv1beta1.PodGroupTemplate{}
	}
	var policy *schedulingv1beta1.PodGroupSchedulingPolicy
	if old != nil {
		policy = &old.SchedulingPolicy
	}
	errs := validateGroupPolicy(op, p.Child("schedulingPolicy"), &t.SchedulingPolicy, policy)
	if constraints := p.Child("schedulingConstraints"); features.Enabled(groupTopology) {
		errs = append(errs, immutable(op, constraints, t.SchedulingConstraints, before.SchedulingConstraints, func() field.ErrorList {
			if t.SchedulingConstraints == nil {
				return nil
			}
			return validateTopology(op, constraints.Child("topology"), t.SchedulingConstraints.Topology)
		})...)
	} else {
		errs = append(errs, declarative.Pointer(op, constraints, t.SchedulingConstraints, before.SchedulingConstraints, declarative.Forbidden)...)
	}
	claims := p.Child("resourceClaims")
	errs = append(errs, immutable(op, claims, &t.ResourceClaims, &before.ResourceClaims, func() field.ErrorList {
		return validateGroupClaims(op, claims, t.ResourceClaims, before.ResourceClaims)
	})...)
	mode := p.Child("disruptionMode")
	errs = append(errs, immutable(op, mode, t.DisruptionMode, before.DisruptionMode, func() field.ErrorList {
		if t.DisruptionMode == nil {
			return nil
		}
		return declarative.Union(op, mode, t.DisruptionMode, before.DisruptionMode, []string{"single", "all"},
			func(m *schedulingv1beta1.DisruptionMode) bool { return m.Single != nil },
			func(m *schedulingv1beta1.DisruptionMode) bool { return m.All != nil })
	})...)
	return append(errs, validateGroupPriority(op, features, p, groupPriorityOf(t.PriorityClassName, t.Priority, t.PreemptionPolicy),
		groupPriorityOf(before.PriorityClassName, before.Priority, before.PreemptionPolicy))...)
}

// immutable refuses changes of a field. check validates the field on create.
func immutable[T any](op declarative.Operation, p *field.Path, value, old *T, check func() field.ErrorList) field.ErrorList {
	return declarative.First(func() field.ErrorList { return declarative.Immutable(op, p, value, old) }, check)
}

func validateGroupPolicy(op declarative.Operation, p *field.Path, s, old *schedulingv1beta1.PodGroupSchedulingPolicy) field.ErrorList {
	type policy = schedulingv1beta1.PodGroupSchedulingPolicy
	return validatePolicy(op, p, s, old,
		func(m *policy) *schedulingv1beta1.BasicSchedulingPolicy { return m.Basic },
		func(m *policy) *schedulingv1beta1.GangSchedulingPolicy { return m.Gang },
		"minCount", func(g *schedulingv1beta1.GangSchedulingPolicy) *int32 { return &g.MinCount })
}

// validatePolicy requires exactly one of two scheduling policies, basic or
// gang, and checks the minimum size of a gang. old is nil on create.
func validatePolicy[S, B, G any](
	op declarative.Operation, p *field.Path, s, old *S,
	basic func(*S) *B, gang func(*S) *G, sizeName string, size func(*G) *int32,
) field.ErrorList {
	before := old
	if before == nil {
		before = new(S)
	}
	errs := declarative.Union(op, p, s, old, []string{"basic", "gang"},
		func(m *S) bool { return basic(m) != nil },
		func(m *S) bool { return gang(m) != nil })
	errs = append(errs, declarative.Immutable(op, p.Child("basic"), basic(s), basic(before))...)
	is, was, at := gang(s), gang(before), p.Child("gang")
	return append(errs, declarative.First(
		func() field.ErrorList { return declarative.Only(op, at, is, was, validate.NoSet, validate.NoUnset) },
		func() field.ErrorList {
			if is == nil {
				return nil
			}
			return declarative.Value(op, at.Child(sizeName), size(is), declarative.Of(was, size), declarative.Required, declarative.Min[int32](1))
		})...)
}

func validateTopology(op declarative.Operation, p *field.Path, constraints []schedulingv1beta1.TopologyConstraint) field.ErrorList {
	if errs := validate.MaxItems(context.Background(), op, p, constraints, nil, 1); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	for i := range constraints {
		errs = append(errs, declarative.Value(declarative.Create(), p.Index(i).Child("key"), &constraints[i].Key, nil, declarative.Required, validate.LabelKey)...)
	}
	return errs
}

func validateGroupClaims(op declarative.Operation, p *field.Path, claims, old []schedulingv1beta1.PodGroupResourceClaim) field.ErrorList {
	return declarative.List(op, p, claims, old, func(c *schedulingv1beta1.PodGroupResourceClaim) string { return c.Name }, schedulingv1beta1.MaxPodGroupResourceClaims,
		func(op declarative.Operation, p *field.Path, c, _ *schedulingv1beta1.PodGroupResourceClaim) field.ErrorList {
			errs := declarative.Union(op, p, c, nil, []string{"resourceClaimName", "resourceClaimTemplateName"},
				func(c *schedulingv1beta1.PodGroupResourceClaim) bool { return c.ResourceClaimName != nil },
				func(c *schedulingv1beta1.PodGroupResourceClaim) bool { return c.ResourceClaimTemplateName != nil })
			errs = append(errs, declarative.Value(op, p.Child("name"), &c.Name, nil, declarative.Required, validate.ShortName)...)
			errs = append(errs, declarative.Pointer(op, p.Child("resourceClaimName"), c.ResourceClaimName, nil, declarative.Optional, validate.LongName)...)
			return append(errs, declarative.Pointer(op, p.Child("resourceClaimTemplateName"), c.ResourceClaimTemplateName, nil, declarative.Optional, validate.LongName)...)
		})
}

// groupPriority has the fields for the priority of a group.
type groupPriority struct {
	class      string
	priority   *int32
	preemption *schedulingv1beta1.PreemptionPolicy
}

func groupPriorityOf(class string, priority *int32, preemption *schedulingv1beta1.PreemptionPolicy) groupPriority {
	return groupPriority{class, priority, preemption}
}

func validateGroupPriority(op declarative.Operation, features *feature.Set, p *field.Path, i, old groupPriority) field.ErrorList {
	class, priority, preemption := p.Child("priorityClassName"), p.Child("priority"), p.Child("preemptionPolicy")
	errs := immutable(op, class, &i.class, &old.class, func() field.ErrorList {
		return declarative.Value(op, class, &i.class, &old.class, declarative.Optional, validate.LongName)
	})
	errs = append(errs, immutable(op, priority, i.priority, old.priority, func() field.ErrorList {
		return declarative.Pointer(op, priority, i.priority, old.priority, declarative.Optional, declarative.Max(maxGroupPriority))
	})...)
	return append(errs, immutable(op, preemption, i.preemption, old.preemption, func() field.ErrorList {
		return declarative.Pointer(op, preemption, i.preemption, old.preemption, declarative.If(features.Enabled(groupPreemption)),
			declarative.OneOf(schedulingv1beta1.PreemptLowerPriority, schedulingv1beta1.PreemptNever))
	})...)
}

func validateParent(op declarative.Operation, p *field.Path, name, old *string, presence declarative.Presence) field.ErrorList {
	at := p.Child("parentCompositePodGroupName")
	return immutable(op, at, name, old, func() field.ErrorList {
		return declarative.Pointer(op, at, name, old, presence, validate.LongName)
	})
}

func validateWorkloadRef(op declarative.Operation, p *field.Path, w, old *schedulingv1beta1.WorkloadReference, presence declarative.Presence) field.ErrorList {
	return immutable(op, p, w, old, func() field.ErrorList {
		errs := declarative.Pointer(op, p, w, old, presence)
		if w == nil || old != nil {
			return errs
		}
		errs = append(errs, declarative.Value(op, p.Child("workloadName"), &w.WorkloadName, nil, declarative.Required, validate.LongName)...)
		return append(errs, declarative.Value(op, p.Child("templateName"), &w.TemplateName, nil, declarative.Required, validate.ShortName)...)
	})
}
