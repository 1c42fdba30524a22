package autoscaling

import (
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/resourcelist"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Limits of scaling rules, in seconds.
const (
	maxWindow = 3600
	maxPeriod = 1800
)

// validateAutoscaler checks a spec. old is the spec that it replaces, or nil.
func validateAutoscaler(r *resource.RequestContext, p *field.Path, s, old *autoscalingv2.HorizontalPodAutoscalerSpec) field.ErrorList {
	var errs field.ErrorList
	if s.MinReplicas != nil && s.MaxReplicas < *s.MinReplicas {
		errs = append(errs, field.Invalid(p.Child("maxReplicas"), s.MaxReplicas, "must be greater than or equal to `minReplicas`"))
	}
	errs = append(errs, validateReference(p.Child("scaleTargetRef"), &s.ScaleTargetRef, targetVersion(s, old))...)
	errs = append(errs, validateMetrics(p.Child("metrics"), s, describedVersion(old))...)
	if b := s.Behavior; b != nil {
		errs = append(errs, validateScaling(p.Child("behavior", "scaleUp"), b.ScaleUp)...)
		errs = append(errs, validateScaling(p.Child("behavior", "scaleDown"), b.ScaleDown)...)
	}
	return append(errs, validateReplicas(p, s, minReplicasLimit(r, old))...)
}

// validateReplicas checks the numbers of replicas alone, by the tags of the type.
// Their errors come last. fewest is the minimum of minReplicas.
func validateReplicas(p *field.Path, s *autoscalingv2.HorizontalPodAutoscalerSpec, fewest int32) field.ErrorList {
	var errs field.ErrorList
	if s.MinReplicas != nil && *s.MinReplicas < fewest {
		errs = append(errs, field.Invalid(p.Child("minReplicas"), *s.MinReplicas, fmt.Sprintf("must be greater than or equal to %d", fewest)))
	}
	switch {
	case s.MaxReplicas == 0:
		errs = append(errs, field.Required(p.Child("maxReplicas"), ""))
	case s.MaxReplicas < 0:
		errs = append(errs, field.Invalid(p.Child("maxReplicas"), s.MaxReplicas, "must be greater than or equal to 1"))
	}
	return errs
}

// minReplicasLimit returns the minimum of minReplicas (KEP-2021). It stays 0
// for an autoscaler that was stored with minReplicas 0.
func minReplicasLimit(r *resource.RequestContext, old *autoscalingv2.HorizontalPodAutoscalerSpec) int32 {
	if r.Features.Enabled(feature.HPAScaleToZero) || old != nil && old.MinReplicas != nil && *old.MinReplicas == 0 {
		return 0
	}
	return 1
}

func validateReference(p *field.Path, r *autoscalingv2.CrossVersionObjectReference, versions versionRule) field.ErrorList {
	errs := validators.RequiredPathSegment(p.Child("kind"), r.Kind)
	errs = append(errs, validators.RequiredPathSegment(p.Child("name"), r.Name)...)
	if problem := versions.problem(r.APIVersion); problem != "" {
		errs = append(errs, field.Invalid(p.Child("apiVersion"), r.APIVersion, problem))
	}
	return errs
}

func validateMetrics(p *field.Path, s *autoscalingv2.HorizontalPodAutoscalerSpec, described versionRule) field.ErrorList {
	var errs field.ErrorList
	fromOutside := false
	for i := range s.Metrics {
		errs = append(errs, validateMetric(p.Index(i), &s.Metrics[i], described)...)
		fromOutside = fromOutside || s.Metrics[i].Type == autoscalingv2.ObjectMetricSourceType || s.Metrics[i].Type == autoscalingv2.ExternalMetricSourceType
	}
	if s.MinReplicas != nil && *s.MinReplicas == 0 && !fromOutside {
		errs = append(errs, field.Forbidden(p, "must specify at least one Object or External metric to support scaling to zero replicas"))
	}
	return errs
}

func validateMetric(p *field.Path, m *autoscalingv2.MetricSpec, described versionRule) field.ErrorList {
	var errs field.ErrorList
	if m.Type == "" {
		errs = append(errs, field.Required(p.Child("type"), "must specify a metric source type"))
	}
	sources := []struct {
		kind     autoscalingv2.MetricSourceType
		name     string
		present  bool
		validate func(*field.Path) field.ErrorList
	}{
		{autoscalingv2.ObjectMetricSourceType, "object", m.Object != nil, func(p *field.Path) field.ErrorList { return validateObject(p, m.Object, described) }},
		{autoscalingv2.ExternalMetricSourceType, "external", m.External != nil, func(p *field.Path) field.ErrorList { return validateExternal(p, m.External) }},
		{autoscalingv2.PodsMetricSourceType, "pods", m.Pods != nil, func(p *field.Path) field.ErrorList { return validatePods(p, m.Pods) }},
		{autoscalingv2.ResourceMetricSourceType, "resource", m.Resource != nil, func(p *field.Path) field.ErrorList {
			errs := validateResourceName(p, string(m.Resource.Name))
			return append(errs, validateUsage(p.Child("target"), &m.Resource.Target)...)
		}},
		{autoscalingv2.ContainerResourceMetricSourceType, "containerResource", m.ContainerResource != nil, func(p *field.Path) field.ErrorList {
			return validateContainerResource(p, m.ContainerResource)
		}},
	}
	present, known := 0, false
	for _, source := range sources {
		if source.present {
			if present++; present == 1 {
				errs = append(errs, source.validate(p.Child(source.name))...)
			}
		}
		if source.kind == m.Type {
			known = true
			if !source.present {
				errs = append(errs, field.Required(p.Child(source.name), "must populate information for the given metric source"))
			}
		}
	}
	if !known {
		unknown := field.NotSupported(p.Child("type"), m.Type, []autoscalingv2.MetricSourceType{
			autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType,
			autoscalingv2.ObjectMetricSourceType, autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType,
		})
		// Upstream reports two errors: the type is unknown, and it has no
		// source.
		errs = append(errs, unknown, unknown)
	}
	if present > 1 {
		for _, source := range sources {
			if source.present && source.kind != m.Type {
				errs = append(errs, field.Forbidden(p.Child(source.name), "must populate the given metric source only"))
			}
		}
	}
	return errs
}

func validateObject(p *field.Path, o *autoscalingv2.ObjectMetricSource, described versionRule) field.ErrorList {
	errs := validateReference(p.Child("describedObject"), &o.DescribedObject, described)
	errs = append(errs, validateMetricName(p.Child("metric"), &o.Metric)...)
	errs = append(errs, validateMetricTarget(p.Child("target"), &o.Target)...)
	if o.Target.Value == nil && o.Target.AverageValue == nil {
		errs = append(errs, field.Required(p.Child("target", "averageValue"), "must set either a target value or averageValue"))
	}
	return errs
}

func validateExternal(p *field.Path, e *autoscalingv2.ExternalMetricSource) field.ErrorList {
	errs := validateMetricName(p.Child("metric"), &e.Metric)
	target := p.Child("target")
	errs = append(errs, validateMetricTarget(target, &e.Target)...)
	switch {
	case e.Target.Value != nil && e.Target.AverageValue != nil:
		errs = append(errs, field.Forbidden(target.Child("value"), "may not set both a target value for metric and a per-pod target"))
	case e.Target.Value == nil && e.Target.AverageValue == nil:
		errs = append(errs, field.Required(target.Child("averageValue"), "must set either a target value for metric or a per-pod target"))
	}
	return errs
}

func validatePods(p *field.Path, s *autoscalingv2.PodsMetricSource) field.ErrorList {
	errs := validateMetricName(p.Child("metric"), &s.Metric)
	errs = append(errs, validateMetricTarget(p.Child("target"), &s.Target)...)
	if s.Target.AverageValue == nil {
		errs = append(errs, field.Required(p.Child("target", "averageValue"), "must specify a positive target averageValue"))
	}
	return errs
}

func validateResourceName(p *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(p.Child("name"), "must specify a resource name")}
	}
	return nil
}

