package batch

import (
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
)

// TestHostnamesOfIndexedJob checks that the name of a job leaves room for the
// highest index, also when the job is scaled up.
func TestHostnamesOfIndexedJob(t *testing.T) {
	indexed := func(completions int32) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("a", 61), UID: "u"}}
		j.Spec.CompletionMode, j.Spec.Completions = ptr.To(batchv1.IndexedCompletion), &completions
		return j
	}
	for _, test := range []struct {
		name     string
		job, old *batchv1.Job
		want     bool
	}{
		{"one digit", indexed(10), nil, true},
		{"two digits", indexed(11), nil, false},
		{"scaled up", indexed(11), indexed(10), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			fits, request := true, &resource.RequestContext{}
			errs := validateJob(request, test.job)
			if test.old != nil {
				errs = validateJobUpdate(request, test.job, test.old)
			}
			for _, err := range errs {
				fits = fits && err.Field != "metadata.name"
			}
			if fits != test.want {
				t.Errorf("fits: %t, want %t", fits, test.want)
			}
		})
	}
}

// TestManyCompletions checks the limit of failed indexes of large jobs.
func TestManyCompletions(t *testing.T) {
	s := &batchv1.JobSpec{Completions: ptr.To[int32](100_001), MaxFailedIndexes: ptr.To[int32](10_001), BackoffLimitPerIndex: ptr.To[int32](1)}
	errs := validateIndexed(field.NewPath("spec"), s)
	const want = "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index"
	if len(errs) != 1 || errs[0].Field != "spec.maxFailedIndexes" || errs[0].Detail != want {
		t.Errorf("got %v, want one error at maxFailedIndexes: %s", errs, want)
	}
}

// TestIndexedLimits checks that each limit of an indexed job has its error, in their order.
func TestIndexedLimits(t *testing.T) {
	for name, test := range map[string]struct {
		completions, parallelism, failed, perIndex *int32
		want                                       []string
	}{
		"none":             {ptr.To[int32](3), ptr.To[int32](9), nil, nil, nil},
		"without a number": {nil, ptr.To[int32](100_001), ptr.To[int32](100_001), nil, []string{"completions", "parallelism", "maxFailedIndexes"}},
		"failed":           {ptr.To[int32](3), nil, ptr.To[int32](100_001), ptr.To[int32](1), []string{"maxFailedIndexes", "maxFailedIndexes"}},
		"negative":         {ptr.To[int32](-1), nil, ptr.To[int32](0), ptr.To[int32](1), []string{"maxFailedIndexes"}},
		"many":             {ptr.To[int32](100_001), ptr.To[int32](10_001), nil, ptr.To[int32](1), []string{"maxFailedIndexes", "parallelism"}},
		"many, failed":     {ptr.To[int32](100_001), ptr.To[int32](10_001), ptr.To[int32](10_001), ptr.To[int32](1), []string{"parallelism", "maxFailedIndexes"}},
		"many, unlimited":  {ptr.To[int32](100_001), ptr.To[int32](10_001), nil, nil, nil},
	} {
		s := &batchv1.JobSpec{Completions: test.completions, Parallelism: test.parallelism, MaxFailedIndexes: test.failed, BackoffLimitPerIndex: test.perIndex}
		var got []string
		for _, err := range validateIndexed(nil, s) {
			got = append(got, err.Field)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: errors of %q, want %q", name, got, test.want)
		}
	}
}

// TestLongSucceededIndexes checks that the indexes of a success policy have a
// maximum length.
func TestLongSucceededIndexes(t *testing.T) {
	list := "0" + strings.Repeat(" ", 64<<10)
	errs := validateSuccessRule(field.NewPath("rule"), &batchv1.JobSpec{Completions: ptr.To[int32](3)}, &batchv1.SuccessPolicyRule{SucceededIndexes: &list})
	if len(errs) == 0 || errs[0].Type != field.ErrorTypeTooLong || errs[0].Field != "rule.succeededIndexes" {
		t.Errorf("got %v, want an error about the length first", errs)
	}
}
