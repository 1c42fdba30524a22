package batch

import (
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
			fits := true
			for _, err := range validateJob(&resource.RequestContext{}, test.job, test.old) {
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

// TestLongSucceededIndexes checks that the indexes of a success policy have a
// maximum length.
func TestLongSucceededIndexes(t *testing.T) {
	list := "0" + strings.Repeat(" ", 64<<10)
	errs := validateSuccessRule(field.NewPath("rule"), &batchv1.JobSpec{Completions: ptr.To[int32](3)}, &batchv1.SuccessPolicyRule{SucceededIndexes: &list})
	if len(errs) == 0 || errs[0].Type != field.ErrorTypeTooLong || errs[0].Field != "rule.succeededIndexes" {
		t.Errorf("got %v, want an error about the length first", errs)
	}
}
