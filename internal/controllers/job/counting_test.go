package job

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller"
)

// The status counts deleted pods as terminating at once, and pods that could not be deleted as
// active.
func TestCountsOfDeletedPods(t *testing.T) {
	job := jobOf(1, 1, 6, batch.NonIndexedCompletion)
	job.Spec.PodReplacementPolicy = new(batch.Failed)
	var pods []*v1.Pod
	for i := range 6 {
		p := podOf(job, i, -1, v1.PodRunning)
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		if i >= 2 {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(990, 0)}
		}
		pods = append(pods, p)
	}
	for _, fails := range []bool{false, true} {
		p := decideAt(job, pods...)
		var remaining []*v1.Pod
		want := "deletes 1, active 1, ready 1, terminating 5"
		if fails {
			remaining, want = p.delete, "deletes 1, active 2, ready 2, terminating 4"
		}
		p.countDeletions(remaining)
		got := fmt.Sprintf("deletes %d, active %d, ready %d, terminating %d", len(p.delete), p.status.Active, *p.status.Ready, *p.status.Terminating)
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// Pods that have none of the indexes of their Job are deleted, and neither succeed nor fail for it.
func TestPodsWithoutIndex(t *testing.T) {
	job := jobOf(2, 5, 0, batch.IndexedCompletion)
	phases := []v1.PodPhase{v1.PodSucceeded, v1.PodRunning, v1.PodSucceeded, v1.PodPending, v1.PodFailed, v1.PodFailed}
	var pods []*v1.Pod
	for i, index := range []int{0, 5, 6, 7, 8, -1} {
		pods = append(pods, podOf(job, i, index, phases[i]))
	}
	pods[5].Annotations = map[string]string{batch.JobCompletionIndexAnnotation: "invalid"}
	p := decideAt(job, pods...)
	if got, want := describe(p), "release p0 p2 p4 p5, delete p1 p3"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if st := p.status; st.CompletedIndexes != "0" || st.Succeeded != 1 || st.Failed != 0 || len(st.UncountedTerminatedPods.Failed) != 0 {
		t.Errorf("status %v", st)
	}
	c := &jobs{backoffs: map[controller.Key]backoffRecord{}}
	if n := c.recordFailures(job, pods, time.Now()).failures; n != 0 {
		t.Errorf("%d failures delay new pods", n)
	}
}

// A Job whose success policy is met does not fail any more, but its failures are recorded.
func TestFailuresAfterSuccess(t *testing.T) {
	policy := &batch.PodFailurePolicy{Rules: []batch.PodFailurePolicyRule{{
		Action:          batch.PodFailurePolicyActionFailJob,
		OnPodConditions: []batch.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
	}}}
	for _, c := range []struct {
		name          string
		change        func(*batch.JobSpec)
		failedIndexes string
	}{
		{"that the policy would fail", func(j *batch.JobSpec) { j.PodFailurePolicy = policy }, ""},
		{"that exceeds its limit", func(j *batch.JobSpec) { j.BackoffLimit = new(int32(0)) }, ""},
		{"that fails its index", func(j *batch.JobSpec) { j.BackoffLimitPerIndex = new(int32(0)) }, "0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := jobOf(2, 2, 6, batch.IndexedCompletion)
			c.change(&job.Spec)
			job.Status.CompletedIndexes, job.Status.Succeeded = "1", 1
			job.Status.Conditions = []batch.JobCondition{{Type: batch.JobSuccessCriteriaMet, Status: v1.ConditionTrue, Reason: batch.JobReasonSuccessPolicy}}
			pod := podOf(job, 0, 0, v1.PodFailed)
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}}
			job.Status = decideAt(job, pod).status
			pod.Finalizers = nil
			st := decideAt(job, pod).status
			if !has(&st, batch.JobComplete) || has(&st, batch.JobFailureTarget) || st.Failed != 1 {
				t.Errorf("%d failed, conditions %v", st.Failed, st.Conditions)
			}
			if st.FailedIndexes != nil && *st.FailedIndexes != c.failedIndexes {
				t.Errorf("failed indexes %q, want %q", *st.FailedIndexes, c.failedIndexes)
			}
		})
	}
}

