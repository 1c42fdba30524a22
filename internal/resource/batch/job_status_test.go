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
			want: `status.startTime: Invalid value: "2026-01-01T00:00:01Z": field is immutable for unsuspended job once set`,
		},
		"no start time any more":           {old: running, next: `{active: 1}`, want: `status.startTime: Invalid value: null: field is immutable for unsuspended job once set`},
		"no start time of a suspended job": {spec: `{suspend: true}`, old: running, next: `{active: 1}`},
		"starts anew": {
			old:  `{startTime: "2026-01-01T00:00:00Z", conditions: [{type: Suspended, status: "True"}]}`,
			next: `{startTime: "2026-01-01T00:00:01Z", conditions: [{type: Suspended, status: "False"}]}`,
		},
		"fewer failed pods":           {old: `{failed: 3}`, next: `{failed: 1}`, want: `status.failed: Invalid value: 1: cannot decrease the failed counter`},
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
		"failed indexes that are none": {
			spec: `{completionMode: Indexed, completions: 5, backoffLimitPerIndex: 1}`, next: `{failedIndexes: "x"}`,
			want: `status.failedIndexes: Invalid value: "x": error parsing failedIndexes: cannot convert string to integer for index: "x"`,
		},
		"an index is completed that had failed": {
			spec: `{completionMode: Indexed, completions: 5}`, old: `{failedIndexes: "0,2", completedIndexes: "3-4"}`, next: `{failedIndexes: "0,2", completedIndexes: "2-4"}`,
			want: `status.failedIndexes: Invalid value: "0,2": failedIndexes and completedIndexes overlap at index: 2`,
		},
	})
}

// What was wrong before may stay, so that the status can be written.
func TestWrongStatusStays(t *testing.T) {
	const indexed = `{completionMode: Indexed, completions: 5, backoffLimitPerIndex: 1}`
	for name, test := range map[string]struct{ spec, status string }{
		"completion time of a running job": {`{}`, times},
		"completed indexes":                {`{completions: 5}`, `completedIndexes: "0"`},
		"completed indexes that are none":  {indexed, `completedIndexes: "x"`},
		"failed indexes that are none":     {indexed, `failedIndexes: "x"`},
		"completed and failed indexes":     {indexed, `failedIndexes: "0,2", completedIndexes: "2-4"`},
	} {
		checkStatus(t, map[string]statusCase{name: {spec: test.spec, old: `{` + test.status + `}`, next: `{` + test.status + `, active: 1}`}})
	}
	const uncounted = `{` + times + `, uncountedTerminatedPods: {failed: [a]}, conditions: [{type: Complete, status: "True"}]}`
	checkStatus(t, map[string]statusCase{
		"more ready than active pods":           {old: `{active: 1, ready: 2}`, next: `{active: 1, ready: 2, succeeded: 1}`},
		"uncounted pods of a complete job":      {old: uncounted, next: strings.Replace(uncounted, "[{type: Complete", `[{type: Custom, status: "True"}, {type: Complete`, 1)},
		"completion time of a running job goes": {old: `{` + times + `}`, next: `{startTime: "2026-01-01T00:00:00Z"}`},
		"other uncounted pods of a complete job": {
			old: uncounted, next: strings.Replace(uncounted, "[a]", "[b]", 1),
			want: `status.uncountedTerminatedPods: Invalid value: {"Succeeded":null,"Failed":["b"]}: must be empty for finished job`,
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
		"completes without its reason": {
			old: running, next: `{` + times + `, conditions: [{type: Complete, status: "True"}]}`,
			want: `status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition`,
		},
		"fails without its reason": {
			old: running, next: `{startTime: "2026-01-01T00:00:00Z", conditions: [{type: Failed, status: "True"}]}`,
			want: `status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition`,
		},
		"fails without a start": {
			next: `{conditions: [{type: FailureTarget, status: "True"}, {type: Failed, status: "True"}]}`,
			want: `status.startTime: Required value: startTime is required for finished job`,
		},
		"has nothing to do": {
			spec: `{completions: 0, suspend: true}`,
			next: `{completionTime: "2026-01-01T00:01:00Z", conditions: [{type: SuccessCriteriaMet, status: "True"}, {type: Complete, status: "True"}]}`,
		},
	})
}

func TestStatusAfterTheEnd(t *testing.T) {
	checkStatus(t, map[string]statusCase{
		"has a completion time while it runs": {
			old: running, next: `{` + times + `, active: 1, ready: 1}`,
			want: `status.completionTime: Invalid value: "2026-01-01T00:01:00Z": cannot set completionTime when there is no Complete=True condition`,
		},
		"completes at another time": {
			old: complete, next: strings.Replace(complete, "00:01:00Z", "00:02:00Z", 1),
			want: `status.completionTime: Invalid value: "2026-01-01T00:02:00Z": completionTime cannot be mutated`,
		},
		"has no completion time any more": {
			old: complete, next: strings.Replace(complete, `, completionTime: "2026-01-01T00:01:00Z"`, "", 1),
			want: `status.completionTime: Required value: completionTime is required for Complete jobs`,
		},
		"fails after it has completed": {
			old: complete, next: strings.Replace(complete, `{type: Complete`, `{type: FailureTarget, status: "True"}, {type: Complete`, 1),
			want: `status.conditions: Invalid value: cannot set Complete=True and FailureTarget=true conditions
status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions`,
		},
		"has failed no more": {
			old: `{conditions: [{type: Failed, status: "True"}, {type: FailureTarget, status: "True"}]}`, next: `{}`,
			want: `status.conditions: Invalid value: cannot disable the terminal Failed=True condition
status.conditions: Invalid value: cannot disable the terminal FailureTarget=True condition`,
		},
		"meets its criteria after it has completed": {
			old: `{conditions: [{type: Complete, status: "True"}]}`, next: `{conditions: [{type: Complete, status: "True"}, {type: SuccessCriteriaMet, status: "True"}]}`,
			want: `status.conditions: Invalid value: cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions`,
		},
		"meets its criteria after it has failed": {
			old: `{conditions: [{type: Failed, status: "True"}]}`, next: `{conditions: [{type: Failed, status: "True"}, {type: SuccessCriteriaMet, status: "True"}]}`,
			want: `status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and Failed=true conditions`,
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
