package validators

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestSignerName(t *testing.T) {
	for name, want := range map[string]int{
		"kubernetes.io/kubelet-serving": 0,
		"example.com/team.a":            0,
		"":                              1,
		"example.com":                   1,
		"example.com/a/b":               1,
		"local/a":                       1,
		"example.com/Bad_":              1,
	} {
		if errs := SignerName(field.NewPath("spec", "signerName"), name); len(errs) != want {
			t.Errorf("%q: %v, want %d errors", name, errs, want)
		}
	}
}
