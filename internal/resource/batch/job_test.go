package batch

import (
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

func TestCountIndexes(t *testing.T) {
	for _, test := range []struct {
		list    string
		want    int32
		problem string
	}{
		{"", 0, ""},
		{"0", 1, ""},
		{"0,2-4,7", 5, ""},
		{"x", 0, `cannot convert string to integer for index: "x"`},
		{"3-3", 0, "non-increasing order, previous: 3, current: 3"},
		{"4,1", 0, "non-increasing order, previous: 4, current: 1"},
		{"8-10", 0, `too large index: "10"`},
		{"1-2-3", 0, `the fragment "1-2-3" violates the requirement that an index interval can have at most two parts separated by '-'`},
	} {
		t.Run(test.list, func(t *testing.T) {
			got, err := countIndexes(test.list, 10)
			problem := ""
			if err != nil {
				problem = err.Error()
			}
			if got != test.want || problem != test.problem {
				t.Errorf("got %d, %q; want %d, %q", got, problem, test.want, test.problem)
			}
		})
	}
}

func TestJobCells(t *testing.T) {
	start := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	done := metav1.NewTime(start.Add(90 * time.Second))
	now := start.Add(10 * time.Minute)
	with := func(kind batchv1.JobConditionType) []batchv1.JobCondition {
		return []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue}}
	}
	for _, test := range []struct {
		name                         string
		job                          batchv1.Job
		state, completions, duration string
	}{
		{"new", batchv1.Job{}, "Running", "0/1", ""},
		{"work queue", batchv1.Job{Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](3)}}, "Running", "0/1 of 3", ""},
		{"running", batchv1.Job{
			Spec:   batchv1.JobSpec{Completions: ptr.To[int32](4)},
			Status: batchv1.JobStatus{StartTime: &start, Succeeded: 2},
		}, "Running", "2/4", "10m"},
		{"complete", batchv1.Job{
			Spec:   batchv1.JobSpec{Completions: ptr.To[int32](4)},
			Status: batchv1.JobStatus{StartTime: &start, CompletionTime: &done, Succeeded: 4, Conditions: with(batchv1.JobComplete)},
		}, "Complete", "4/4", "90s"},
		{"suspended", batchv1.Job{Status: batchv1.JobStatus{Conditions: with(batchv1.JobSuspended)}}, "Suspended", "0/1", ""},
		{"suspended and deleted", batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &done},
			Status:     batchv1.JobStatus{Conditions: with(batchv1.JobSuspended)},
		}, "Terminating", "0/1", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := &test.job
			state, completions, duration := jobState(j), jobCompletions(j), jobDuration(j, now)
			if state != test.state || completions != test.completions || duration != test.duration {
				t.Errorf("got %q %q %q, want %q %q %q", state, completions, duration, test.state, test.completions, test.duration)
			}
		})
	}
}

// TestOwnPods checks that a job selects its own pods, and that it keeps the
// user's labels and selector.
func TestOwnPods(t *testing.T) {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "u"}}
	j.Spec.Template.Labels = map[string]string{"app": "a"}
	prepareJob(&resource.RequestContext{}, j)
	for key, want := range map[string]string{
		"app": "a", "job-name": "j", "controller-uid": "u",
		"batch.kubernetes.io/job-name": "j", "batch.kubernetes.io/controller-uid": "u",
	} {
		if got := j.Spec.Template.Labels[key]; got != want {
			t.Errorf("label %s of the template is %q, want %q", key, got, want)
		}
		if got := j.Labels[key]; got != want {
			t.Errorf("label %s of the job is %q, want %q", key, got, want)
		}
	}
	if errs := validateOwnPods(j); len(errs) > 0 {
		t.Errorf("own selector refused: %v", errs)
	}

	j.Spec.Selector.MatchLabels["batch.kubernetes.io/controller-uid"] = "other"
	if errs := validateOwnPods(j); len(errs) != 1 {
		t.Errorf("a selector of another job's pods: %v, want one error", errs)
	}
}

// TestOwnLabels checks that each label of the job's pods that the user has not
// set is added, and that those which the user has set are kept.
func TestOwnLabels(t *testing.T) {
	for _, test := range []struct {
		name, key, value string
		errors           int
	}{
		{"older name", "job-name", "j", 0},
		{"name", "batch.kubernetes.io/job-name", "j", 0},
		{"older name of another job", "job-name", "k", 1},
		{"name of another job", "batch.kubernetes.io/job-name", "k", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "u"}}
			j.Spec.Template.Labels = map[string]string{test.key: test.value}
			prepareJob(&resource.RequestContext{}, j)
			if got := j.Spec.Template.Labels[test.key]; got != test.value {
				t.Errorf("label %s is %q, want %q", test.key, got, test.value)
			}
			if got := len(j.Spec.Template.Labels); got != 4 {
				t.Errorf("labels of the template: %v, want 4", j.Spec.Template.Labels)
			}
			if errs := validateOwnPods(j); len(errs) != test.errors {
				t.Errorf("got %v, want %d errors", errs, test.errors)
			}
		})
	}
}

