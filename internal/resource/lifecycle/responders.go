package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/declarative"
)

// heartbeatDeadline is how long an active responder can go without a heartbeat
// before it can be interrupted.
const heartbeatDeadline = 20 * time.Minute

type state = lifecyclev1alpha1.ResponderStateType

// The states of a responder. The last three are final.
const (
	inactive    = lifecyclev1alpha1.ResponderStateInactive
	active      = lifecyclev1alpha1.ResponderStateActive
	interrupted = lifecyclev1alpha1.ResponderStateInterrupted
	canceled    = lifecyclev1alpha1.ResponderStateCanceled
	completed   = lifecyclev1alpha1.ResponderStateCompleted
)

// validateTargetResponders checks the state changes of the responders:
//
//	Inactive ──► Active ──► Interrupted, Canceled or Completed
//
// They are active one after the other in the order of the list, which is
// immutable once it is set. None becomes active after the eviction has ended.
func validateTargetResponders(now time.Time, p *field.Path, s, old *lifecyclev1alpha1.EvictionStatus, over bool) field.ErrorList {
	list, before := s.TargetResponders, old.TargetResponders
	if len(before) > 0 && len(list) != len(before) {
		return field.ErrorList{field.Invalid(p, list, "must preserve the same length and the same keys in the same order")}
	}
	for i := range before {
		if before[i].Name != list[i].Name {
			return field.ErrorList{field.Invalid(p, list, "must preserve the same keys in the same order")}
		}
	}
	errs := declarative.List(declarative.Update(), p, list, before, func(r *lifecyclev1alpha1.TargetResponder) string { return r.Name }, maxResponders, validateTargetResponder)
	if len(list) > maxResponders || repeated(list) {
		return errs
	}
	progress := progressOf(list, before, over)
	for i := range list {
		at, r := p.Index(i), &list[i]
		if i >= len(s.Responders) || s.Responders[i].Name != r.Name {
			errs = append(errs, field.Invalid(at, *r, fmt.Sprintf("%q has to be tracked in status.responders first", r.Name)))
			continue
		}
		allowed, why := progress.allowed(i)
		if !slices.Contains(allowed, r.State) {
			names := make([]string, 0, len(allowed))
			for _, state := range allowed {
				names = append(names, string(state))
			}
			slices.Sort(names)
			errs = append(errs, field.Invalid(at.Child("state"), r.State, fmt.Sprintf("must be one of: %s, because %s", strings.Join(names, ", "), why)))
		}
		if !slices.Contains(allowed, active) && !over && hasHeartbeat(now, &s.Responders[i]) {
			errs = append(errs, field.Forbidden(at.Child("state"), "must stay Active because the responder is in progress and it should report status.responders.heartbeatTime or status.responders.completionTime"))
		}
	}
	return errs
}

func repeated(list []lifecyclev1alpha1.TargetResponder) bool {
	names := sets.New[string]()
	for i := range list {
		names.Insert(list[i].Name)
	}
	return names.Len() < len(list)
}

func validateTargetResponder(op declarative.Operation, p *field.Path, r, old *lifecyclev1alpha1.TargetResponder) field.ErrorList {
	if old == nil {
		op, old = declarative.Create(), &lifecyclev1alpha1.TargetResponder{}
	}
	errs := declarative.Value(op, p.Child("name"), &r.Name, &old.Name, declarative.Required, validate.PrefixedLabelKey)
	priority := p.Child("priority")
	errs = append(errs, declarative.First(
		func() field.ErrorList {
			return declarative.Only(op, priority, r.Priority, old.Priority, validate.NoModify, validate.NoUnset)
		},
		func() field.ErrorList {
			return declarative.Pointer(op, priority, r.Priority, old.Priority, declarative.Required, declarative.Min[int32](0), declarative.Max[int32](100000))
		})...)
	return append(errs, declarative.Value(op, p.Child("state"), &r.State, &old.State, declarative.Required,
		declarative.OneOf(inactive, active, interrupted, canceled, completed))...)
}

// hasHeartbeat reports whether a responder has started, has not completed, and
// sent a heartbeat within the deadline.
func hasHeartbeat(now time.Time, r *lifecyclev1alpha1.ResponderStatus) bool {
	if r.StartTime == nil || r.CompletionTime != nil {
		return false
	}
	heard := r.StartTime.Time
	if r.HeartbeatTime != nil {
		heard = r.HeartbeatTime.Time
	}
	return now.Before(heard.Add(heartbeatDeadline - clockSkew))
}

// progress has which responder was active, and whether it has ended.
type progress struct {
	before []lifecyclev1alpha1.TargetResponder
	last   int // the index of the active responder, or -1
	ended  bool
	over   bool // the eviction has ended
}

func progressOf(list, before []lifecyclev1alpha1.TargetResponder, over bool) progress {
	last := slices.IndexFunc(before, func(r lifecyclev1alpha1.TargetResponder) bool { return r.State == active })
	return progress{before: before, last: last, ended: last >= 0 && list[last].State != active, over: over}
}

// allowed returns the states that responder i can have now, and the reason why
// it can have no others.
func (t progress) allowed(i int) ([]state, string) {
	const finished = "the eviction request has finished processing"
	final := []state{interrupted, canceled, completed}
	started := len(t.before) > 0
	switch {
	case i < t.last || started && t.last < 0 && t.over:
		return []state{t.before[i].State}, "final state is immutable"
	case started && i == t.last && t.ended:
		return final, "this responder must reach a final state"
	case started && i == t.last && t.over:
		return final, finished
	case started && i == t.last:
		return []state{active}, "the eviction request stays active"
	case (!started && i == 0 || t.ended && i == t.last+1) && t.over:
		return []state{inactive}, finished
	case !started && i == 0 || t.ended && i == t.last+1:
		return []state{active}, "this responder is next in line"
	}
	return []state{inactive}, "the previously active has not finished processing"
}
