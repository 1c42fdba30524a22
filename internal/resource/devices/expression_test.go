package devices

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
)

// Expressions whose types take long to check are refused before that is tried.
func TestNestingOfExpressions(t *testing.T) {
	features, err := feature.Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	nested := func(depth int) string {
		list := strings.Repeat("[", depth) + "1" + strings.Repeat("]", depth)
		return list + " == " + list
	}
	for depth, want := range map[int]string{maxDepth: "", maxDepth + 1: "recursion limit", 1000: "recursion limit"} {
		_, errs := newCompiler(features).expression(field.NewPath("expression"), nested(depth), false)
		if got := errs.ToAggregate(); (got == nil) != (want == "") || got != nil && !strings.Contains(got.Error(), want) {
			t.Errorf("%d brackets: %v, want %q", depth, got, want)
		}
	}
}
