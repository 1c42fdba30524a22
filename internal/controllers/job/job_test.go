package job

import (
	"fmt"
	"testing"
	"time"

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
	p := newPod(job, slot{index: index})
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
		{"begins", jobOf(2, 3, 6, none), nil, nil, "create 2, delete 0, active 0 "},
		{"goes on after a success", jobOf(2, 3, 6, none), []v1.PodPhase{"Succeeded", "Running"}, nil, "create 1, delete 0, active 1 "},
		{"needs no more", jobOf(2, 2, 6, none), []v1.PodPhase{"Succeeded", "Running"}, nil, "create 0, delete 0, active 1 "},
		{"has too many", jobOf(1, 5, 6, none), []v1.PodPhase{"Running", "Running"}, nil, "create 0, delete 1, active 2 "},
		{"enough have succeeded", jobOf(2, 2, 6, none), []v1.PodPhase{"Succeeded", "Succeeded"}, nil, "create 0, delete 0, active 0 SuccessCriteriaMet/CompletionsReached"},
		{"too many have failed", jobOf(2, 2, 0, none), []v1.PodPhase{"Failed", "Running"}, nil, "create 0, delete 1, active 0 FailureTarget/BackoffLimitExceeded"},
		{"is suspended", jobOf(2, 2, 6, none), []v1.PodPhase{"Running"}, func(j *batch.Job) { j.Spec.Suspend = new(true) }, "create 0, delete 1, active 0 Suspended/JobSuspended"},
		{"took too long", jobOf(1, 1, 6, none), []v1.PodPhase{"Running"}, func(j *batch.Job) {
			j.Spec.ActiveDeadlineSeconds = new(int64(10))
			j.Status.StartTime = new(metav1.NewTime(time.Unix(0, 0)))
		}, "create 0, delete 1, active 0 FailureTarget/DeadlineExceeded"},
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
	for streak, want := range map[int]time.Duration{1: 10 * time.Second, 2: 20 * time.Second, 4: 80 * time.Second, 20: 10 * time.Minute, 400: 10 * time.Minute} {
		if got := backoff(streak); got != want {
			t.Errorf("after %d failures %v, want %v", streak, got, want)
		}
	}
}

func TestRunsToCompletion(t *testing.T) {
	c := controllertest.New(t, jobOf(2, 3, 6, batch.IndexedCompletion))
	c.Run(Descriptor())
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
		held := 0
		for _, p := range c.Pods("default") {
			held += len(p.Finalizers)
		}
		return held
	}, 0)
}
