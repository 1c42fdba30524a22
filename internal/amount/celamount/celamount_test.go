package celamount

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/cel/environment"
)

// TestBoundQuantitiesInExpressions checks quantities in the environment of all
// expressions.
func TestBoundQuantitiesInExpressions(t *testing.T) {
	Bound()
	set := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	for _, kind := range []environment.Type{environment.NewExpressions, environment.StoredExpressions} {
		env, err := set.Env(kind)
		if err != nil {
			t.Fatal(err)
		}
		for expression, want := range map[string]string{
			`isQuantity("1.5Gi")`:                                       "true",
			`isQuantity("1e" + "900000000")`:                            "false",
			`isQuantity("none")`:                                        "false",
			`quantity("2Gi").isGreaterThan(quantity("1Gi"))`:            "true",
			`quantity("100").asInteger() == 100`:                        "true",
			`quantity("1e3") == quantity("1k")`:                         "true",
			`sign(quantity("1e-" + string(900000000))) == 1`:            "out of range",
			`["1e900000000"].exists(q, sign(quantity(q)) == 1)`:         "out of range",
			`quantity("1").compareTo(quantity("1e-900000000")) == 1`:    "out of range",
			`sign(quantity("none")) == 1`:                               "quantities must match",
			`sign(quantity(isQuantity("1e900000000") ? "2" : "1")) > 0`: "true",
		} {
			ast, issues := env.Compile(expression)
			if issues.Err() != nil {
				t.Errorf("%s: %v", expression, issues.Err())
				continue
			}
			program, err := env.Program(ast)
			if err != nil {
				t.Errorf("%s: %v", expression, err)
				continue
			}
			value, _, err := program.Eval(map[string]any{})
			got := fmt.Sprint(err)
			if err == nil {
				got = fmt.Sprint(value.Value())
			}
			if !strings.Contains(got, want) {
				t.Errorf("%s in %s is %s, want %s", expression, kind, got, want)
			}
		}
	}
}
