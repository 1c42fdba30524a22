package job

import (
	"strconv"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
)

// attempts are the failures of one index of a Job with a limit per index
// (KEP-3850). Its pods carry in annotations those before their own.
type attempts struct{ counted, ignored int }

func perIndex(job *batch.Job) bool { return indexed(job) && job.Spec.BackoffLimitPerIndex != nil }

// attemptsBefore reads the annotations of a pod.
func attemptsBefore(pod *v1.Pod) attempts {
	number := func(annotation string) int {
		n, err := strconv.Atoi(pod.Annotations[annotation])
		if err != nil || n < 0 {
			return 0
		}
		return n
	}
	return attempts{counted: number(batch.JobIndexFailureCountAnnotation), ignored: number(batch.JobIndexIgnoredFailureCountAnnotation)}
}

// annotate writes what attemptsBefore reads.
func (a attempts) annotate(pod *v1.Pod) {
	pod.Annotations[batch.JobIndexFailureCountAnnotation] = strconv.Itoa(a.counted)
	if a.ignored > 0 {
		pod.Annotations[batch.JobIndexIgnoredFailureCountAnnotation] = strconv.Itoa(a.ignored)
	}
}

func (a attempts) sum() int { return a.counted + a.ignored }

// failedBefore are the indexes that will not be tried again.
func failedBefore(p *plan) indexes {
	if p.status.FailedIndexes == nil {
		return nil
	}
	return parseIndexes(*p.status.FailedIndexes)
}

// failedIndexes adds to the indexes that are given up those whose limit the
// pods have passed, and those that the failure policy gives up.
func (s snapshot) failedIndexes(p *plan, done indexes) indexes {
	var given []int
	for _, pod := range s.pods {
		index := indexOf(pod)
		if !tracked(pod) || !s.inRange(index) || done.has(index) || !failed(s.job, pod) {
			continue
		}
		switch action, _ := judgeFailure(s.job, pod); action {
		case batch.PodFailurePolicyActionIgnore:
		case batch.PodFailurePolicyActionFailIndex:
			given = append(given, index)
		default:
			if attemptsBefore(pod).counted >= int(*s.job.Spec.BackoffLimitPerIndex) {
				given = append(given, index)
			}
		}
	}
	return failedBefore(p).with(given...)
}

// unreplaced returns, for each index that is to be tried again and has no
// newer pod, the pod that failed last. It keeps its finalizer until it is
// replaced, for its annotations are the only record of the failures before.
func (s snapshot) unreplaced(p *plan) map[int]*v1.Pod {
	last := map[int]*v1.Pod{}
	if !perIndex(s.job) || finished(s.job) || s.job.DeletionTimestamp != nil ||
		has(&p.status, batch.JobFailureTarget) || has(&p.status, batch.JobSuccessCriteriaMet) {
		return last
	}
	done := parseIndexes(p.status.CompletedIndexes)
	given := s.failedIndexes(p, done)
	for _, pod := range s.pods {
		index := indexOf(pod)
		if !tracked(pod) || !s.inRange(index) || done.has(index) || given.has(index) {
			continue
		}
		if have := last[index]; have == nil || attemptsBefore(pod).sum() > attemptsBefore(have).sum() {
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

// retry returns the failures of an index whose pod failed last, and how long
// its replacement is to be put off. The pod is nil if none has failed.
func (s snapshot) retry(pod *v1.Pod) (attempts, time.Duration) {
	if pod == nil {
		return attempts{}, 0
	}
	after := attemptsBefore(pod)
	if action, _ := judgeFailure(s.job, pod); action == batch.PodFailurePolicyActionIgnore {
		after.ignored++
	} else {
		after.counted++
	}
	return after, endOf(pod).Add(backoff(after.sum())).Sub(s.now)
}

// judgeIndexes returns why a Job with a limit per index has failed, if it has.
func (s snapshot) judgeIndexes(p *plan) (reason, message string) {
	if !perIndex(s.job) {
		return "", ""
	}
	given := failedBefore(p).count()
	switch limit := s.job.Spec.MaxFailedIndexes; {
	case limit != nil && given > *limit:
		return batch.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes"
	case given > 0 && int64(given)+int64(p.status.Succeeded) >= int64(*s.job.Spec.Completions):
		return batch.JobReasonFailedIndexes, "Job has failed indexes"
	}
	return "", ""
}
