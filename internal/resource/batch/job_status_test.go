package batch

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
)

type statusCase struct{ spec, old, next, want string }

const (
	times    = `startTime: "2026-01-01T00:00:00Z", completionTime: "2026-01-01T00:01:00Z"`
	complete = `{` + times + `, succeeded: 1, conditions: [{type: SuccessCriteriaMet, status: "True"}, {type: Complete, status: "True"}]}`
	running  = `{startTime: "2026-01-01T00:00:00Z", active: 1, ready: 1}`
)

func TestJobStatus(t *testing.T) {
	checkStatus(t, map[string]statusCase{
		"runs": {next: running},
		"changed start time": {
			old: running, next: `{startTime: "2026-01-01T00:00:01Z", active: 1}`,
			want: `status.startTime: Required value: startTime cannot be removed for unsuspended job`,
		},
		"more ready than active pods": {next: `{active: 1, ready: 2}`, want: `status.ready: Invalid value: 2: cannot set more ready pods than active`},
		"indexes": {
			spec: `{completionMode: Indexed, completions: 9, backoffLimitPerIndex: 1}`, next: `{completedIndexes: "0,2-4", failedIndexes: "1,4"}`,
			want: `status.failedIndexes: Invalid value: "1,4": failedIndexes and completedIndexes overlap at index: 4`,
		},
		"indexes of a non-indexed job": {
			spec: `{completions: 3}`, next: `{completedIndexes: "0,9", failedIndexes: "1"}`,
			want: `status.completedIndexes: Invalid value: "0,9": error parsing completedIndexes: too large index: "9"
status.completedIndexes: Invalid value: "0,9": cannot set non-empty completedIndexes when non-indexed completion mode
status.failedIndexes: Invalid value: "1": cannot set non-null failedIndexes when backoffLimitPerIndex is null`,
		},
	})
}

// TestFewerSucceededPods checks that only the count of an indexed job that can
// be scaled down may decrease.
func TestFewerSucceededPods(t *testing.T) {
	const one = `{startTime: "2026-01-01T00:00:00Z", active: 1, ready: 1, succeeded: 1}`
	const refused = "status.succeeded: Invalid value: 0: cannot decrease the succeeded counter"
	checkStatus(t, map[string]statusCase{
		"indexed": {spec: `{completionMode: Indexed, completions: 2, parallelism: 2}`, old: one, next: running},
		"indexed, with other parallelism": {
			spec: `{completionMode: Indexed, completions: 2, parallelism: 1}`, old: one, next: running, want: refused,
		},
		"not indexed": {
			spec: `{completionMode: NonIndexed, completions: 2, parallelism: 2}`, old: one, next: running, want: refused,
		},
	})
}

func TestFinishedJobStatus(t *testing.T) {
	checkStatus(t, map[string]statusCase{
		"completes": {old: running, next: complete},
		"fails": {
			old:  running,
			next: `{startTime: "2026-01-01T00:00:00Z", failed: 1, conditions: [{type: FailureTarget, status: "True"}, {type: Failed, status: "True"}]}`,
		},
		"is complete and failed": {
			next: `{` + times + `, conditions: [{type: Complete, status: "True"}, {type: Failed, status: "True"}]}`,
			want: `status.conditions: Invalid value: cannot set Complete=True and Failed=true conditions
status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition
status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition`,
		},
		"completes while pods run": {
			old:  running,
			next: strings.Replace(complete, "succeeded: 1", "active: 1, terminating: 1, uncountedTerminatedPods: {succeeded: [a, a]}", 1),
			want: `status.uncountedTerminatedPods.succeeded[1]: Duplicate value: "a"
status.active: Invalid value: 1: active>0 is invalid for finished job
status.uncountedTerminatedPods: Invalid value: {"Succeeded":["a","a"],"Failed":null}: must be empty for finished job
status.terminating: Invalid value: 1: terminating>0 is invalid for finished job`,
		},
		"completes without times": {
			next: `{conditions: [{type: SuccessCriteriaMet, status: "True"}, {type: Complete, status: "True"}]}`,
			want: `status.completionTime: Required value: completionTime is required for Complete jobs
status.startTime: Required value: startTime is required for finished job`,
		},
		"completes before it starts": {
			next: `{startTime: "2026-01-01T00:01:00Z", completionTime: "2026-01-01T00:00:00Z",
  conditions: [{type: SuccessCriteriaMet, status: "True"}, {type: Complete, status: "True"}]}`,
			want: "status.completionTime: Invalid value: \"2026-01-01T00:00:00Z\": must be equal to or after `startTime`",
		},
		"is no longer complete": {
			spec: `{completions: 1, parallelism: 2}`, old: complete, next: running,
			want: `status.conditions: Invalid value: cannot disable the terminal Complete=True condition
status.succeeded: Invalid value: 0: cannot decrease the succeeded counter
status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition`,
		},
	})
}

// checkStatus writes the status next over the status old of a job with the
// fields in spec, and compares all errors, in order, with the beginnings in
// the lines of want.
func checkStatus(t *testing.T, cases map[string]statusCase) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			old, next := &batchv1.Job{}, &batchv1.Job{}
			for _, part := range []struct {
				text string
				into any
			}{{test.spec, &old.Spec}, {test.spec, &next.Spec}, {test.old, &old.Status}, {test.next, &next.Status}} {
				if err := yaml.Unmarshal([]byte(part.text), part.into); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			for _, err := range validateJobStatus(&resource.RequestContext{}, next, old) {
				got = append(got, err.Error())
			}
			var want []string
			if test.want != "" {
				want = strings.Split(test.want, "\n")
			}
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
					t.Fatalf("want\n%s\ngot\n%s", test.want, strings.Join(got, "\n"))
				}
			}
		})
	}
}
