package job

import (
	"fmt"
	"slices"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller/pods"
	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/timespan"
)

// snapshot is all that a Job's next step depends on.
type snapshot struct {
	job  *batch.Job
	pods []*v1.Pod // owned by the Job
	now  time.Time
}

// plan is what to do about a Job, in this order: write the status, take the
// finalizer off the pods that it accounts for, delete, create.
type plan struct {
	status batch.JobStatus
	// release are pods that are accounted for in status: nobody needs to
	// keep them any longer.
	release []*v1.Pod
	delete  []*v1.Pod
	// preserve keeps the finalizer on the deleted, so that they are accounted
	// for as failed; otherwise they are as if they had never been.
	preserve bool
	create   []slot
	// again is how long from now the Job has to be looked at without an
	// event; 0 if not at all.
	again time.Duration
	// events: reason and message.
	events []event
}

type event struct{ kind, reason, message string }

// slot is a pod to create; index is -1 if the Job is not indexed. In a Job
// with a limit per index, after are the failures of the index so far.
type slot struct {
	index int
	after *attempts
}

// outcome is how a Job's pods stand.
type outcome struct {
	active, terminating []*v1.Pod
	ready               int32
}

func indexed(job *batch.Job) bool {
	return job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batch.IndexedCompletion
}

// replacesFailedOnly reports whether a pod that is being deleted still counts
// as running until it has ended.
func replacesFailedOnly(job *batch.Job) bool {
	return job.Spec.PodReplacementPolicy != nil && *job.Spec.PodReplacementPolicy == batch.Failed || job.Spec.PodFailurePolicy != nil
}

func failed(job *batch.Job, p *v1.Pod) bool {
	return p.Status.Phase == v1.PodFailed ||
		!replacesFailedOnly(job) && p.DeletionTimestamp != nil && p.Status.Phase != v1.PodSucceeded
}

func tracked(p *v1.Pod) bool { return slices.Contains(p.Finalizers, batch.JobTrackingFinalizer) }

func condition(st *batch.JobStatus, t batch.JobConditionType) *batch.JobCondition {
	for i := range st.Conditions {
		if st.Conditions[i].Type == t {
			return &st.Conditions[i]
		}
	}
	return nil
}

func has(st *batch.JobStatus, t batch.JobConditionType) bool {
	c := condition(st, t)
	return c != nil && c.Status == v1.ConditionTrue
}

// finished reports whether a Job is over.
func finished(job *batch.Job) bool {
	return has(&job.Status, batch.JobComplete) || has(&job.Status, batch.JobFailed)
}

func set(st *batch.JobStatus, t batch.JobConditionType, status v1.ConditionStatus, reason, message string, now time.Time) {
	c := batch.JobCondition{
		Type: t, Status: status, Reason: reason, Message: message,
		LastProbeTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
	}
	if have := condition(st, t); have != nil {
		if have.Status == status && have.Reason == reason && have.Message == message {
			return
		}
		*have = c
		return
	}
	st.Conditions = append(st.Conditions, c)
}

// decide works out a Job's next step. Restarts are the failures in a row and
// the time of the last, for the back-off.
func decide(s snapshot, streak int, lastFailure time.Time) plan {
	p := plan{status: *s.job.Status.DeepCopy()}
	o := s.survey()
	if p.status.StartTime == nil && !suspended(s.job) {
		p.status.StartTime = new(metav1.NewTime(s.now))
	}
	s.account(&p)
	if finished(s.job) {
		p.delete = o.active
		s.count(&p, o)
		return p
	}
	s.judge(&p, o)
	switch {
	case has(&p.status, batch.JobFailureTarget) || has(&p.status, batch.JobSuccessCriteriaMet):
		p.preserve = true
		p.delete, o.active, o.terminating, o.ready = o.active, nil, append(o.terminating, o.active...), 0
	case suspended(s.job):
		p.delete, o.active, o.terminating, o.ready = o.active, nil, append(o.terminating, o.active...), 0
	case s.job.DeletionTimestamp == nil:
		s.staff(&p, o, streak, lastFailure)
	}
	s.suspend(&p)
	s.count(&p, o)
	s.end(&p)
	return p
}

