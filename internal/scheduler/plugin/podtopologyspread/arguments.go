package podtopologyspread

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubescheduler "k8s.io/kube-scheduler/config/v1"
)

// setDefaults makes systemDefaults the constraints of pods that have none of
// their own.
func setDefaults(a *kubescheduler.PodTopologySpreadArgs) {
	if a.DefaultingType == "" {
		a.DefaultingType = kubescheduler.SystemDefaulting
	}
}

func systemDefaults() []v1.TopologySpreadConstraint {
	return []v1.TopologySpreadConstraint{
		{MaxSkew: 3, TopologyKey: v1.LabelHostname, WhenUnsatisfiable: v1.ScheduleAnyway},
		{MaxSkew: 5, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.ScheduleAnyway},
	}
}

func validate(path *field.Path, a *kubescheduler.PodTopologySpreadArgs) field.ErrorList {
	var errs field.ErrorList
	typePath := path.Child("defaultingType")
	switch a.DefaultingType {
	case kubescheduler.ListDefaulting:
	case kubescheduler.SystemDefaulting:
		if len(a.DefaultConstraints) > 0 {
			errs = append(errs, field.Invalid(typePath, a.DefaultingType, "when .defaultConstraints are not empty"))
		}
	default:
		errs = append(errs, field.NotSupported(typePath, a.DefaultingType,
			[]kubescheduler.PodTopologySpreadConstraintsDefaulting{kubescheduler.SystemDefaulting, kubescheduler.ListDefaulting}))
	}
	seen := map[string]bool{}
	for i := range a.DefaultConstraints {
		c, path := &a.DefaultConstraints[i], path.Child("defaultConstraints").Index(i)
		errs = append(errs, validateConstraint(path, c)...)
		pair := fmt.Sprintf("{%v, %v}", c.TopologyKey, c.WhenUnsatisfiable)
		if seen[pair] {
			errs = append(errs, field.Duplicate(path, pair))
		}
		seen[pair] = true
	}
	return errs
}

func validateConstraint(path *field.Path, c *v1.TopologySpreadConstraint) (errs field.ErrorList) {
	if c.MaxSkew <= 0 {
		errs = append(errs, field.Invalid(path.Child("maxSkew"), c.MaxSkew, "not in valid range (0, inf)"))
	}
	if c.TopologyKey == "" {
		errs = append(errs, field.Required(path.Child("topologyKey"), "can not be empty"))
	} else {
		errs = append(errs, metav1validation.ValidateLabelName(c.TopologyKey, path.Child("topologyKey"))...)
	}
	switch c.WhenUnsatisfiable {
	case v1.DoNotSchedule, v1.ScheduleAnyway:
	case "":
		errs = append(errs, field.Required(path.Child("whenUnsatisfiable"), "can not be empty"))
	default:
		errs = append(errs, field.NotSupported(path.Child("whenUnsatisfiable"), c.WhenUnsatisfiable, []v1.UnsatisfiableConstraintAction{v1.DoNotSchedule, v1.ScheduleAnyway}))
	}
	if c.LabelSelector != nil {
		errs = append(errs, field.Forbidden(path.Child("labelSelector"), "constraint must not define a selector, as they deduced for each pod"))
	}
	return errs
}
