package job

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

func jobOf(parallelism, completions, limit int32, mode batch.CompletionMode) *batch.Job {
	labels := map[string]string{"job": "work"}
	return &batch.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "work", UID: "work"},
		Spec: batch.JobSpec{
			Parallelism: &parallelism, Completions: &completions, BackoffLimit: &limit, CompletionMode: &mode,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "c"}}},
			},
		},
	}
}

func podOf(job *batch.Job, n, index int, phase v1.PodPhase) *v1.Pod {
	p := newPod(job, podToCreate{index: index})
	p.Name = fmt.Sprint("p", n)
	p.UID = types.UID(p.Name)
	p.Status.Phase = phase
	return p
}

func TestDecide(t *testing.T) {
	const none, indexedMode = batch.NonIndexedCompletion, batch.IndexedCompletion
	for _, c := range []struct {
		name   string
		job    *batch.Job
		phases []v1.PodPhase
		change func(j *batch.Job)
		want   string
	}{
		{"new", jobOf(2, 3, 6, none), nil, nil, "create 2, delete 0, active 0 "},
		{"one succeeded", jobOf(2, 3, 6, none), []v1.PodPhase{"Succeeded", "Running"}, nil, "create 1, delete 0, active 1 "},
		{"needs no more pods", jobOf(2, 2, 6, none), []v1.PodPhase{"Succeeded", "Running"}, nil, "create 0, delete 0, active 1 "},
		{"has too many pods", jobOf(1, 5, 6, none), []v1.PodPhase{"Running", "Running"}, nil, "create 0, delete 1, active 2 "},
		{"enough have succeeded", jobOf(2, 2, 6, none), []v1.PodPhase{"Succeeded", "Succeeded"}, nil, "create 0, delete 0, active 0 SuccessCriteriaMet/CompletionsReached"},
		{"too many have failed", jobOf(2, 2, 0, none), []v1.PodPhase{"Failed", "Running"}, nil, "create 0, delete 1, active 1 FailureTarget/BackoffLimitExceeded"},
		{"suspended", jobOf(2, 2, 6, none), []v1.PodPhase{"Running"}, func(j *batch.Job) { j.Spec.Suspend = new(true) }, "create 0, delete 1, active 1 Suspended/JobSuspended"},
		{"deadline exceeded", jobOf(1, 1, 6, none), []v1.PodPhase{"Running"}, func(j *batch.Job) {
			j.Spec.ActiveDeadlineSeconds = new(int64(10))
			j.Status.StartTime = new(metav1.NewTime(time.Unix(0, 0)))
		}, "create 0, delete 1, active 1 FailureTarget/DeadlineExceeded"},
		{"has succeeded while suspended", jobOf(2, 2, 6, none), []v1.PodPhase{"Succeeded", "Succeeded"}, func(j *batch.Job) { j.Spec.Suspend = new(true) }, "create 0, delete 0, active 0 SuccessCriteriaMet/CompletionsReached"},
		{"needs one pod less", jobOf(3, 4, 6, none), []v1.PodPhase{"Running", "Running", "Running", "Succeeded", "Succeeded"}, nil, "create 0, delete 1, active 3 "},
		{"a queue that is empty", jobOf(2, 0, 6, none), []v1.PodPhase{"Succeeded", "Running"}, func(j *batch.Job) { j.Spec.Completions = nil }, "create 0, delete 0, active 1 "},
		{"a queue that is done", jobOf(2, 0, 6, none), []v1.PodPhase{"Succeeded", "Failed"}, func(j *batch.Job) { j.Spec.Completions = nil }, "create 0, delete 0, active 0 SuccessCriteriaMet/CompletionsReached"},
		{"is deleted while it is suspended", jobOf(2, 4, 6, none), []v1.PodPhase{"Running"}, func(j *batch.Job) {
			j.Spec.Suspend, j.DeletionTimestamp = new(true), &metav1.Time{Time: time.Unix(900, 0)}
		}, "create 0, delete 0, active 1 "},
		{"has not failed", jobOf(1, 1, 6, none), []v1.PodPhase{"Running"}, func(j *batch.Job) {
			j.Status.Conditions = []batch.JobCondition{{Type: batch.JobFailureTarget, Status: v1.ConditionFalse, Reason: "Manual"}}
		}, "create 0, delete 0, active 1 FailureTarget/Manual"},
		{"indexes", jobOf(3, 5, 6, indexedMode), []v1.PodPhase{"Succeeded", "Running"}, func(j *batch.Job) { j.Status.CompletedIndexes = "4" }, "create 2 [2 3], delete 0, active 1  done 0,4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change != nil {
				c.change(c.job)
			}
			var pods []*v1.Pod
			for i, phase := range c.phases {
				index := -1
				if indexed(c.job) {
					index = i
				}
				pods = append(pods, podOf(c.job, i, index, phase))
			}
			p := decide(snapshot{job: c.job, pods: pods, now: time.Unix(1000, 0)}, 0, time.Time{})
			create := fmt.Sprint(len(p.create))
			if indexed(c.job) {
				var indexes []int
				for _, s := range p.create {
					indexes = append(indexes, s.index)
				}
				create += fmt.Sprint(" ", indexes)
			}
			got := fmt.Sprintf("create %s, delete %d, active %d ", create, len(p.delete), p.status.Active)
			for _, cond := range p.status.Conditions {
				got += string(cond.Type) + "/" + cond.Reason
			}
			if p.status.CompletedIndexes != "" {
				got += " done " + p.status.CompletedIndexes
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestIndexes(t *testing.T) {
	for _, s := range []string{"", "0", "0,1", "0-2", "1,3-5,7,8,10-12"} {
		if got := parseIndexes(s).String(); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
}

func TestBackoff(t *testing.T) {
	for failures, want := range map[int]time.Duration{1: 10 * time.Second, 2: 20 * time.Second, 4: 80 * time.Second, 20: 10 * time.Minute, 400: 10 * time.Minute} {
		if got := backoff(failures); got != want {
			t.Errorf("after %d failures %v, want %v", failures, got, want)
		}
	}
}

func TestRunsToCompletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, jobOf(2, 3, 6, batch.IndexedCompletion))
		registry := prometheus.NewRegistry()
		c.Env.Metrics = registry
		c.Run(Descriptor())
		synctest.Wait()
		status := func() string {
			j, err := c.Fake.BatchV1().Jobs("default").Get(t.Context(), "work", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			last := ""
			if n := len(j.Status.Conditions); n > 0 {
				last = string(j.Status.Conditions[n-1].Type)
			}
			return fmt.Sprintf("active %d succeeded %d [%s] %s", j.Status.Active, j.Status.Succeeded, j.Status.CompletedIndexes, last)
		}
		end := func(index string) {
			t.Helper()
			controllertest.Eventually(t, func() bool {
				for _, p := range c.Pods("default") {
					if p.Labels[batch.JobCompletionIndexAnnotation] == index && p.Status.Phase == "" {
						p.Status.Phase = v1.PodSucceeded
						_, err := c.Fake.CoreV1().Pods("default").UpdateStatus(t.Context(), &p, metav1.UpdateOptions{})
						return err == nil
					}
				}
				return false
			}, true)
		}
		controllertest.Eventually(t, status, "active 2 succeeded 0 [] ")
		end("1")
		controllertest.Eventually(t, status, "active 2 succeeded 1 [1] ")
		end("0")
		end("2")
		controllertest.Eventually(t, status, "active 0 succeeded 3 [0-2] Complete")
		controllertest.Eventually(t, func() int {
			finalizers := 0
			for _, p := range c.Pods("default") {
				finalizers += len(p.Finalizers)
			}
			return finalizers
		}, 0)
		err := testutil.GatherAndCompare(registry, strings.NewReader(`# HELP job_controller_job_finished_indexes_total [ALPHA] The number of finished indexes
# TYPE job_controller_job_finished_indexes_total counter
job_controller_job_finished_indexes_total{backoffLimit="global",status="succeeded"} 3
# HELP job_controller_job_pods_creation_total [ALPHA] The number of Pods created by the Job controller labelled with a reason for the Pod creation
# TYPE job_controller_job_pods_creation_total counter
job_controller_job_pods_creation_total{reason="new",status="failed"} 0
job_controller_job_pods_creation_total{reason="new",status="succeeded"} 3
# HELP job_controller_job_pods_finished_total [STABLE] The number of finished Pods that are fully tracked
# TYPE job_controller_job_pods_finished_total counter
job_controller_job_pods_finished_total{completion_mode="Indexed",result="failed"} 0
job_controller_job_pods_finished_total{completion_mode="Indexed",result="succeeded"} 3
# HELP job_controller_jobs_finished_total [STABLE] The number of finished jobs
# TYPE job_controller_jobs_finished_total counter
job_controller_jobs_finished_total{completion_mode="Indexed",reason="CompletionsReached",result="succeeded"} 1
`), "job_controller_job_finished_indexes_total", "job_controller_job_pods_creation_total", "job_controller_job_pods_finished_total", "job_controller_jobs_finished_total")
		if err != nil {
			t.Error(err)
		}
	})
}

// A sync is counted by what it did.
func TestSyncActions(t *testing.T) {
	c, job := newCounts(), jobOf(1, 1, 6, batch.NonIndexedCompletion)
	pods := []*v1.Pod{podOf(job, 0, -1, v1.PodRunning)}
	for _, s := range []struct {
		plan  *plan
		waits bool
		err   error
		want  string
	}{
		{&plan{}, true, nil, "success reconciling"},
		{&plan{}, false, nil, "success tracking"},
		{&plan{create: make([]podToCreate, 1)}, false, nil, "success pods_created"},
		{&plan{delete: pods}, false, nil, "success pods_deleted"},
		{nil, false, errors.New("no"), "error tracking"},
	} {
		c.synced(job, s.plan, s.waits, s.err, time.Second)
		result, action, _ := strings.Cut(s.want, " ")
		if n := testutil.ToFloat64(c.syncs.WithLabelValues("NonIndexed", result, action)); n != 1 {
			t.Errorf("%s: %v syncs", s.want, n)
		}
	}
}

// Jobs with names of controllers that a user makes up add a bounded number of series.
func TestManyControllers(t *testing.T) {
	c, job := newCounts(), jobOf(1, 1, 6, batch.NonIndexedCompletion)
	for range 2 {
		for i := range maxControllers + 10 {
			job.Spec.ManagedBy = new(fmt.Sprintf("example.com/%d", i))
			c.jobChanged(nil, job)
		}
	}
	if n := testutil.CollectAndCount(c.external); n != maxControllers+1 {
		t.Errorf("%d series, want %d", n, maxControllers+1)
	}
	for name, want := range map[string]float64{"example.com/0": 2, otherControllers: 20} {
		if n := testutil.ToFloat64(c.external.WithLabelValues(name)); n != want {
			t.Errorf("%s: %v Jobs, want %v", name, n, want)
		}
	}
}

// Jobs of other controllers are counted when they appear, and terminated pods when they begin
// and cease to wait until they are in a status.
func TestCountsOfEvents(t *testing.T) {
	c, job := newCounts(), jobOf(1, 1, 6, batch.NonIndexedCompletion)
	c.jobChanged(nil, job)
	other := job.DeepCopy()
	other.Spec.ManagedBy = new("example.com/queue")
	c.jobChanged(nil, other)
	c.jobChanged(other, other)
	c.jobChanged(other, nil)
	if n := testutil.ToFloat64(c.external.WithLabelValues("example.com/queue")); n != 1 || testutil.CollectAndCount(c.external) != 1 {
		t.Errorf("%v Jobs of another controller, %d controllers; want 1 of 1", n, testutil.CollectAndCount(c.external))
	}
	running, ended := podOf(job, 0, -1, v1.PodRunning), podOf(job, 0, -1, v1.PodFailed)
	counted := ended.DeepCopy()
	counted.Finalizers = nil
	for _, step := range []struct {
		old, pod     *v1.Pod
		added, ended float64
	}{
		{nil, running, 0, 0},
		{running, ended, 1, 0},
		{ended, ended, 1, 0},
		{ended, counted, 1, 1},
		{counted, nil, 1, 1},
		{nil, ended, 2, 1},
		{ended, nil, 2, 2},
	} {
		c.podChanged(step.old, step.pod)
		if added, gone := testutil.ToFloat64(c.awaited.WithLabelValues("add")), testutil.ToFloat64(c.awaited.WithLabelValues("delete")); added != step.added || gone != step.ended {
			t.Errorf("%+v: %v added, %v gone", step, added, gone)
		}
	}
}
