package batch

import (
	batchv1 "k8s.io/api/batch/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource/declarative"
)

// jobFields are the fields of a job that belong to features which are off by
// default.
func jobFields() []feature.Field[batchv1.JobSpec] {
	return []feature.Field[batchv1.JobSpec]{{
		Gate:  feature.WorkloadWithJob,
		Used:  func(s *batchv1.JobSpec) bool { return s.Scheduling != nil },
		Clear: func(s *batchv1.JobSpec) { s.Scheduling = nil },
	}}
}

// validateScheduling checks how the pods of a job are scheduled together. Only
// the size of a gang can change. old is nil on create.
func validateScheduling(op declarative.Operation, p *field.Path, s, old *batchv1.JobSchedulingConfiguration) field.ErrorList {
	if errs := declarative.Only(op, p, s, old, validate.NoSet, validate.NoUnset); len(errs) > 0 || s == nil {
		return errs
	}
	before := old
	if before == nil {
		op, before = declarative.Create(), &batchv1.JobSchedulingConfiguration{}
	}
	errs := validatePolicy(op, p.Child("schedulingPolicy"), s.SchedulingPolicy, before.SchedulingPolicy)
	constraints, mode, claims := p.Child("schedulingConstraints"), p.Child("disruptionMode"), p.Child("resourceClaims")
	errs = append(errs, declarative.Immutable(op, constraints, s.SchedulingConstraints, before.SchedulingConstraints)...)
	errs = append(errs, declarative.Immutable(op, mode, s.DisruptionMode, before.DisruptionMode)...)
	errs = append(errs, declarative.Immutable(op, claims, &s.ResourceClaims, &before.ResourceClaims)...)
	if old != nil {
		return errs
	}
	if c := s.SchedulingConstraints; c != nil {
		at := constraints.Child("topology")
		if n := len(c.Topology); n > 1 {
			errs = append(errs, field.TooMany(at, n, 1))
		} else if n == 1 {
			errs = append(errs, declarative.Value(op, at.Index(0).Child("key"), &c.Topology[0].Key, nil, declarative.Required, validate.LabelKey)...)
		}
	}
	if s.DisruptionMode != nil {
		errs = append(errs, declarative.Union(op, mode, s.DisruptionMode, nil, []string{"single", "all"},
			func(m *schedulingv1alpha3.WorkloadPodGroupDisruptionMode) bool { return m.Single != nil },
			func(m *schedulingv1alpha3.WorkloadPodGroupDisruptionMode) bool { return m.All != nil })...)
	}
	return append(errs, declarative.List(op, claims, s.ResourceClaims, nil,
		func(c *schedulingv1alpha3.WorkloadPodGroupResourceClaim) string { return c.Name }, schedulingv1beta1.MaxPodGroupResourceClaims, validateSharedClaim)...)
}

func validatePolicy(op declarative.Operation, p *field.Path, s, old *schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy) field.ErrorList {
	if errs := declarative.Only(op, p, s, old, validate.NoSet, validate.NoUnset); len(errs) > 0 || s == nil {
		return errs
	}
	before := old
	if before == nil {
		before = &schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy{}
	}
	errs := declarative.Union(op, p, s, old, []string{"basic", "gang"},
		func(m *schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy) bool { return m.Basic != nil },
		func(m *schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy) bool { return m.Gang != nil })
	errs = append(errs, declarative.Only(op, p.Child("basic"), s.Basic, before.Basic, validate.NoSet, validate.NoUnset)...)
	gang := p.Child("gang")
	errs = append(errs, declarative.Only(op, gang, s.Gang, before.Gang, validate.NoSet, validate.NoUnset)...)
	if s.Gang == nil {
		return errs
	}
	return append(errs, declarative.Pointer(op, gang.Child("minCount"), s.Gang.MinCount, nil, declarative.Optional, declarative.Min[int32](1))...)
}

func validateSharedClaim(op declarative.Operation, p *field.Path, c, _ *schedulingv1alpha3.WorkloadPodGroupResourceClaim) field.ErrorList {
	errs := declarative.Union(op, p, c, nil, []string{"resourceClaimName", "resourceClaimTemplateName"},
		func(c *schedulingv1alpha3.WorkloadPodGroupResourceClaim) bool { return c.ResourceClaimName != nil },
		func(c *schedulingv1alpha3.WorkloadPodGroupResourceClaim) bool {
			return c.ResourceClaimTemplateName != nil
		})
	errs = append(errs, declarative.Value(op, p.Child("name"), &c.Name, nil, declarative.Required, validate.ShortName)...)
	errs = append(errs, declarative.Pointer(op, p.Child("resourceClaimName"), c.ResourceClaimName, nil, declarative.Optional, validate.LongName)...)
	return append(errs, declarative.Pointer(op, p.Child("resourceClaimTemplateName"), c.ResourceClaimTemplateName, nil, declarative.Optional, validate.LongName)...)
}
