package job

import (
	"fmt"
	"slices"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/controller/workload"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/timespan"
)

// snapshot is the input of decide.
type snapshot struct {
	job  *batch.Job
	pods []*v1.Pod // owned by the Job
	now  time.Time
	// started is when the start time in the status was, and ended when finished pods ended, by
	// the monotonic clock (see wallclock.Moments). Without them, the stored times count.
	started time.Time
	ended   map[types.UID]time.Time
	// stale is true if the pods do not show all that the controller has created and
	// deleted.
	stale bool
}

// plan is the output of decide.
type plan struct {
	status batch.JobStatus
	// release lists the pods that are in the status. Their finalizer is removed after
	// the status has been written.
	release []*v1.Pod
	// laterSucceeded and laterFailed count finished pods that the status does not hold yet,
	// because it has maxUncounted others.
	laterSucceeded, laterFailed int32
	delete                      []*v1.Pod
	// countDeleted is true if the deleted pods keep their finalizer and so are counted
	// as failed. Otherwise they are not counted.
	countDeleted bool
	create       []podToCreate
	// terminating is the number of pods that are being deleted, for metrics.
	terminating int
	// requeueAfter is the time until the next sync without an event; 0 means none.
	requeueAfter time.Duration
	// events are recorded after the status has been written.
	events []event
}

type event struct{ kind, reason, message string }

// maxUncounted is the number of pods that status.uncountedTerminatedPods holds at a time. It
// bounds the size of a Job.
const maxUncounted = 500

// podToCreate describes a pod to create. index is -1 if the Job is not indexed. failures
// holds the failures of the index if the Job has backoffLimitPerIndex.
type podToCreate struct {
	index    int
	failures *indexFailures
}

// podGroups holds the unfinished pods of a Job.
type podGroups struct {
	active, terminating []*v1.Pod
	ready               int32
}

func indexed(job *batch.Job) bool {
	return job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batch.IndexedCompletion
}

// replacesFailedOnly reports whether a pod that is being deleted counts as running until
// it has terminated.
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

// finished reports whether a Job is complete or failed.
func finished(job *batch.Job) bool { return workload.FinishedCondition(job) != nil }

// set sets a condition of the Job.
func (s snapshot) set(p *plan, t batch.JobConditionType, status v1.ConditionStatus, reason, message string) {
	c := batch.JobCondition{
		Type: t, Status: status, Reason: reason, Message: message,
		LastProbeTime: metav1.NewTime(s.now), LastTransitionTime: metav1.NewTime(s.now),
	}
	if have := condition(&p.status, t); have != nil {
		if have.Status == status && have.Reason == reason && have.Message == message {
			return
		}
		*have = c
		return
	}
	p.status.Conditions = append(p.status.Conditions, c)
}

// decide returns what to do for a Job. failures is the number of consecutive failures,
// and lastFailure the time of the last, for the back-off.
func decide(s snapshot, failures int, lastFailure time.Time) plan {
	p := plan{status: *s.job.Status.DeepCopy()}
	o := s.groupPods()
	if finished(s.job) {
		// The status of a finished Job is final. A pod may still appear that the cache did
		// not show before.
		p.delete = o.active
		p.release = slices.DeleteFunc(slices.Clone(s.pods), func(pod *v1.Pod) bool { return !tracked(pod) || podquery.IsActive(pod) })
		return p
	}
	if p.status.StartTime == nil && !suspended(s.job) {
		p.status.StartTime = new(metav1.NewTime(s.now))
	}
	delayed := s.trackFinishedPods(&p)
	s.checkCriteria(&p, o, delayed)
	switch {
	case p.ends():
		s.trackDelayedPods(&p, delayed)
		p.countDeleted = has(&p.status, batch.JobFailureTarget)
		p.delete = o.active
	case s.stale, s.job.DeletionTimestamp != nil:
	case suspended(s.job):
		p.delete = o.active
		s.setSuspended(&p)
	default:
		s.managePods(&p, o, failures, lastFailure)
		s.setSuspended(&p)
	}
	s.setCounts(&p, o)
	s.finish(&p)
	return p
}

