package errorlist

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestInvalid(t *testing.T) {
	all := make(field.ErrorList, 100_000)
	for i := range all {
		all[i] = field.Required(field.NewPath("items").Index(i), "")
	}
	kind := schema.GroupKind{Kind: "Thing"}
	for n, end := range map[int]string{1: "items[0]: Required value", 1000: "items[999]: Required value]", 100_000: " and 99000 more"} {
		status := Invalid(kind, "it", all[:n]).Status()
		if len(status.Details.Causes) != min(n, MaxErrors) || !strings.HasSuffix(status.Message, end) {
			t.Errorf("of %d errors %d are reported: …%s", n, len(status.Details.Causes), status.Message[max(0, len(status.Message)-50):])
		}
	}
	large := field.ErrorList{}
	for range 100 {
		large = append(large, field.Invalid(field.NewPath("large"), strings.Repeat("x", 1<<20), ""))
	}
	if reported := len(Invalid(kind, "it", large).Status().Details.Causes); reported > 5 {
		t.Errorf("%d MiB are reported", reported)
	}
}

func TestAggregate(t *testing.T) {
	if err := Aggregate(nil); err != nil {
		t.Errorf("nothing is %v", err)
	}
	all := make([]error, 100_000)
	for i := range all {
		all[i] = fmt.Errorf("fault %d", i)
	}
	for n, end := range map[int]string{1: "fault 0", 1000: ", fault 999]", 100_000: ", fault 999, and 99000 more]"} {
		if text := Aggregate(all[:n]).Error(); !strings.HasSuffix(text, end) {
			t.Errorf("%d are …%s", n, text[max(0, len(text)-50):])
		}
	}
	if all[MaxErrors].Error() != "fault 1000" {
		t.Error("the caller's list is written to")
	}
}
