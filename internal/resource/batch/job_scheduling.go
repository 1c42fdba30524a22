package batch

import (
	batchv1 "k8s.io/api/batch/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource/tag"
)

// jobFields are the parts of a job that belong to features which are off by
// default.
var jobFields = []feature.Field[batchv1.JobSpec]{{
	Gate:  "WorkloadWithJob",
	Used:  func(s *batchv1.JobSpec) bool { return s.Scheduling != nil },
	Clear: func(s *batchv1.JobSpec) { s.Scheduling = nil },
}}

// validateScheduling checks how a job's pods are scheduled together. Only the
// size of a gang may change. old is nil for what is new.
func validateScheduling(op tag.Operation, p *field.Path, s, old *batchv1.JobSchedulingConfiguration) field.ErrorList {
	if errs := tag.Only(op, p, s, old, validate.NoSet, validate.NoUnset); len(errs) > 0 || s == nil {
		return errs
	}
	before := old
	if before == nil {
		op, before = tag.Create(), &batchv1.JobSchedulingConfiguration{}
	}
	errs := validatePolicy(op, p.Child("schedulingPolicy"), s.SchedulingPolicy, before.SchedulingPolicy)
	constraints, mode, claims := p.Child("schedulingConstraints"), p.Child("disruptionMode"), p.Child("resourceClaims")
	errs = append(errs, tag.Immutable(op, constraints, s.SchedulingConstraints, before.SchedulingConstraints)...)
	errs = append(errs, tag.Immutable(op, mode, s.DisruptionMode, before.DisruptionMode)...)
	errs = append(errs, tag.Immutable(op, claims, &s.ResourceClaims, &before.ResourceClaims)...)
	if old != nil {
		return errs
	}
	if c := s.SchedulingConstraints; c != nil {
		at := constraints.Child("topology")
		if n := len(c.Topology); n > 1 {
			errs = append(errs, field.TooMany(at, n, 1))
		} else if n == 1 {
			errs = append(errs, tag.Value(op, at.Index(0).Child("key"), &c.Topology[0].Key, nil, tag.Required, validate.LabelKey)...)
		}
	}
	if s.DisruptionMode != nil {
		errs = append(errs, tag.Union(op, mode, s.DisruptionMode, nil, []string{"single", "all"},
			func(m *schedulingv1alpha3.WorkloadPodGroupDisruptionMode) bool { return m.Single != nil },
			func(m *schedulingv1alpha3.WorkloadPodGroupDisruptionMode) bool { return m.All != nil })...)
	}
	return append(errs, tag.List(op, claims, s.ResourceClaims, nil,
		func(c *schedulingv1alpha3.WorkloadPodGroupResourceClaim) string { return c.Name }, schedulingv1beta1.MaxPodGroupResourceClaims, validateSharedClaim)...)
}

func validatePolicy(op tag.Operation, p *field.Path, s, old *schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy) field.ErrorList {
	if errs := tag.Only(op, p, s, old, validate.NoSet, validate.NoUnset); len(errs) > 0 || s == nil {
		return errs
	}
	before := old
	if before == nil {
		before = &schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy{}
	}
	errs := tag.Union(op, p, s, old, []string{"basic", "gang"},
		func(m *schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy) bool { return m.Basic != nil },
		func(m *schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy) bool { return m.Gang != nil })
	errs = append(errs, tag.Only(op, p.Child("basic"), s.Basic, before.Basic, validate.NoSet, validate.NoUnset)...)
	gang := p.Child("gang")
	errs = append(errs, tag.Only(op, gang, s.Gang, before.Gang, validate.NoSet, validate.NoUnset)...)
	if s.Gang == nil {
		return errs
	}
	return append(errs, tag.Pointer(op, gang.Child("minCount"), s.Gang.MinCount, nil, tag.Optional, tag.Min[int32](1))...)
}

func validateSharedClaim(op tag.Operation, p *field.Path, c, _ *schedulingv1alpha3.WorkloadPodGroupResourceClaim) field.ErrorList {
	errs := tag.Union(op, p, c, nil, []string{"resourceClaimName", "resourceClaimTemplateName"},
		func(c *schedulingv1alpha3.WorkloadPodGroupResourceClaim) bool { return c.ResourceClaimName != nil },
		func(c *schedulingv1alpha3.WorkloadPodGroupResourceClaim) bool {
			return c.ResourceClaimTemplateName != nil
		})
	errs = append(errs, tag.Value(op, p.Child("name"), &c.Name, nil, tag.Required, validate.ShortName)...)
	errs = append(errs, tag.Pointer(op, p.Child("resourceClaimName"), c.ResourceClaimName, nil, tag.Optional, validate.LongName)...)
	return append(errs, tag.Pointer(op, p.Child("resourceClaimTemplateName"), c.ResourceClaimTemplateName, nil, tag.Optional, validate.LongName)...)
}
