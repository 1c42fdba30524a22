package scheduling

import (
	"time"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/validate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/declarative"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// PodGroups is the resource podgroups (KEP-4671), which is not served by
// default.
func PodGroups() *resource.Resource {
	return resource.Define(resource.Definition[schedulingv1beta1.PodGroup, *schedulingv1beta1.PodGroup]{
		GroupVersion: schedulingv1beta1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "PodGroup", Plural: "podgroups"},
		Gate:         feature.GenericWorkload,
		Default: func(g *schedulingv1beta1.PodGroup) {
			if g.Spec.DisruptionMode == nil {
				g.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{Single: &schedulingv1beta1.SingleDisruptionMode{}}
			}
		},
		Status: resource.Status[*schedulingv1beta1.PodGroup]{
			Copy:          func(g, from *schedulingv1beta1.PodGroup) { g.Status = from.Status },
			KeepsMetadata: true,
			Prepare: func(r *resource.RequestContext, g, old *schedulingv1beta1.PodGroup) {
				if !r.Features.Enabled(groupClaims) && len(old.Spec.ResourceClaims) == 0 {
					g.Status.ResourceClaimStatuses = nil
				}
			},
			Validate: validatePodGroupStatus,
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*schedulingv1beta1.PodGroup]{
			PrepareForCreate: func(r *resource.RequestContext, g *schedulingv1beta1.PodGroup) {
				dropPodGroupFields(r.Features, &g.Spec, &schedulingv1beta1.PodGroupSpec{})
			},
			PrepareForUpdate: func(r *resource.RequestContext, g, old *schedulingv1beta1.PodGroup) {
				dropPodGroupFields(r.Features, &g.Spec, &old.Spec)
			},
			Validate: func(r *resource.RequestContext, g *schedulingv1beta1.PodGroup) field.ErrorList {
				return validatePodGroup(declarative.Create(), r.Features, field.NewPath("spec"), &g.Spec, nil)
			},
			ValidateUpdate: func(r *resource.RequestContext, g, old *schedulingv1beta1.PodGroup) field.ErrorList {
				return validatePodGroup(declarative.Update(), r.Features, field.NewPath("spec"), &g.Spec, &old.Spec)
			},
		},
		Table: resource.Table[*schedulingv1beta1.PodGroup]{
			Columns: []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()},
			Row: func(g *schedulingv1beta1.PodGroup, now time.Time) []any {
				return []any{g.Name, resource.Age(g.CreationTimestamp, now)}
			},
		},
	})
}

// The features that fields of pod groups belong to.
const (
	compositeGroups  = feature.CompositePodGroup
	groupClaims      = feature.DRAWorkloadResourceClaims
	groupTopology    = feature.TopologyAwareWorkloadScheduling
	groupPreemption  = feature.PodGroupPreemptionPolicy
	maxGroupPriority = int32(1000000000)
)

// dropPodGroupFields clears the fields of disabled features unless the old
// group uses them.
func dropPodGroupFields(features *feature.Set, s, old *schedulingv1beta1.PodGroupSpec) {
	if old.ParentCompositePodGroupName == nil && !features.Enabled(compositeGroups) {
		s.ParentCompositePodGroupName = nil
	}
	if old.SchedulingConstraints == nil && !features.Enabled(groupTopology) {
		s.SchedulingConstraints = nil
	}
	if len(old.ResourceClaims) == 0 && !features.Enabled(groupClaims) {
		s.ResourceClaims = nil
	}
	if old.PreemptionPolicy == nil && !features.Enabled(groupPreemption) {
		s.PreemptionPolicy = nil
	}
}

func validatePodGroup(op declarative.Operation, features *feature.Set, p *field.Path, s, old *schedulingv1beta1.PodGroupSpec) field.ErrorList {
	parent := declarative.Of(old, func(o *schedulingv1beta1.PodGroupSpec) *string { return o.ParentCompositePodGroupName })
	workload := declarative.Of(old, func(o *schedulingv1beta1.PodGroupSpec) *schedulingv1beta1.WorkloadReference { return o.WorkloadRef })
	errs := validateParent(op, p, s.ParentCompositePodGroupName, parent, declarative.If(features.Enabled(compositeGroups)))
	errs = append(errs, validateWorkloadRef(op, p.Child("workloadRef"), s.WorkloadRef, workload, declarative.Optional)...)
	if s.ParentCompositePodGroupName != nil && s.WorkloadRef == nil && old == nil {
		errs = append(errs, field.Required(p.Child("workloadRef"), "must be set when parentCompositePodGroupName is set"))
	}
	var before *schedulingv1beta1.PodGroupTemplate
	if old != nil {
		before = partsOfGroup(old)
	}
	return append(errs, validateGroupParts(op, features, p, partsOfGroup(s), before)...)
}

// partsOfGroup returns the fields of a group that templates have, too.
func partsOfGroup(s *schedulingv1beta1.PodGroupSpec) *schedulingv1beta1.PodGroupTemplate {
	return &schedulingv1beta1.PodGroupTemplate{
		SchedulingPolicy: s.SchedulingPolicy, SchedulingConstraints: s.SchedulingConstraints, ResourceClaims: s.ResourceClaims,
		DisruptionMode: s.DisruptionMode, PriorityClassName: s.PriorityClassName, Priority: s.Priority, PreemptionPolicy: s.PreemptionPolicy,
	}
}

func validatePodGroupStatus(_ *resource.RequestContext, g, old *schedulingv1beta1.PodGroup) field.ErrorList {
	p := field.NewPath("status")
	errs := metav1validation.ValidateConditions(g.Status.Conditions, p.Child("conditions"))
	claims := p.Child("resourceClaimStatuses")
	errs = append(errs, declarative.List(declarative.Update(), claims, g.Status.ResourceClaimStatuses, old.Status.ResourceClaimStatuses,
		func(s *schedulingv1beta1.PodGroupResourceClaimStatus) string { return s.Name }, schedulingv1beta1.MaxPodGroupResourceClaims,
		func(op declarative.Operation, p *field.Path, s, old *schedulingv1beta1.PodGroupResourceClaimStatus) field.ErrorList {
			before := declarative.Of(old, func(o *schedulingv1beta1.PodGroupResourceClaimStatus) *string { return o.ResourceClaimName })
			return declarative.Pointer(op, p.Child("resourceClaimName"), s.ResourceClaimName, before, declarative.Optional, validate.LongName)
		})...)
	names := map[string]bool{}
	for i := range g.Spec.ResourceClaims {
		names[g.Spec.ResourceClaims[i].Name] = true
	}
	for i := range g.Status.ResourceClaimStatuses {
		if name := g.Status.ResourceClaimStatuses[i].Name; !names[name] {
			errs = append(errs, validators.Problems(claims.Index(i).Child("name"), name, []string{"must match the name of an entry in `spec.resourceClaims`"})...)
		}
	}
	return errs
}
