package dynamicresources

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
)

// TestNestingOfExpressions checks that expressions whose types take long to
// check are refused before that.
func TestNestingOfExpressions(t *testing.T) {
	features, err := feature.Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	lists := func(depth int) string {
		list := strings.Repeat("[", depth) + "1" + strings.Repeat("]", depth)
		return list + " == " + list
	}
	const refused = "recursion limit"
	for name, tt := range map[string]struct{ text, want string }{
		"lists":           {lists(maxDepth), ""},
		"one more":        {lists(maxDepth + 1), refused},
		"many":            {lists(100), refused},
		"behind a string": {"')))))))))))))))))))))))))' != '' && " + lists(24), refused},
		"among strings":   {strings.Repeat(`[")",`, 24) + "1" + strings.Repeat("]", 24) + " == []", refused},
		"after a comment": {"true && // )))))))))))))))))))))))))\n" + lists(24), refused},
		"maps":            {strings.Repeat("{1:", 24) + "1" + strings.Repeat("}", 24) + " == {}", refused},
		"macros":          {"[1]" + strings.Repeat(".map(x, [x])", 24) + " == []", refused},
		"long, not deep":  {"[" + strings.Repeat("[[1]],", 100) + "[[1]]] != [] && device.driver == '((((((((((((((((((((((((('", ""},
		"a long chain":    {"device.driver" + strings.Repeat(".replace('a', 'b')", 30) + " == ''", ""},
		"a usual one":     {`device.driver == "a" && device.attributes["a"].b.isGreaterThan(semver("1.0.0"))`, ""},
	} {
		_, errs := newCompiler(features).expression(field.NewPath("expression"), tt.text, false)
		if got := errs.ToAggregate(); (got == nil) != (tt.want == "") || got != nil && !strings.Contains(got.Error(), tt.want) {
			t.Errorf("%s: %.200v, want %q", name, got, tt.want)
		}
	}
}