// A job that an older version stored, without the labels with a domain or with values in its
// selector that are no labels, can be changed.
func TestJobsOfOlderVersions(t *testing.T) {
	old := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "u"}}
	old.Spec.Template.Labels = map[string]string{"job-name": "j", "controller-uid": "u"}
	old.Spec.Selector = &metav1.LabelSelector{
		MatchLabels:      map[string]string{"controller-uid": "u"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"no label"}}},
	}
	old.Namespace, old.ResourceVersion, old.CreationTimestamp = "default", "1", metav1.Unix(1_800_000_000, 0)
	old.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	old.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	defaultJob(old)
	next := old.DeepCopy()
	next.Spec.ActiveDeadlineSeconds = ptr.To[int64](7)
	if errs := resourcetest.BeforeUpdate(Jobs(), &resource.RequestContext{Namespace: "default"}, next, old); len(errs) > 0 {
		t.Errorf("an update: %v", errs)
	}
	if errs := append(validateOwnPods(old), validateJobSelector(field.NewPath("spec"), &old.Spec, nil)...); len(errs) != 3 {
		t.Errorf("a new job: %v, want 3 errors: two labels, and a value", errs)
	}
}

// TestJobUpdateErrors checks that an update gives each error once, and which labels of the
// template of a suspended job can change: those that its selector does not have.
func TestJobUpdateErrors(t *testing.T) {
	for name, test := range map[string]struct {
		change func(j *batchv1.Job)
		want   []string
	}{
		"deadline":  {func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = ptr.To[int64](-1) }, []string{"spec.activeDeadlineSeconds"}},
		"label":     {func(j *batchv1.Job) { j.Labels = map[string]string{"a": "no label"} }, []string{"metadata.labels", "metadata.labels", "metadata.labels"}},
		"job name":  {change: func(j *batchv1.Job) { j.Spec.Template.Labels[batchv1.JobNameLabel] = "other" }},
		"own label": {func(j *batchv1.Job) { j.Spec.Template.Labels[batchv1.ControllerUidLabel] = "other" }, []string{"spec.template.metadata.labels"}},
	} {
		old := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "default", UID: "u", CreationTimestamp: metav1.Unix(1_800_000_000, 0)}}
		old.Spec.Suspend = ptr.To(true)
		old.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		old.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
		defaultJob(old)
		if errs := resourcetest.BeforeCreate(Jobs(), &resource.RequestContext{Namespace: "default"}, old); len(errs) > 0 {
			t.Fatal(errs)
		}
		old.ResourceVersion = "1"
		next := old.DeepCopy()
		test.change(next)
		var got []string
		for _, err := range resourcetest.BeforeUpdate(Jobs(), &resource.RequestContext{Namespace: "default"}, next, old) {
			got = append(got, err.Field)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: errors of %q, want %q", name, got, test.want)
		}
	}
}

// TestNoWarningsOfOldSpecs checks that an update that leaves the spec as it was
// gives no warnings about it.
func TestNoWarningsOfOldSpecs(t *testing.T) {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j"}}
	j.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	j.Spec.Completions, j.Spec.Parallelism = ptr.To[int32](100_001), ptr.To[int32](10_001)
	request, warnings := &resource.RequestContext{}, Jobs().Strategy.Warnings
	if got := warnings(request, j, nil); len(got) != 1 {
		t.Errorf("warnings of a new job: %q, want one", got)
	}
	if got := warnings(request, j, j.DeepCopy()); len(got) != 0 {
		t.Errorf("warnings of an unchanged spec: %q, want none", got)
	}
	old := j.DeepCopy()
	old.Spec.Parallelism = ptr.To[int32](1)
	if got := warnings(request, j, old); len(got) != 1 {
		t.Errorf("warnings of a changed spec: %q, want one", got)
	}
}

func TestCompletionsUpdate(t *testing.T) {
	for _, test := range []struct {
		name                     string
		mode                     batchv1.CompletionMode
		before, now, parallelism int32
		allowed                  bool
	}{
		{"unchanged", batchv1.IndexedCompletion, 4, 4, 2, true},
		{"indexed, with parallelism", batchv1.IndexedCompletion, 4, 6, 6, true},
		{"indexed, without parallelism", batchv1.IndexedCompletion, 4, 6, 2, false},
		{"not indexed", batchv1.NonIndexedCompletion, 4, 6, 6, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			old := &batchv1.JobSpec{CompletionMode: &test.mode, Completions: &test.before}
			s := &batchv1.JobSpec{CompletionMode: &test.mode, Completions: &test.now, Parallelism: &test.parallelism}
			if errs := validateCompletionsUpdate(nil, s, old); (len(errs) == 0) != test.allowed {
				t.Errorf("got %v, want allowed %v", errs, test.allowed)
			}
		})
	}
}
