package job

import (
	"cmp"
	"strconv"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/order"
)

// indexFailures counts the failures of an index of a Job with backoffLimitPerIndex
// (KEP-3850). The annotations of a pod hold the failures before it.
type indexFailures struct{ counted, ignored int }

func perIndex(job *batch.Job) bool { return indexed(job) && job.Spec.BackoffLimitPerIndex != nil }

// failuresBefore returns the failures in the annotations of a pod.
func failuresBefore(pod *v1.Pod) indexFailures {
	number := func(annotation string) int {
		n, err := strconv.ParseUint(pod.Annotations[annotation], 10, 31)
		if err != nil {
			return 0
		}
		return int(n)
	}
	return indexFailures{counted: number(batch.JobIndexFailureCountAnnotation), ignored: number(batch.JobIndexIgnoredFailureCountAnnotation)}
}

// annotate sets the annotations that failuresBefore reads.
func (a indexFailures) annotate(pod *v1.Pod) {
	pod.Annotations[batch.JobIndexFailureCountAnnotation] = strconv.Itoa(a.counted)
	if a.ignored > 0 {
		pod.Annotations[batch.JobIndexIgnoredFailureCountAnnotation] = strconv.Itoa(a.ignored)
	}
}

func (a indexFailures) sum() int { return a.counted + a.ignored }

// recordedFailedIndexes returns status.failedIndexes, which are not retried.
func recordedFailedIndexes(st *batch.JobStatus) indexes {
	if st.FailedIndexes == nil {
		return nil
	}
	return parseIndexes(*st.FailedIndexes)
}

// failedIndexes returns the recorded failed indexes and those that have failed now: their
// failures exceed the limit, or the pod failure policy fails them. Once the Job has failed
// there are no new ones: the controller itself deletes the remaining pods, which count as failed.
func (s snapshot) failedIndexes(p *plan, done indexes) indexes {
	recorded := s.withinCompletions(recordedFailedIndexes(&p.status))
	if has(&s.job.Status, batch.JobFailureTarget) {
		return recorded
	}
	var newlyFailed []int
	for _, pod := range s.pods {
		index := indexOf(pod)
		if !tracked(pod) || !s.inRange(index) || done.has(index) || !failed(s.job, pod) {
			continue
		}
		switch action, _ := matchPodFailurePolicy(s.job, pod); action {
		case batch.PodFailurePolicyActionIgnore:
		case batch.PodFailurePolicyActionFailIndex:
			newlyFailed = append(newlyFailed, index)
		default:
			if failuresBefore(pod).counted >= int(*s.job.Spec.BackoffLimitPerIndex) {
				newlyFailed = append(newlyFailed, index)
			}
		}
	}
	return recorded.with(newlyFailed...)
}

// lastFailedPods returns, for each index to retry that has no newer pod, the pod that
// failed last. It keeps its finalizer until it is replaced, because its annotations are
// the only record of earlier failures.
func (s snapshot) lastFailedPods(p *plan) map[int]*v1.Pod {
	last := map[int]*v1.Pod{}
	if !perIndex(s.job) || s.job.DeletionTimestamp != nil || p.ends() {
		return last
	}
	done := s.completedIndexes(p)
	failedIndexes := s.failedIndexes(p, done)
	for _, pod := range s.pods {
		index := indexOf(pod)
		if !tracked(pod) || !s.inRange(index) || done.has(index) || failedIndexes.has(index) {
			continue
		}
		if have := last[index]; have == nil || s.laterAttempt(pod, have) {
			last[index] = pod
		}
	}
	for index, pod := range last {
		if !failed(s.job, pod) {
			delete(last, index)
		}
	}
	return last
}

// laterAttempt reports whether a pod is a later attempt at its index than another. That is the
// one that has not failed, that has more failures before it, or that has failed later.
func (s snapshot) laterAttempt(pod, other *v1.Pod) bool {
	return cmp.Or(
		order.FalseFirst(!failed(s.job, pod), !failed(s.job, other)),
		cmp.Compare(failuresBefore(pod).sum(), failuresBefore(other).sum()),
		finishTime(pod).Compare(finishTime(other)),
	) > 0
}

// retry returns the failures of an index including its last failed pod, and the remaining
// back-off before the pod is replaced. pod is nil if the index has no failed pod.
func (s snapshot) retry(pod *v1.Pod) (failures indexFailures, wait time.Duration) {
	if pod == nil {
		return indexFailures{}, 0
	}
	failures = failuresBefore(pod)
	if action, _ := matchPodFailurePolicy(s.job, pod); action == batch.PodFailurePolicyActionIgnore {
		failures.ignored++
	} else {
		failures.counted++
	}
	end, known := s.ended[pod.UID]
	if !known {
		end = finishTime(pod)
	}
	return failures, end.Add(backoff(failures.sum())).Sub(s.now)
}

// failureByIndexes returns why a Job with backoffLimitPerIndex has failed, or "".
func (s snapshot) failureByIndexes(p *plan) (reason, message string) {
	if !perIndex(s.job) {
		return "", ""
	}
	failedCount := recordedFailedIndexes(&p.status).count()
	switch limit := s.job.Spec.MaxFailedIndexes; {
	case limit != nil && failedCount > *limit:
		return batch.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes"
	case failedCount > 0 && int64(failedCount)+int64(p.status.Succeeded) >= int64(*s.job.Spec.Completions):
		return batch.JobReasonFailedIndexes, "Job has failed indexes"
	}
	return "", ""
}
