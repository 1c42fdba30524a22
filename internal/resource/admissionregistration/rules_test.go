package admissionregistration

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestResources checks that items that others cover are refused.
func TestResources(t *testing.T) {
	for resources, want := range map[string]string{
		"pods":              "",
		"*":                 "",
		"*/*":               "",
		"pods,pods/log":     "",
		"*,pods/log":        "",
		"":                  "r[0]: Required value",
		"*,pods":            `r: Invalid value: ["*","pods"]: if '*' is present, must not specify other resources without subresources`,
		"*,pods,pods/log":   `r: Invalid value: ["*","pods","pods/log"]: if '*' is present, must not specify other resources without subresources`,
		"pods/*,pods/log":   `r[1]: Invalid value: "pods/log": if 'pods/*' is present, must not specify pods/log`,
		"*/scale,rcs/scale": `r[1]: Invalid value: "rcs/scale": if '*/scale' is present, must not specify rcs/scale`,
		"*/*,pods":          `r: Invalid value: ["*/*","pods"]: if '*/*' is present, must not specify other resources`,
	} {
		errs := validateResources(field.NewPath("r"), strings.Split(resources, ","))
		got := ""
		if len(errs) > 0 {
			got = errs[0].Error()
		}
		if got != want || len(errs) > 1 {
			t.Errorf("%s: %v, want %s", resources, errs, want)
		}
	}
}
