package pod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
)

func TestTolerations(t *testing.T) {
	on, err := feature.Parse([]string{"TaintTolerationComparisonOperators=true"})
	if err != nil {
		t.Fatal(err)
	}
	level := func(operator corev1.TolerationOperator, value string) corev1.Toleration {
		return corev1.Toleration{Key: "level", Operator: operator, Value: value}
	}
	for _, c := range []struct {
		name       string
		toleration corev1.Toleration
		features   *feature.Set
		before     []corev1.Toleration
		want       string
	}{
		{name: "equal", toleration: level(corev1.TolerationOpEqual, "high")},
		{
			name: "a value of what need only exist", toleration: level(corev1.TolerationOpExists, "high"),
			want: `tolerations[0].operator: Invalid value: "high": value must be empty when ` + "`operator` is 'Exists'",
		},
		{
			name: "numbers, off", toleration: level(corev1.TolerationOpGt, "950"),
			want: `tolerations[0].operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt"`,
		},
		{name: "numbers, used before", toleration: level(corev1.TolerationOpGt, "950"), before: []corev1.Toleration{level(corev1.TolerationOpLt, "1")}},
		{name: "numbers", toleration: level(corev1.TolerationOpLt, "-3"), features: on},
		{
			name: "no number", toleration: level(corev1.TolerationOpLt, "0700"), features: on,
			want: `tolerations[0].value: Invalid value: "0700": must be a valid decimal integer in canonical form`,
		},
		{
			name: "too large a number", toleration: level(corev1.TolerationOpGt, "9999999999999999999"), features: on,
			want: `tolerations[0].value: Invalid value: "9999999999999999999": strconv.ParseInt: parsing "9999999999999999999": value out of range`,
		},
		{
			name: "a word", toleration: level(corev1.TolerationOpLt, "high"), features: on,
			want: `[tolerations[0].value: Invalid value: "high": must be a valid decimal integer in canonical form, ` +
				`tolerations[0].value: Invalid value: "high": strconv.ParseInt: parsing "high": invalid syntax]`,
		},
		{
			name: "another operator", toleration: level("Near", "3"), features: on,
			want: `tolerations[0].operator: Unsupported value: "Near": supported values: "Equal", "Exists"`,
		},
	} {
		errs := ValidateTolerations([]corev1.Toleration{c.toleration}, field.NewPath("tolerations"), NumericTolerations(c.features, c.before))
		got := ""
		if err := errs.ToAggregate(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
