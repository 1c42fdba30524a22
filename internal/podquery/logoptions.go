package podquery

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateLogOptions returns the faults of the options of a pod's log, in upstream's words.
// Only with split may they select one of the streams (KEP-3288).
func ValidateLogOptions(o *v1.PodLogOptions, split bool) field.ErrorList {
	var errs field.ErrorList
	if o.TailLines != nil && *o.TailLines < 0 {
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), *o.TailLines, "must be greater than or equal to 0").WithOrigin("minimum"))
	}
	if o.LimitBytes != nil && *o.LimitBytes < 1 {
		errs = append(errs, field.Invalid(field.NewPath("limitBytes"), *o.LimitBytes, "must be greater than 0"))
	}
	switch {
	case o.SinceSeconds != nil && o.SinceTime != nil:
		errs = append(errs, field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
	case o.SinceSeconds != nil && *o.SinceSeconds < 1:
		errs = append(errs, field.Invalid(field.NewPath("sinceSeconds"), *o.SinceSeconds, "must be greater than 0"))
	}
	if o.Stream == nil {
		return errs
	}
	if !split {
		return append(errs, field.Forbidden(field.NewPath("stream"), "may not be specified"))
	}
	switch *o.Stream {
	case v1.LogStreamAll:
	case v1.LogStreamStdout, v1.LogStreamStderr:
		if o.TailLines != nil {
			errs = append(errs, field.Forbidden(field.NewPath(""), "`tailLines` and specific `stream` are mutually exclusive for now"))
		}
	default:
		errs = append(errs, field.NotSupported(field.NewPath("stream"), *o.Stream, []string{v1.LogStreamAll, v1.LogStreamStdout, v1.LogStreamStderr}))
	}
	return errs
}
