package autoscaling

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// versionRule says what the apiVersion of a reference may be.
type versionRule int

const (
	// groupRequired: a group and a version.
	groupRequired versionRule = iota
	// groupOptional: a version alone, or none, stands for the core group.
	groupOptional
	// unchecked: anything, as it was before.
	unchecked
)

// problem is what is wrong with an apiVersion, or "".
func (r versionRule) problem(apiVersion string) string {
	if r == unchecked {
		return ""
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	switch {
	case err != nil:
		return err.Error()
	case gv.Group == "" && r == groupRequired:
		return "apiVersion must specify API group"
	}
	return ""
}

// targetVersion is the rule for what is scaled. Only ReplicationControllers
// have a scale subresource and no group. A reference that stays may stay as
// wrong as it is.
func targetVersion(s, old *autoscalingv2.HorizontalPodAutoscalerSpec) versionRule {
	target := &s.ScaleTargetRef
	switch {
	case old != nil && old.ScaleTargetRef.APIVersion == target.APIVersion && old.ScaleTargetRef.Kind == target.Kind:
		return unchecked
	case target.Kind == "ReplicationController":
		return groupOptional
	}
	return groupRequired
}

// describedVersion is the rule for the objects that metrics describe. Once one
// of them was wrong all may be.
func describedVersion(old *autoscalingv2.HorizontalPodAutoscalerSpec) versionRule {
	if old == nil {
		return groupOptional
	}
	for i := range old.Metrics {
		m := &old.Metrics[i]
		if m.Type == autoscalingv2.ObjectMetricSourceType && m.Object != nil && groupOptional.problem(m.Object.DescribedObject.APIVersion) != "" {
			return unchecked
		}
	}
	return groupOptional
}
