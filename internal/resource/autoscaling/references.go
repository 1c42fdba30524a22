package autoscaling

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// versionRule is the rule for the apiVersion of a reference.
type versionRule int

const (
	// groupRequired requires a group and a version.
	groupRequired versionRule = iota
	// groupOptional also allows a version alone, or nothing, for the core
	// group.
	groupOptional
	// unchecked allows anything, because the stored object has an invalid
	// value.
	unchecked
)

// problem returns what is wrong with an apiVersion, or "".
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

// targetVersion returns the rule for the scale target. ReplicationControllers
// are the only scalable kind of the core group. An unchanged reference may
// stay invalid.
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

// describedVersion returns the rule for the objects that metrics describe. If
// one of the old references is invalid, all new ones may be.
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
