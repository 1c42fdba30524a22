// Package utilization scores how much of a capacity is used by a line through
// points that the configuration draws.
package utilization

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

const (
	maxScore       = 10
	maxUtilization = 100
)

// LeastFirst is the shape that prefers what is used least.
func LeastFirst() []kubescheduler.UtilizationShapePoint {
	return []kubescheduler.UtilizationShapePoint{{Utilization: 0, Score: maxScore}, {Utilization: maxUtilization, Score: 0}}
}

// Validate returns everything that is wrong with a shape. Its points ascend by
// utilization.
func Validate(path *field.Path, shape []kubescheduler.UtilizationShapePoint) (errs field.ErrorList) {
	if len(shape) == 0 {
		return field.ErrorList{field.Required(path, "at least one point must be specified")}
	}
	for i, point := range shape {
		path := path.Index(i)
		if point.Utilization < 0 || point.Utilization > maxUtilization {
			errs = append(errs, field.Invalid(path.Child("utilization"), point.Utilization, "not in valid range [0, 100]"))
		}
		if i > 0 && point.Utilization <= shape[i-1].Utilization {
			errs = append(errs, field.Invalid(path.Child("utilization"), point.Utilization, "utilization values must be sorted in increasing order"))
		}
		if point.Score < 0 || point.Score > maxScore {
			errs = append(errs, field.Invalid(path.Child("score"), point.Score, "not in valid range [0, 10]"))
		}
	}
	return errs
}

// Line returns the function that scores by the line through the points of a
// valid shape, from MinNodeScore to MaxNodeScore. It is level before the first
// point and after the last. A resource whose use exceeds its capacity counts as
// fully used.
func Line(shape []kubescheduler.UtilizationShapePoint) func(used, capacity int64) int64 {
	score := func(i int) int64 { return int64(shape[i].Score) * framework.MaxNodeScore / maxScore }
	return func(used, capacity int64) int64 {
		utilization := int64(maxUtilization)
		if used <= capacity && capacity > 0 {
			utilization = amount.Times(used, maxUtilization) / capacity
		}
		for i := range shape {
			if right := int64(shape[i].Utilization); utilization <= right {
				if i == 0 {
					return score(0)
				}
				left := int64(shape[i-1].Utilization)
				return score(i-1) + (score(i)-score(i-1))*(utilization-left)/(right-left)
			}
		}
		return score(len(shape) - 1)
	}
}