func suspended(job *batch.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

func (s snapshot) survey() (o outcome) {
	for _, p := range s.pods {
		switch {
		case podutil.IsFinished(p):
		case p.DeletionTimestamp != nil:
			o.terminating = append(o.terminating, p)
		default:
			o.active = append(o.active, p)
			if podutil.IsReady(p) {
				o.ready++
			}
		}
	}
	return o
}

// account notes the pods that have ended. A pod is noted by its UID first,
// while its finalizer still holds it, and added to the number when the
// finalizer is off: so each is counted once, whoever deletes it and whenever
// this controller stops.
func (s snapshot) account(p *plan) {
	if p.status.UncountedTerminatedPods == nil {
		p.status.UncountedTerminatedPods = &batch.UncountedTerminatedPods{}
	}
	uncounted := p.status.UncountedTerminatedPods
	present := map[types.UID]bool{}
	for _, pod := range s.pods {
		if tracked(pod) {
			present[pod.UID] = true
		}
	}
	settle := func(uids []types.UID, number *int32) []types.UID {
		return slices.DeleteFunc(uids, func(uid types.UID) bool {
			if !present[uid] {
				*number++
			}
			return !present[uid]
		})
	}
	uncounted.Succeeded = settle(uncounted.Succeeded, &p.status.Succeeded)
	uncounted.Failed = settle(uncounted.Failed, &p.status.Failed)
	var ended []int
	held := s.unreplaced(p)
	for _, pod := range s.pods {
		index := indexOf(pod)
		switch {
		case !tracked(pod), held[index] == pod:
			continue
		case slices.Contains(uncounted.Succeeded, pod.UID), slices.Contains(uncounted.Failed, pod.UID):
		case pod.Status.Phase == v1.PodSucceeded && indexed(s.job):
			if s.inRange(index) {
				ended = append(ended, index)
			}
		case pod.Status.Phase == v1.PodSucceeded:
			uncounted.Succeeded = append(uncounted.Succeeded, pod.UID)
		case failed(s.job, pod):
			action, why := judgeFailure(s.job, pod)
			if action == batch.PodFailurePolicyActionFailJob && condition(&p.status, batch.JobFailureTarget) == nil {
				set(&p.status, batch.JobFailureTarget, v1.ConditionTrue, batch.JobReasonPodFailurePolicy, why, s.now)
			}
			if action != batch.PodFailurePolicyActionIgnore {
				uncounted.Failed = append(uncounted.Failed, pod.UID)
			}
		case finished(s.job):
		default:
			continue
		}
		p.release = append(p.release, pod)
	}
	done := parseIndexes(p.status.CompletedIndexes).with(ended...)
	if indexed(s.job) {
		p.status.CompletedIndexes = done.String()
		p.status.Succeeded = done.count()
	}
	if perIndex(s.job) {
		p.status.FailedIndexes = new(s.failedIndexes(p, done).String())
	}
}

func (s snapshot) inRange(index int) bool {
	return index >= 0 && s.job.Spec.Completions != nil && index < int(*s.job.Spec.Completions)
}

func succeeded(p *plan) int32 {
	return p.status.Succeeded + int32(len(p.status.UncountedTerminatedPods.Succeeded))
}

// judge decides whether the Job has succeeded or failed.
func (s snapshot) judge(p *plan, o outcome) {
	if has(&p.status, batch.JobFailureTarget) || has(&p.status, batch.JobSuccessCriteriaMet) {
		return
	}
	fail := func(reason, message string) {
		set(&p.status, batch.JobFailureTarget, v1.ConditionTrue, reason, message, s.now)
	}
	failures := p.status.Failed + int32(len(p.status.UncountedTerminatedPods.Failed))
	limit := int32(6)
	if s.job.Spec.BackoffLimit != nil {
		limit = *s.job.Spec.BackoffLimit
	}
	if failures > limit || s.restartedTooOften(o, limit) {
		fail(batch.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
		return
	}
	if d := s.job.Spec.ActiveDeadlineSeconds; d != nil && p.status.StartTime != nil && !suspended(s.job) {
		left := p.status.StartTime.Add(timespan.Seconds(*d)).Sub(s.now)
		if left <= 0 {
			fail(batch.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
			return
		}
		p.sooner(left)
	}
	if reason, message := s.judgeIndexes(p); reason != "" {
		fail(reason, message)
		return
	}
	enough := func(reason, message string) {
		set(&p.status, batch.JobSuccessCriteriaMet, v1.ConditionTrue, reason, message, s.now)
	}
	switch rule := matchedRule(s.job, p.status.CompletedIndexes); {
	case rule >= 0:
		enough(batch.JobReasonSuccessPolicy, fmt.Sprintf("Matched rules at index %d", rule))
	case s.job.Spec.Completions == nil && succeeded(p) > 0 && len(o.active) == 0,
		s.job.Spec.Completions != nil && succeeded(p) >= *s.job.Spec.Completions && (len(o.active) == 0 || *s.job.Spec.Completions > 0):
		enough(batch.JobReasonCompletionsReached, "Reached expected number of succeeded pods")
	}
}

// matchedRule returns the index of the first rule of the success policy
// (KEP-3998) that the completed indexes meet, or -1.
func matchedRule(job *batch.Job, completed string) int {
	if job.Spec.SuccessPolicy == nil || !indexed(job) {
		return -1
	}
	done := parseIndexes(completed)
	for i, rule := range job.Spec.SuccessPolicy.Rules {
		counted, needed := done.count(), int32(0)
		if rule.SucceededIndexes != nil {
			wanted := parseIndexes(*rule.SucceededIndexes)
			counted, needed = done.common(wanted), wanted.count()
		}
		if rule.SucceededCount != nil {
			needed = *rule.SucceededCount
		}
		if counted >= needed {
			return i
		}
	}
	return -1
}

func (p *plan) sooner(d time.Duration) {
	if d > 0 && (p.again == 0 || d < p.again) {
		p.again = d
	}
}

// staff decides which pods to add or take away.
func (s snapshot) staff(p *plan, o outcome, streak int, lastFailure time.Time) {
	parallel := int32(1)
	if s.job.Spec.Parallelism != nil {
		parallel = *s.job.Spec.Parallelism
	}
	want := parallel
	if s.job.Spec.Completions != nil {
		want = min(parallel, *s.job.Spec.Completions-succeeded(p)-failedBefore(p).count())
	} else if succeeded(p) > 0 {
		want = min(parallel, int32(len(o.active)))
	}
	running := int32(len(o.active))
	if replacesFailedOnly(s.job) {
		running += int32(len(o.terminating))
	}
	switch {
	case int32(len(o.active)) > want:
		p.delete = pods.Victims(o.active, len(o.active)-int(want), nil, s.now)
	case running < want:
		if streak > 0 && !perIndex(s.job) {
			wait := lastFailure.Add(backoff(streak)).Sub(s.now)
			if wait > 0 {
				p.sooner(wait)
				return
			}
		}
		p.create = s.slots(p, o, min(int(want-running), burst))
	}
}

// slots are the first n indexes that are neither done nor being worked on.
func (s snapshot) slots(p *plan, o outcome, n int) (out []slot) {
	if !indexed(s.job) {
		for range n {
			out = append(out, slot{index: -1})
		}
		return out
	}
	taken := parseIndexes(p.status.CompletedIndexes)
	busy := o.active
	if replacesFailedOnly(s.job) {
		busy = append(slices.Clone(busy), o.terminating...)
	}
	given := make([]int, len(busy))
	for i, pod := range busy {
		given[i] = indexOf(pod)
	}
	taken = join(slices.Concat(taken, failedBefore(p))).with(given...)
	last := s.unreplaced(p)
	for i := taken.gap(0); i < int(*s.job.Spec.Completions) && len(out) < n; i = taken.gap(i + 1) {
		next := slot{index: i}
		if perIndex(s.job) {
			after, wait := s.retry(last[i])
			if wait > 0 {
				p.sooner(wait)
				continue
			}
			next.after = &after
		}
		out = append(out, next)
	}
	return out
}

// suspend keeps the condition Suspended.
func (s snapshot) suspend(p *plan) {
	if has(&p.status, batch.JobFailureTarget) || has(&p.status, batch.JobSuccessCriteriaMet) {
		return
	}
	was := has(&p.status, batch.JobSuspended)
	switch {
	case suspended(s.job) && !was:
		set(&p.status, batch.JobSuspended, v1.ConditionTrue, "JobSuspended", "Job suspended", s.now)
		p.events = append(p.events, event{v1.EventTypeNormal, "Suspended", "Job suspended"})
	case !suspended(s.job) && was:
		set(&p.status, batch.JobSuspended, v1.ConditionFalse, "JobResumed", "Job resumed", s.now)
		p.events = append(p.events, event{v1.EventTypeNormal, "Resumed", "Job resumed"})
		p.status.StartTime = new(metav1.NewTime(s.now))
	}
}

func (s snapshot) count(p *plan, o outcome) {
	p.status.Active = int32(len(o.active))
	p.status.Ready = new(o.ready)
	p.status.Terminating = new(int32(len(o.terminating)))
}

// end closes the Job when its fate is decided and all its pods have ended and
// are counted.
func (s snapshot) end(p *plan) {
	uncounted := p.status.UncountedTerminatedPods
	if len(p.delete) > 0 || p.status.Active > 0 || *p.status.Terminating > 0 || len(uncounted.Failed)+len(uncounted.Succeeded) > 0 {
		return
	}
	if c := condition(&p.status, batch.JobFailureTarget); c != nil && c.Status == v1.ConditionTrue {
		set(&p.status, batch.JobFailed, v1.ConditionTrue, c.Reason, c.Message, s.now)
		p.events = append(p.events, event{v1.EventTypeWarning, c.Reason, c.Message})
	} else if c := condition(&p.status, batch.JobSuccessCriteriaMet); c != nil && c.Status == v1.ConditionTrue {
		set(&p.status, batch.JobComplete, v1.ConditionTrue, c.Reason, c.Message, s.now)
		p.status.CompletionTime = new(metav1.NewTime(s.now))
		p.events = append(p.events, event{v1.EventTypeNormal, "Completed", "Job completed"})
	}
}