func validateContainerResource(p *field.Path, c *autoscalingv2.ContainerResourceMetricSource) field.ErrorList {
	errs := validateResourceName(p, string(c.Name))
	if c.Name != "" {
		errs = append(errs, resourcelist.ValidateContainerName(c.Name, p.Child("name"))...)
	}
	if c.Container == "" {
		errs = append(errs, field.Required(p.Child("container"), "must specify a container"))
	} else {
		errs = append(errs, validators.Label(p.Child("container"), c.Container)...)
	}
	return append(errs, validateUsage(p.Child("target"), &c.Target)...)
}

func validateUsage(p *field.Path, t *autoscalingv2.MetricTarget) field.ErrorList {
	errs := validateMetricTarget(p, t)
	switch {
	case t.AverageUtilization != nil && t.AverageValue != nil:
		errs = append(errs, field.Forbidden(p.Child("averageValue"), "may not set both a target raw value and a target utilization"))
	case t.AverageUtilization == nil && t.AverageValue == nil:
		errs = append(errs, field.Required(p.Child("averageUtilization"), "must set either a target raw value or a target utilization"))
	}
	return errs
}

func validateMetricName(p *field.Path, m *autoscalingv2.MetricIdentifier) field.ErrorList {
	if m.Name == "" {
		return field.ErrorList{field.Required(p.Child("name"), "must specify a metric name")}
	}
	return validators.PathSegment(p.Child("name"), m.Name)
}