// A Job whose condition FailureTarget is False fails by its policy.
func TestFailureTargetIsFalse(t *testing.T) {
	job := jobOf(1, 1, 6, batch.NonIndexedCompletion)
	job.Spec.PodFailurePolicy = &batch.PodFailurePolicy{Rules: []batch.PodFailurePolicyRule{{
		Action:      batch.PodFailurePolicyActionFailJob,
		OnExitCodes: &batch.PodFailurePolicyOnExitCodesRequirement{Operator: batch.PodFailurePolicyOnExitCodesOpIn, Values: []int32{3}},
	}}}
	job.Status.Conditions = []batch.JobCondition{{Type: batch.JobFailureTarget, Status: v1.ConditionFalse}}
	pod := podOf(job, 0, -1, v1.PodFailed)
	pod.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3}}}}
	if p := decideAt(job, pod); !has(&p.status, batch.JobFailureTarget) {
		t.Errorf("conditions %v", p.status.Conditions)
	}
}

// The status holds the UIDs of few pods at a time. The others count for decisions.
func TestManyFinishedPods(t *testing.T) {
	for _, c := range []struct {
		phase v1.PodPhase
		want  string
	}{
		{v1.PodSucceeded, "500 uncounted, releases 500, creates 0: SuccessCriteriaMet/CompletionsReached"},
		{v1.PodFailed, "500 uncounted, releases 500, creates 0: FailureTarget/BackoffLimitExceeded"},
	} {
		job := jobOf(600, 600, 599, batch.NonIndexedCompletion)
		var pods []*v1.Pod
		for i := range 600 {
			pods = append(pods, podOf(job, i, -1, c.phase))
		}
		p := decideAt(job, pods...)
		uncounted := p.status.UncountedTerminatedPods
		got := fmt.Sprintf("%d uncounted, releases %d, creates %d:", len(uncounted.Succeeded)+len(uncounted.Failed), len(p.release), len(p.create))
		for _, cond := range p.status.Conditions {
			got += fmt.Sprintf(" %s/%s", cond.Type, cond.Reason)
		}
		if got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// Of the failed pods of an index, the one that failed last keeps its finalizer until it is
// replaced.
func TestLastFailedPod(t *testing.T) {
	job := jobOf(2, 2, 6, batch.IndexedCompletion)
	job.Spec.BackoffLimitPerIndex = new(int32(4))
	pods := []*v1.Pod{
		attempt{0, 1, 1}.pod(job, 0), attempt{0, 1, 1}.pod(job, 1), attempt{0, 1, 1}.pod(job, 2),
		attempt{1, 0, 1}.pod(job, 3), attempt{1, 2, 1}.pod(job, 4), attempt{1, 1, 1}.pod(job, 5),
	}
	pods[1].Status.ContainerStatuses[0].State.Terminated.FinishedAt = metav1.NewTime(time.Unix(950, 0))
	s := snapshot{job: job, pods: pods, now: time.Unix(1000, 0)}
	last := s.lastFailedPods(&plan{})
	if len(last) != 2 || last[0] != pods[1] || last[1] != pods[4] {
		t.Errorf("keeps %v", last)
	}
	// A pod that has replaced a failed one need not tell how often its index has failed.
	s.pods = append(pods[3:6:6], attempt{1, 0, -1}.pod(job, 6))
	if last := s.lastFailedPods(&plan{}); len(last) != 0 {
		t.Errorf("keeps %v though the index has a running pod", last)
	}
}

// Failures before the last success do not delay new pods, nor those at the same time.
func TestFailuresSinceLastSuccess(t *testing.T) {
	for _, c := range []struct {
		succeeded, failed []int64 // seconds
		want              string
	}{
		{nil, nil, "0"},
		{nil, []int64{10}, "1 at 10"},
		{nil, []int64{10, 9}, "2 at 10"},
		{[]int64{10}, []int64{8, 9}, "0"},
		{[]int64{8}, []int64{10, 6, 7, 9}, "2 at 10"},
		{[]int64{10}, []int64{10}, "0"},
		{[]int64{10}, nil, "0"},
	} {
		job := jobOf(1, 1, 6, batch.NonIndexedCompletion)
		var pods []*v1.Pod
		add := func(phase v1.PodPhase, seconds []int64) {
			for _, at := range seconds {
				p := podOf(job, len(pods), -1, phase)
				p.Status.ContainerStatuses = []v1.ContainerStatus{terminated("c", at)}
				pods = append(pods, p)
			}
		}
		add(v1.PodSucceeded, c.succeeded)
		add(v1.PodFailed, c.failed)
		r := (&jobs{backoffs: map[controller.Key]backoffRecord{}}).recordFailures(job, pods, time.Unix(1000, 0))
		got := fmt.Sprint(r.failures)
		if r.failures > 0 {
			got += fmt.Sprint(" at ", r.lastFailure.Unix())
		}
		if got != c.want {
			t.Errorf("succeeded at %v, failed at %v: %s failures, want %s", c.succeeded, c.failed, got, c.want)
		}
	}
}

// terminated returns the status of a container that terminated at a time in seconds; 0 means
// that the time is unknown.
func terminated(name string, at int64) v1.ContainerStatus {
	s := v1.ContainerStatus{Name: name, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}
	if at > 0 {
		s.State.Terminated.FinishedAt = metav1.NewTime(time.Unix(at, 0))
	}
	return s
}

func TestFinishTime(t *testing.T) {
	running := v1.ContainerStatus{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
	ready := func(p *v1.Pod, status v1.ConditionStatus, at int64) {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(time.Unix(at, 0))}}
	}
	deleted := func(p *v1.Pod, at int64) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(at, 0)} }
	for _, c := range []struct {
		name   string
		change func(p *v1.Pod)
		want   int64
	}{
		{"the last of all containers", func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{terminated("a", 99), terminated("b", 100), terminated("c", 98)}
		}, 100},
		{"a sidecar is last", func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "side", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}}
			p.Status.ContainerStatuses = []v1.ContainerStatus{terminated("a", 99)}
			p.Status.InitContainerStatuses = []v1.ContainerStatus{terminated("side", 100)}
		}, 100},
		{"an init container is first", func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "init"}}
			p.Status.ContainerStatuses = []v1.ContainerStatus{terminated("a", 100)}
			p.Status.InitContainerStatuses = []v1.ContainerStatus{terminated("init", 0)}
		}, 100},
		{"one container runs", func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{terminated("a", 99), running, terminated("c", 98)}
			deleted(p, 100)
		}, 100},
		{"deleted with a grace period", func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{running}
			deleted(p, 130)
			p.DeletionGracePeriodSeconds = new(int64(30))
		}, 100},
		{"not ready any more", func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{terminated("a", 0)}
			ready(p, v1.ConditionFalse, 100)
			deleted(p, 130)
		}, 100},
		{"still ready", func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{terminated("a", 0)}
			ready(p, v1.ConditionTrue, 70)
			deleted(p, 100)
		}, 100},
		{"nothing is known", func(p *v1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Unix(100, 0)) }, 100},
	} {
		p := &v1.Pod{}
		c.change(p)
		if got := finishTime(p).Unix(); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestMatchPodFailurePolicy(t *testing.T) {
	type rule = batch.PodFailurePolicyRule
	const ignore, fail, count = batch.PodFailurePolicyActionIgnore, batch.PodFailurePolicyActionFailJob, batch.PodFailurePolicyActionCount
	exit := func(action batch.PodFailurePolicyAction, operator batch.PodFailurePolicyOnExitCodesOperator, codes ...int32) rule {
		return rule{Action: action, OnExitCodes: &batch.PodFailurePolicyOnExitCodesRequirement{Operator: operator, Values: codes}}
	}
	target := func(action batch.PodFailurePolicyAction, status v1.ConditionStatus) rule {
		return rule{Action: action, OnPodConditions: []batch.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: status}}}
	}
	const in, notIn = batch.PodFailurePolicyOnExitCodesOpIn, batch.PodFailurePolicyOnExitCodesOpNotIn
	for _, c := range []struct {
		name      string
		rules     []rule
		codes     []int32 // of an init container and others
		condition v1.ConditionStatus
		want      string
	}{
		{"an unknown action", []rule{exit("Unknown", in, 1, 2), exit(fail, in, 2, 3)}, []int32{0, 2}, "", "FailJob: Container c1 for pod default/p failed with exit code 2 matching FailJob rule at index 1"},
		{"an unknown action for a condition", []rule{target("Unknown", v1.ConditionTrue), target(ignore, v1.ConditionTrue)}, nil, v1.ConditionTrue, "Ignore: Pod default/p has condition DisruptionTarget matching Ignore rule at index 1"},
		{"an unknown operator", []rule{exit(ignore, "Unknown", 1, 2), exit(fail, in, 7)}, []int32{0, 7}, "", "FailJob: Container c1 for pod default/p failed with exit code 7 matching FailJob rule at index 1"},
		{"successful containers", []rule{exit(fail, notIn, 111)}, []int32{0, 111, 0}, "", "Count: "},
		{"NotIn zero", []rule{exit(fail, notIn, 0)}, []int32{0, 1, 0}, "", "FailJob: Container c1 for pod default/p failed with exit code 1 matching FailJob rule at index 0"},
		{"a negative code", []rule{exit(ignore, in, -1073741510)}, []int32{0, -1073741510}, "", "Ignore: Container c1 for pod default/p failed with exit code -1073741510 matching Ignore rule at index 0"},
		{"an init container", []rule{exit(ignore, in, 1), exit(fail, in, 5)}, []int32{5, 143}, "", "FailJob: Container c0 for pod default/p failed with exit code 5 matching FailJob rule at index 1"},
		{"the first of two rules", []rule{exit(ignore, in, 1, 2), exit(fail, in, 6)}, []int32{0, 6, 2}, "", "Ignore: Container c2 for pod default/p failed with exit code 2 matching Ignore rule at index 0"},
		{"a condition that is unknown", []rule{target(ignore, v1.ConditionUnknown)}, nil, v1.ConditionUnknown, "Ignore: Pod default/p has condition DisruptionTarget matching Ignore rule at index 0"},
		{"a condition that is True", []rule{target(ignore, v1.ConditionFalse)}, nil, v1.ConditionTrue, "Count: "},
		{"a condition that is False", []rule{target(ignore, v1.ConditionTrue)}, nil, v1.ConditionFalse, "Count: "},
		{"no rule matches", []rule{exit(count, in, 8), target(fail, v1.ConditionTrue)}, []int32{0, 32}, "", "Count: "},
	} {
		job := jobOf(1, 1, 6, batch.NonIndexedCompletion)
		job.Spec.PodFailurePolicy = &batch.PodFailurePolicy{Rules: c.rules}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
		for i, code := range c.codes {
			s := terminated(fmt.Sprint("c", i), 0)
			s.State.Terminated.ExitCode = code
			if i == 0 {
				pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, s)
			} else {
				pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, s)
			}
		}
		if c.condition != "" {
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: c.condition}}
		}
		action, message := matchPodFailurePolicy(job, pod)
		if got := fmt.Sprintf("%s: %s", action, message); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

// The API server cuts names to generate after 58 bytes. The index must not be among what is cut.
func TestGenerateName(t *testing.T) {
	long := strings.Repeat("hhhhhooooo", 6)
	for job, want := range map[string]string{
		"short":   "short-1-",
		long:      long[:55] + "-1-",
		long[:57]: long[:55] + "-1-",
	} {
		if got := generateName(job, "1"); got != want {
			t.Errorf("%s: %s, want %s", job, got, want)
		}
	}
}

func TestFailuresBefore(t *testing.T) {
	for annotation, want := range map[string]int{"": 0, "2": 2, "2147483647": 2147483647, "2147483648": 0, "-1": 0, "xyz": 0} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{batch.JobIndexFailureCountAnnotation: annotation}}}
		if got := failuresBefore(pod).counted; got != want {
			t.Errorf("%q: %d, want %d", annotation, got, want)
		}
	}
}
