package resourcetest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// difference has how an outcome differs from upstream's answer.
type difference struct {
	code, causes, object string // "" where they agree
}

func (d difference) none() bool { return d == difference{} }

func (d difference) String() string {
	var parts []string
	for _, part := range []string{d.code, d.causes, d.object} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "\n")
}

func compare(want *Answer, got Outcome) difference {
	var d difference
	if want.Code != got.Code {
		d.code = fmt.Sprintf("  want %d %s\n  got  %d %s", want.Code, want.Message, got.Code, got.Status.Message)
	}
	if want.Code >= 400 {
		d.causes = compareCauses(want, got)
	} else if got.Object != nil && want.Object != nil {
		d.object = compareObjects(want.Object, got.Object)
	} else if got.Object == nil {
		d.object = "  no object stored"
	}
	return d
}

func compareCauses(want *Answer, got Outcome) string {
	var gotCauses []metav1.StatusCause
	if got.Status.Details != nil {
		gotCauses = got.Status.Details.Causes
	}
	wanted, found := render(want.Causes), render(gotCauses)
	missing, extra := subtract(wanted, found), subtract(found, wanted)
	var lines []string
	if want.Reason != got.Status.Reason {
		lines = append(lines, fmt.Sprintf("  want reason %s, got %s", want.Reason, got.Status.Reason))
	}
	for _, cause := range missing {
		lines = append(lines, "  - "+cause)
	}
	for _, cause := range extra {
		lines = append(lines, "  + "+cause)
	}
	if len(missing)+len(extra) == 0 && !slices.Equal(wanted, found) {
		lines = append(lines, "  want the order "+strings.Join(wanted, "; "), "  got            "+strings.Join(found, "; "))
	}
	return strings.Join(lines, "\n")
}

// generatedName finds a name that ends in the five characters that the server
// generates.
var generatedName = regexp.MustCompile(`^(metadata\.name: Invalid value: "[^"]*)[bcdfghjklmnpqrstvwxz2456789]{5}"`)

// hunk finds the line numbers in a message's diff. They depend on the rest of
// the object, to which the recording server added a volume that is not in the
// answers.
var hunk = regexp.MustCompile(`@@ -\d+(,\d+)? \+\d+(,\d+)? @@`)

func render(causes []metav1.StatusCause) []string {
	var lines []string
	for _, c := range causes {
		message := hunk.ReplaceAllString(c.Message, "@@")
		line := fmt.Sprintf("%s: %s (%s)", c.Field, message, c.Type)
		lines = append(lines, generatedName.ReplaceAllString(line, `		lines = append(lines, *"`))
	}
	return lines
}

// subtract returns a without the items of b, counting repeated ones.
func subtract(a, b []string) []string {
	left := slices.Clone(a)
	for _, line := range b {
		if i := slices.Index(left, line); i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
	}
	return left
}

func compareObjects(want map[string]any, got any) string {
	encoded, err := json.Marshal(got)
	if err != nil {
		return "  " + err.Error()
	}
	var object map[string]any
	if err := json.Unmarshal(encoded, &object); err != nil {
		return "  " + err.Error()
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		for _, key := range []string{"name", "uid", "resourceVersion", "creationTimestamp", "managedFields"} {
			delete(metadata, key)
		}
	}
	var lines []string
	compareValues("", want, object, &lines)
	return strings.Join(lines, "\n")
}

func compareValues(path string, want, got any, lines *[]string) {
	if s, ok := want.(string); ok && (s == "*" || strings.HasSuffix(s, "-*")) {
		return
	}
	wantMap, ok1 := want.(map[string]any)
	gotMap, ok2 := got.(map[string]any)
	if ok1 && ok2 {
		keys := map[string]bool{}
		for k := range wantMap {
			keys[k] = true
		}
		for k := range gotMap {
			keys[k] = true
		}
		for k := range keys {
			compareValues(path+"."+k, wantMap[k], gotMap[k], lines)
		}
		return
	}
	wantList, ok1 := want.([]any)
	gotList, ok2 := got.([]any)
	if ok1 && ok2 && len(wantList) == len(gotList) {
		for i := range wantList {
			compareValues(fmt.Sprintf("%s[%d]", path, i), wantList[i], gotList[i], lines)
		}
		return
	}
	if !reflect.DeepEqual(want, got) {
		*lines = append(*lines, fmt.Sprintf("  %s: want %s, got %s", path, compact(want), compact(got)))
	}
}

func compact(v any) string {
	encoded, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(encoded)
}