func validateMetricTarget(p *field.Path, t *autoscalingv2.MetricTarget) field.ErrorList {
	var errs field.ErrorList
	if t.Type == "" {
		errs = append(errs, field.Required(p.Child("type"), "must specify a metric target type"))
	}
	switch t.Type {
	case autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType:
	default:
		errs = append(errs, field.Invalid(p.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"))
	}
	errs = append(errs, validatePositive(p.Child("value"), t.Value)...)
	errs = append(errs, validatePositive(p.Child("averageValue"), t.AverageValue)...)
	if t.AverageUtilization != nil && *t.AverageUtilization < 1 {
		errs = append(errs, field.Invalid(p.Child("averageUtilization"), t.AverageUtilization, "must be greater than 0"))
	}
	return errs
}

func validatePositive(p *field.Path, q *apiresource.Quantity) field.ErrorList {
	if q != nil && q.Sign() != 1 {
		return field.ErrorList{field.Invalid(p, q, "must be positive")}
	}
	return nil
}

func validateScaling(p *field.Path, r *autoscalingv2.HPAScalingRules) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	window := p.Child("stabilizationWindowSeconds")
	if w := r.StabilizationWindowSeconds; w != nil && *w < 0 {
		errs = append(errs, field.Invalid(window, *w, "must be greater than or equal to zero"))
	} else if w != nil && *w > maxWindow {
		errs = append(errs, field.Invalid(window, *w, "must be less than or equal to 3600"))
	}
	if r.SelectPolicy != nil {
		errs = append(errs, validators.OneOf(p.Child("selectPolicy"), *r.SelectPolicy,
			autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect)...)
	}
	policies := p.Child("policies")
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(policies, "must specify at least one Policy"))
	}
	for i, policy := range r.Policies {
		at := policies.Index(i)
		errs = append(errs, validators.OneOf(at.Child("type"), policy.Type, autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy)...)
		if policy.Value <= 0 {
			errs = append(errs, field.Invalid(at.Child("value"), policy.Value, "must be greater than zero"))
		}
		if policy.PeriodSeconds <= 0 {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), policy.PeriodSeconds, "must be greater than zero"))
		} else if policy.PeriodSeconds > maxPeriod {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), policy.PeriodSeconds, "must be less than or equal to 1800"))
		}
	}
	if r.Tolerance != nil && r.Tolerance.Sign() < 0 {
		errs = append(errs, field.Invalid(p.Child("tolerance"), r.Tolerance.String(), "must be greater than or equal to 0"))
	}
	return errs
}

func validateStatus(p *field.Path, s *autoscalingv2.HorizontalPodAutoscalerStatus) field.ErrorList {
	var errs field.ErrorList
	for i := range s.Conditions {
		at := p.Child("conditions").Index(i).Child("observedGeneration")
		errs = append(errs, validators.NonnegativePointer(at, s.Conditions[i].ObservedGeneration)...)
	}
	errs = append(errs, validators.Nonnegative(p.Child("currentReplicas"), s.CurrentReplicas)...)
	return append(errs, validators.Nonnegative(p.Child("desiredReplicas"), s.DesiredReplicas)...)
}
