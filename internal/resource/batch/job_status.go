package batch

import (
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// statusChange is an update of a job's status. Invalid values that do not
// change are accepted.
type statusChange struct {
	job, old *batchv1.Job
	at       *field.Path
	errs     field.ErrorList
}

// validateJobStatus checks that a status is consistent and that the transition
// from the old one is allowed, for all writers (KEP-4368).
func validateJobStatus(_ *resource.RequestContext, j, old *batchv1.Job) field.ErrorList {
	c := &statusChange{job: j, old: old, at: field.NewPath("status")}
	c.counts()
	c.conditions()
	c.times()
	c.indexes()
	c.finished()
	c.steps()
	return c.errs
}

func (c *statusChange) invalid(name string, value any, detail string) {
	c.errs = append(c.errs, field.Invalid(c.at.Child(name), value, detail))
}

// invalidConditions reports conditions that contradict each other.
func (c *statusChange) invalidConditions(detail string) {
	c.invalid("conditions", field.OmitValueType{}, detail)
}

// is reports whether a condition of one of the types is true.
func (c *statusChange) is(types ...batchv1.JobConditionType) bool { return anyCondition(c.job, types) }

// changed reports whether the update changes the result of is.
func (c *statusChange) changed(types ...batchv1.JobConditionType) bool {
	return anyCondition(c.job, types) != anyCondition(c.old, types)
}

func anyCondition(j *batchv1.Job, types []batchv1.JobConditionType) bool {
	for _, t := range types {
		if hasCondition(j, t) {
			return true
		}
	}
	return false
}

func (c *statusChange) counts() {
	s := &c.job.Status
	c.errs = append(c.errs, validators.Nonnegative(c.at.Child("active"), s.Active)...)
	c.errs = append(c.errs, validators.Nonnegative(c.at.Child("succeeded"), s.Succeeded)...)
	c.errs = append(c.errs, validators.Nonnegative(c.at.Child("failed"), s.Failed)...)
	c.errs = append(c.errs, validators.NonnegativePointer(c.at.Child("ready"), s.Ready)...)
	c.errs = append(c.errs, validators.NonnegativePointer(c.at.Child("terminating"), s.Terminating)...)
	if s.UncountedTerminatedPods != nil {
		c.uncounted(s.UncountedTerminatedPods)
	}
	moved := s.Active != c.old.Status.Active || !ptr.Equal(s.Ready, c.old.Status.Ready)
	if ready := ptr.Deref(s.Ready, 0); moved && ready > s.Active {
		c.invalid("ready", ready, "cannot set more ready pods than active")
	}
}

func (c *statusChange) uncounted(u *batchv1.UncountedTerminatedPods) {
	seen := map[string]bool{}
	at := c.at.Child("uncountedTerminatedPods")
	add := func(at *field.Path, uid string) {
		switch {
		case uid == "":
			c.errs = append(c.errs, field.Invalid(at, uid, "must not be empty"))
		case seen[uid]:
			c.errs = append(c.errs, field.Duplicate(at, uid))
		}
		seen[uid] = true
	}
	for i, uid := range u.Succeeded {
		add(at.Child("succeeded").Index(i), string(uid))
	}
	for i, uid := range u.Failed {
		add(at.Child("failed").Index(i), string(uid))
	}
}

func (c *statusChange) conditions() {
	const complete, failed, met, target = batchv1.JobComplete, batchv1.JobFailed, batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget
	if (c.changed(complete) || c.changed(failed)) && c.is(complete) && c.is(failed) {
		c.invalidConditions("cannot set Complete=True and Failed=true conditions")
	}
	if (c.changed(complete) || c.changed(target)) && c.is(complete) && c.is(target) {
		c.invalidConditions("cannot set Complete=True and FailureTarget=true conditions")
	}
	if (c.changed(failed) || c.changed(target)) && c.is(failed) && !c.is(target) {
		c.invalidConditions("cannot set Failed=True condition without the FailureTarget=true condition")
	}
	if (c.changed(complete) || c.changed(met)) && c.is(complete) && !c.is(met) {
		c.invalidConditions("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
	}
	if c.is(met) && c.is(failed) {
		c.invalidConditions("cannot set SuccessCriteriaMet=True and Failed=true conditions")
	}
	if c.is(met) && c.is(target) {
		c.invalidConditions("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	}
	if c.job.Spec.SuccessPolicy != nil && !c.is(met) && c.is(complete) {
		c.invalidConditions("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
	}
}

func (c *statusChange) times() {
	start, end := c.job.Status.StartTime, c.job.Status.CompletionTime
	started := !equality.Semantic.DeepEqual(start, c.old.Status.StartTime)
	ended := !equality.Semantic.DeepEqual(end, c.old.Status.CompletionTime)
	complete := c.is(batchv1.JobComplete)
	if ended || c.changed(batchv1.JobComplete) {
		if end != nil && !complete {
			c.invalid("completionTime", end, "cannot set completionTime when there is no Complete=True condition")
		}
		if end == nil && complete {
			c.errs = append(c.errs, field.Required(c.at.Child("completionTime"), "completionTime is required for Complete jobs"))
		}
	}
	if (started || ended) && start != nil && end != nil && end.Before(start) {
		c.invalid("completionTime", end, "must be equal to or after `startTime`")
	}
}

func (c *statusChange) indexes() {
	s, spec := &c.job.Status, &c.job.Spec
	newCompleted := s.CompletedIndexes != c.old.Status.CompletedIndexes
	newFailed := !ptr.Equal(s.FailedIndexes, c.old.Status.FailedIndexes)
	if newCompleted {
		if spec.Completions != nil {
			if _, err := countIndexes(s.CompletedIndexes, *spec.Completions); err != nil {
				c.invalid("completedIndexes", s.CompletedIndexes, "error parsing completedIndexes: "+err.Error())
			}
		}
		if s.CompletedIndexes != "" && ptr.Deref(spec.CompletionMode, "") != batchv1.IndexedCompletion {
			c.invalid("completedIndexes", s.CompletedIndexes, "cannot set non-empty completedIndexes when non-indexed completion mode")
		}
	}
	if s.FailedIndexes == nil {
		return
	}
	if newFailed && spec.BackoffLimitPerIndex == nil {
		c.invalid("failedIndexes", *s.FailedIndexes, "cannot set non-null failedIndexes when backoffLimitPerIndex is null")
	}
	if spec.Completions == nil {
		return
	}
	if _, err := countIndexes(*s.FailedIndexes, *spec.Completions); err != nil && newFailed && spec.BackoffLimitPerIndex != nil {
		c.invalid("failedIndexes", *s.FailedIndexes, "error parsing failedIndexes: "+err.Error())
	}
	if newFailed || newCompleted {
		if err := commonIndex(s.CompletedIndexes, *s.FailedIndexes, *spec.Completions); err != nil {
			c.invalid("failedIndexes", *s.FailedIndexes, err.Error())
		}
	}
}

// finished checks that a finished job has no running pods or pending counts.
func (c *statusChange) finished() {
	s, old := &c.job.Status, &c.old.Status
	if !c.is(batchv1.JobComplete, batchv1.JobFailed) {
		return
	}
	ends := c.changed(batchv1.JobComplete, batchv1.JobFailed)
	if (ends || s.Active != old.Active) && s.Active > 0 {
		c.invalid("active", s.Active, "active>0 is invalid for finished job")
	}
	nothingToDo := ptr.Deref(c.job.Spec.Suspend, false) && ptr.Deref(c.job.Spec.Completions, -1) == 0
	if s.StartTime == nil && (ends || old.StartTime != nil) && !nothingToDo {
		c.errs = append(c.errs, field.Required(c.at.Child("startTime"), "startTime is required for finished job"))
	}
	if u := s.UncountedTerminatedPods; u != nil && len(u.Failed)+len(u.Succeeded) > 0 &&
		(ends || !equality.Semantic.DeepEqual(u, old.UncountedTerminatedPods)) {
		c.invalid("uncountedTerminatedPods", validators.Shown(u), "must be empty for finished job")
	}
	if n := ptr.Deref(s.Terminating, 0); n > 0 && (ends || !ptr.Equal(s.Terminating, old.Terminating)) {
		c.invalid("terminating", n, "terminating>0 is invalid for finished job")
	}
}

// steps checks the values that can change in only one direction.
func (c *statusChange) steps() {
	s, old := &c.job.Status, &c.old.Status
	for _, t := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailureTarget} {
		if hasCondition(c.old, t) && !c.is(t) {
			c.invalidConditions("cannot disable the terminal " + string(t) + "=True condition")
		}
	}
	if s.Failed < old.Failed {
		c.invalid("failed", s.Failed, "cannot decrease the failed counter")
	}
	// The succeeded pods of an indexed job can decrease when it is scaled
	// down.
	spec := &c.job.Spec
	elastic := ptr.Deref(spec.CompletionMode, "") == batchv1.IndexedCompletion && ptr.Equal(spec.Completions, spec.Parallelism)
	if s.Succeeded < old.Succeeded && !elastic {
		c.invalid("succeeded", s.Succeeded, "cannot decrease the succeeded counter")
	}
	c.keepTimes()
	met, wasMet := c.is(batchv1.JobSuccessCriteriaMet), hasCondition(c.old, batchv1.JobSuccessCriteriaMet)
	if wasMet && !met {
		c.invalidConditions("cannot disable the SuccessCriteriaMet=True condition")
	}
	if hasCondition(c.old, batchv1.JobComplete) && !wasMet && met {
		c.invalidConditions("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
	}
}

// keepTimes checks that times which are set stay as they are. A completion time can be
// removed, and a job that is or was suspended starts anew.
func (c *statusChange) keepTimes() {
	s, old := &c.job.Status, &c.old.Status
	if s.CompletionTime != nil && old.CompletionTime != nil && !s.CompletionTime.Equal(old.CompletionTime) {
		c.invalid("completionTime", s.CompletionTime, "completionTime cannot be mutated")
	}
	resumes := hasCondition(c.old, batchv1.JobSuspended) && !c.is(batchv1.JobSuspended)
	if old.StartTime != nil && !s.StartTime.Equal(old.StartTime) && !ptr.Deref(c.job.Spec.Suspend, false) && !resumes {
		c.invalid("startTime", s.StartTime, "field is immutable for unsuspended job once set")
	}
}