func suspended(job *batch.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

// ends reports whether a Job has succeeded or failed, though its pods may still run.
func (p *plan) ends() bool {
	return has(&p.status, batch.JobFailureTarget) || has(&p.status, batch.JobSuccessCriteriaMet)
}

func (s snapshot) groupPods() (o podGroups) {
	for _, p := range s.pods {
		switch {
		case podquery.IsFinished(p):
		case p.DeletionTimestamp != nil:
			o.terminating = append(o.terminating, p)
		default:
			o.active = append(o.active, p)
			if podquery.IsReady(p) {
				o.ready++
			}
		}
	}
	return o
}

// trackFinishedPods adds finished pods to the status. The UID of a pod is added to
// uncountedTerminatedPods first. Once the pod's finalizer has been removed, the pod is
// added to the number of succeeded or failed pods. So each pod is counted once, even if
// the controller is restarted.
//
// It returns, by index, the failed pods that are added to the status later, when they have
// been replaced.
func (s snapshot) trackFinishedPods(p *plan) (delayed map[int]*v1.Pod) {
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
	countReleased := func(uids []types.UID, number *int32) []types.UID {
		return slices.DeleteFunc(uids, func(uid types.UID) bool {
			if !present[uid] {
				*number++
			}
			return !present[uid]
		})
	}
	uncounted.Succeeded = countReleased(uncounted.Succeeded, &p.status.Succeeded)
	uncounted.Failed = countReleased(uncounted.Failed, &p.status.Failed)
	s.matchFailJob(p)
	var completed []int
	delayed = s.lastFailedPods(p)
	for _, pod := range s.pods {
		index := indexOf(pod)
		full := len(uncounted.Succeeded)+len(uncounted.Failed) >= maxUncounted
		switch {
		case !tracked(pod), delayed[index] == pod:
			continue
		case slices.Contains(uncounted.Succeeded, pod.UID), slices.Contains(uncounted.Failed, pod.UID):
		case pod.Status.Phase == v1.PodSucceeded && indexed(s.job):
			if s.inRange(index) {
				completed = append(completed, index)
			}
		case pod.Status.Phase == v1.PodSucceeded && full:
			p.laterSucceeded++
			continue
		case pod.Status.Phase == v1.PodSucceeded:
			uncounted.Succeeded = append(uncounted.Succeeded, pod.UID)
		case failed(s.job, pod) && full && s.failureCounts(pod):
			p.laterFailed++
			continue
		case failed(s.job, pod):
			s.addFailure(p, pod)
		case s.job.DeletionTimestamp != nil:
		default:
			continue
		}
		p.release = append(p.release, pod)
	}
	done := s.completedIndexes(p).with(completed...)
	if indexed(s.job) {
		p.status.CompletedIndexes = done.String()
		p.status.Succeeded = done.count()
	}
	if perIndex(s.job) {
		p.status.FailedIndexes = new(s.failedIndexes(p, done).String())
	}
	return delayed
}

// matchFailJob sets the condition FailureTarget if a rule of the pod failure policy fails the
// Job because of a pod. A Job that has succeeded does not fail any more.
func (s snapshot) matchFailJob(p *plan) {
	for _, pod := range s.pods {
		if p.ends() {
			return
		}
		if !tracked(pod) || !failed(s.job, pod) {
			continue
		}
		if action, message := matchPodFailurePolicy(s.job, pod); action == batch.PodFailurePolicyActionFailJob {
			s.set(p, batch.JobFailureTarget, v1.ConditionTrue, batch.JobReasonPodFailurePolicy, message)
		}
	}
}

// addFailure adds a failed pod to the status if its failure counts.
func (s snapshot) addFailure(p *plan, pod *v1.Pod) {
	if s.failureCounts(pod) {
		p.status.UncountedTerminatedPods.Failed = append(p.status.UncountedTerminatedPods.Failed, pod.UID)
	}
}

// failureCounts reports whether the failure of a pod counts: the pod has an index of the Job,
// if it is indexed, and the pod failure policy does not ignore the failure.
func (s snapshot) failureCounts(pod *v1.Pod) bool {
	action, _ := matchPodFailurePolicy(s.job, pod)
	return hasIndex(s.job, pod) && action != batch.PodFailurePolicyActionIgnore
}

// trackDelayedPods adds failed pods that have waited for their replacement to the status of a
// Job that ends, because they are not replaced any more.
func (s snapshot) trackDelayedPods(p *plan, delayed map[int]*v1.Pod) {
	for _, pod := range s.pods {
		uncounted := p.status.UncountedTerminatedPods
		if delayed[indexOf(pod)] != pod || len(uncounted.Succeeded)+len(uncounted.Failed) >= maxUncounted {
			continue
		}
		if !slices.Contains(uncounted.Failed, pod.UID) {
			s.addFailure(p, pod)
		}
		p.release = append(p.release, pod)
	}
}

// completedIndexes returns status.completedIndexes without those that are out of range
// since spec.completions was reduced.
func (s snapshot) completedIndexes(p *plan) indexes {
	return s.withinCompletions(parseIndexes(p.status.CompletedIndexes))
}

func (s snapshot) withinCompletions(x indexes) indexes {
	if s.job.Spec.Completions == nil {
		return x
	}
	return x.below(int(*s.job.Spec.Completions))
}

func (s snapshot) inRange(index int) bool { return inRange(s.job, index) }

func inRange(job *batch.Job, index int) bool {
	return index >= 0 && job.Spec.Completions != nil && index < int(*job.Spec.Completions)
}

// hasIndex reports whether a pod has an index of its Job, or the Job is not indexed. Other
// pods neither succeed nor fail for the Job.
func hasIndex(job *batch.Job, pod *v1.Pod) bool { return !indexed(job) || inRange(job, indexOf(pod)) }

func succeeded(p *plan) int32 {
	return p.status.Succeeded + int32(len(p.status.UncountedTerminatedPods.Succeeded)) + p.laterSucceeded
}

// checkCriteria sets the condition FailureTarget or SuccessCriteriaMet if the Job has
// failed or succeeded. The failures of delayed pods count, though they are not in the status.
func (s snapshot) checkCriteria(p *plan, o podGroups, delayed map[int]*v1.Pod) {
	if p.ends() {
		return
	}
	fail := func(reason, message string) {
		s.set(p, batch.JobFailureTarget, v1.ConditionTrue, reason, message)
	}
	failures := p.status.Failed + int32(len(p.status.UncountedTerminatedPods.Failed)) + p.laterFailed
	for _, pod := range delayed {
		if s.failureCounts(pod) && !slices.Contains(p.status.UncountedTerminatedPods.Failed, pod.UID) {
			failures++
		}
	}
	limit := ptr.Deref(s.job.Spec.BackoffLimit, 6)
	if failures > limit || s.pastBackoffLimitOnFailure(o, limit) {
		fail(batch.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
		return
	}
	if d := s.job.Spec.ActiveDeadlineSeconds; d != nil && p.status.StartTime != nil && !suspended(s.job) {
		begin := p.status.StartTime.Time
		if !s.started.IsZero() && p.status.StartTime.Equal(s.job.Status.StartTime) { // else this plan sets it
			begin = s.started
		}
		left := begin.Add(timespan.Seconds(*d)).Sub(s.now)
		if left <= 0 {
			fail(batch.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
			return
		}
		p.requeueWithin(left)
	}
	if reason, message := s.failureByIndexes(p); reason != "" {
		fail(reason, message)
		return
	}
	succeed := func(reason, message string) {
		s.set(p, batch.JobSuccessCriteriaMet, v1.ConditionTrue, reason, message)
	}
	switch rule := matchedRule(s.job, p.status.CompletedIndexes); {
	case rule >= 0:
		succeed(batch.JobReasonSuccessPolicy, fmt.Sprintf("Matched rules at index %d", rule))
	case s.job.Spec.Completions == nil && succeeded(p) > 0 && len(o.active) == 0,
		s.job.Spec.Completions != nil && succeeded(p) >= *s.job.Spec.Completions && (len(o.active) == 0 || *s.job.Spec.Completions > 0):
		succeed(batch.JobReasonCompletionsReached, "Reached expected number of succeeded pods")
	}
}

// matchedRule returns the index of the first rule of the success policy (KEP-3998) that
// the completed indexes satisfy, or -1. A rule whose indexes are empty or malformed is never
// satisfied.
func matchedRule(job *batch.Job, completed string) int {
	if job.Spec.SuccessPolicy == nil || !indexed(job) {
		return -1
	}
	done := parseIndexes(completed)
	for i, rule := range job.Spec.SuccessPolicy.Rules {
		counted, needed := done.count(), int32(0)
		if rule.SucceededIndexes != nil {
			wanted := parseIndexes(*rule.SucceededIndexes)
			counted, needed = done.common(wanted), max(wanted.count(), 1)
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

// requeueWithin sets requeueAfter to d unless it is shorter. It ignores d <= 0.
func (p *plan) requeueWithin(d time.Duration) {
	if d > 0 && (p.requeueAfter == 0 || d < p.requeueAfter) {
		p.requeueAfter = d
	}
}

// managePods decides which pods to create or delete.
func (s snapshot) managePods(p *plan, o podGroups, failures int, lastFailure time.Time) {
	parallelism := ptr.Deref(s.job.Spec.Parallelism, 1)
	want := parallelism
	if s.job.Spec.Completions != nil {
		want = max(0, min(parallelism, *s.job.Spec.Completions-succeeded(p)-recordedFailedIndexes(&p.status).count()))
	} else if succeeded(p) > 0 {
		want = min(parallelism, int32(len(o.active)))
	}
	running := int32(len(o.active))
	if replacesFailedOnly(s.job) {
		running += int32(len(o.terminating))
	}
	p.delete = s.podsToDelete(o, len(o.active)-int(want))
	switch {
	case len(p.delete) > 0:
	case running < want:
		if failures > 0 && !perIndex(s.job) {
			wait := lastFailure.Add(backoff(failures)).Sub(s.now)
			if wait > 0 {
				p.requeueWithin(wait)
				return
			}
		}
		p.create = s.podsToCreate(p, o, min(int(want-running), burst))
	}
}

// podsToDelete returns at least n active pods that are too many. For an indexed Job, these
// include all pods whose index is out of range or that another pod has.
func (s snapshot) podsToDelete(o podGroups, n int) []*v1.Pod {
	if !indexed(s.job) {
		return pods.SelectForDeletion(o.active, max(n, 0), pods.DeletionOrder{Now: s.now})
	}
	var surplus, rest []*v1.Pod
	last := map[int]bool{}
	// If an index has several pods, the pod that would be deleted last remains.
	for _, pod := range slices.Backward(pods.SortForDeletion(o.active, pods.DeletionOrder{Now: s.now})) {
		index := indexOf(pod)
		if !s.inRange(index) || last[index] {
			surplus = append(surplus, pod)
			continue
		}
		last[index] = true
		rest = append(rest, pod)
	}
	return append(surplus, pods.SelectForDeletion(rest, max(n-len(surplus), 0), pods.DeletionOrder{Now: s.now})...)
}

// podsToCreate returns the next n pods. For an indexed Job, these are pods for the first
// indexes that are neither finished nor have a pod.
func (s snapshot) podsToCreate(p *plan, o podGroups, n int) (out []podToCreate) {
	if !indexed(s.job) {
		for range n {
			out = append(out, podToCreate{index: -1})
		}
		return out
	}
	running := o.active
	if replacesFailedOnly(s.job) {
		running = append(slices.Clone(running), o.terminating...)
	}
	runningIndexes := make([]int, len(running))
	for i, pod := range running {
		runningIndexes[i] = indexOf(pod)
	}
	unavailable := join(slices.Concat(s.completedIndexes(p), recordedFailedIndexes(&p.status))).with(runningIndexes...)
	last := s.lastFailedPods(p)
	for i := unavailable.gap(0); i < int(*s.job.Spec.Completions) && len(out) < n; i = unavailable.gap(i + 1) {
		next := podToCreate{index: i}
		if perIndex(s.job) {
			failures, wait := s.retry(last[i])
			if wait > 0 {
				p.requeueWithin(wait)
				continue
			}
			next.failures = &failures
		}
		out = append(out, next)
	}
	return out
}

// setSuspended updates the condition Suspended. A suspended Job has no start time
// (KEP-5440), because the time until it is resumed does not count for its deadline.
func (s snapshot) setSuspended(p *plan) {
	was := has(&p.status, batch.JobSuspended)
	switch {
	case suspended(s.job) && !was:
		s.set(p, batch.JobSuspended, v1.ConditionTrue, "JobSuspended", "Job suspended")
		p.events = append(p.events, event{v1.EventTypeNormal, "Suspended", "Job suspended"})
		p.status.StartTime = nil
	case !suspended(s.job) && was:
		s.set(p, batch.JobSuspended, v1.ConditionFalse, "JobResumed", "Job resumed")
		p.events = append(p.events, event{v1.EventTypeNormal, "Resumed", "Job resumed"})
		p.status.StartTime = new(metav1.NewTime(s.now))
	}
}

// setCounts sets the numbers of unfinished pods as they are before the plan is carried out.
func (s snapshot) setCounts(p *plan, o podGroups) {
	p.status.Active = int32(len(o.active))
	p.status.Ready = new(o.ready)
	p.terminating = len(o.terminating)
	p.status.Terminating = new(int32(p.terminating))
}

// countDeletions updates the numbers of unfinished pods once pods have been deleted, except the
// remaining ones, which could not be.
func (p *plan) countDeletions(remaining []*v1.Pod) {
	remain := sets.New(remaining...)
	for _, pod := range p.delete {
		if remain.Has(pod) {
			continue
		}
		p.status.Active--
		*p.status.Terminating++
		if podquery.IsReady(pod) {
			*p.status.Ready--
		}
	}
}

// finish sets the condition Complete or Failed once the Job has succeeded or failed and
// all its pods have terminated and are counted.
func (s snapshot) finish(p *plan) {
	uncounted := p.status.UncountedTerminatedPods
	if s.stale || len(p.delete) > 0 || p.status.Active > 0 || *p.status.Terminating > 0 || len(uncounted.Failed)+len(uncounted.Succeeded) > 0 {
		return
	}
	if n := s.job.Spec.Completions; p.ends() && p.status.StartTime == nil && (n == nil || *n > 0) {
		p.status.StartTime = new(metav1.NewTime(s.now)) // it ends while it is suspended
	}
	if c := condition(&p.status, batch.JobFailureTarget); c != nil && c.Status == v1.ConditionTrue {
		s.set(p, batch.JobFailed, v1.ConditionTrue, c.Reason, c.Message)
		p.events = append(p.events, event{v1.EventTypeWarning, c.Reason, c.Message})
	} else if c := condition(&p.status, batch.JobSuccessCriteriaMet); c != nil && c.Status == v1.ConditionTrue {
		s.set(p, batch.JobComplete, v1.ConditionTrue, c.Reason, c.Message)
		p.status.CompletionTime = new(metav1.NewTime(s.now))
		if n := s.job.Spec.Completions; n != nil && p.status.Succeeded > *n {
			p.events = append(p.events, event{v1.EventTypeWarning, "TooManySucceededPods", "Too many succeeded pods running after completion count reached"})
		}
		p.events = append(p.events, event{v1.EventTypeNormal, "Completed", "Job completed"})
	}
}
