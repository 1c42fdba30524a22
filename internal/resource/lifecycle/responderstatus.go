package lifecycle

import (
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/declarative"
)

// The tolerated difference of clocks, and the maximum duration of a responder.
const (
	clockSkew     = 30 * time.Second
	longestFuture = 10 * 365 * 24 * time.Hour
)

// validateResponders allows only the active responder to report its status.
func validateResponders(now time.Time, p *field.Path, s, old *lifecyclev1alpha1.EvictionStatus) field.ErrorList {
	list := s.Responders
	if len(list) != len(s.TargetResponders) {
		return field.ErrorList{field.Invalid(p, list, "must be the same length as status.targetResponders and contain the same keys in the same order")}
	}
	for i := range list {
		if list[i].Name != s.TargetResponders[i].Name {
			return field.ErrorList{field.Invalid(p, list, "must contain the same keys in the same order as status.targetResponders")}
		}
	}
	errs := declarative.List(declarative.Update(), p, list, old.Responders, func(r *lifecyclev1alpha1.ResponderStatus) string { return r.Name }, maxResponders, validateReport)
	if len(list) > maxResponders || repeated(s.TargetResponders) {
		return errs
	}
	for i := range list {
		var before lifecyclev1alpha1.ResponderStatus
		is := s.TargetResponders[i].State
		if i < len(old.Responders) {
			before = old.Responders[i]
			if is != active && !equality.Semantic.DeepEqual(list[i], before) {
				errs = append(errs, field.Invalid(p.Index(i), list[i], validation.FieldImmutableErrorMsg))
				continue
			}
		}
		errs = append(errs, validateTimes(now, p.Index(i), &list[i], &before, is == active)...)
	}
	return errs
}

func validateReport(op declarative.Operation, p *field.Path, r, old *lifecyclev1alpha1.ResponderStatus) field.ErrorList {
	if old == nil {
		op, old = declarative.Create(), &lifecyclev1alpha1.ResponderStatus{}
	}
	errs := declarative.Value(op, p.Child("name"), &r.Name, &old.Name, declarative.Required, validate.PrefixedLabelKey)
	errs = append(errs, declarative.Only(op, p.Child("startTime"), r.StartTime, old.StartTime, validate.NoModify, validate.NoUnset)...)
	errs = append(errs, declarative.Only(op, p.Child("completionTime"), r.CompletionTime, old.CompletionTime, validate.NoModify, validate.NoUnset)...)
	return append(errs, declarative.Pointer(op, p.Child("message"), r.Message, old.Message, declarative.Optional, declarative.MaxLength(maxMessage))...)
}

func validateTimes(now time.Time, p *field.Path, r, old *lifecyclev1alpha1.ResponderStatus, isActive bool) field.ErrorList {
	const present = "must be set to the present time"
	start := p.Child("startTime")
	var errs field.ErrorList
	wrong := func(name string, value *metav1.Time, problem string) {
		errs = append(errs, field.Invalid(p.Child(name), value, problem))
	}
	switch {
	case old.StartTime != nil:
	case r.StartTime == nil && isActive:
		errs = append(errs, field.Required(start, "is required for an active responder"))
	case r.StartTime != nil && !near(r.StartTime.Time, now):
		wrong("startTime", r.StartTime, present)
	}

	// early returns what is wrong with a time if it is before the start.
	early := func(t *metav1.Time) string {
		switch {
		case r.StartTime == nil:
			return "cannot be set before " + start.String() + " is set"
		case t.Before(r.StartTime):
			return "must occur after " + start.String()
		}
		return ""
	}
	if old.HeartbeatTime != nil && r.HeartbeatTime == nil {
		errs = append(errs, field.Required(p.Child("heartbeatTime"), "is required once set"))
	}
	if t := r.HeartbeatTime; t != nil && !t.Equal(old.HeartbeatTime) {
		switch problem := early(t); {
		case r.StartTime != nil && t.Before(old.HeartbeatTime):
			wrong("heartbeatTime", t, "cannot be decreased")
		case problem != "":
			wrong("heartbeatTime", t, problem)
		case !near(t.Time, now):
			wrong("heartbeatTime", t, present)
		}
	}
	if t := r.ExpectedCompletionTime; t != nil && !t.Equal(old.ExpectedCompletionTime) {
		switch problem := early(t); {
		case problem != "":
			wrong("expectedCompletionTime", t, problem)
		case t.Time.Before(now.Add(-clockSkew)):
			wrong("expectedCompletionTime", t, "cannot be set to the past time")
		case t.After(now.Add(longestFuture)):
			wrong("expectedCompletionTime", t, "must complete within 10 years")
		}
	}
	if t := r.CompletionTime; t != nil && old.CompletionTime == nil {
		switch problem := early(t); {
		case problem != "":
			wrong("completionTime", t, problem)
		case !near(t.Time, now):
			wrong("completionTime", t, present)
		}
	}
	return errs
}

func near(a, b time.Time) bool {
	return a.After(b.Add(-clockSkew)) && a.Before(b.Add(clockSkew))
}
