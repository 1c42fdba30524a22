package dynamicresources

import (
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestFullyQualifiedNames(t *testing.T) {
	const identifier = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' " +
		"(e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
	for name, want := range map[string]string{
		"d.example/x":   "",
		"d.example/x/y": "",
		"x":             `p: Invalid value: "x": a fully qualified name must be a domain and a name separated by a slash`,
		"/x":            `p: Invalid value: "": the domain must not be empty`,
		"d.example/":    `p: Invalid value: "": the name must not be empty`,
		"d.example/x-y": `p: Invalid value: "x-y": ` + identifier,
	} {
		got := ""
		for _, err := range validateFullyQualifiedName(field.NewPath("p"), resourcev1.FullyQualifiedName(name)) {
			got += err.Error()
		}
		if got != want {
			t.Errorf("%q:\ngot  %s\nwant %s", name, got, want)
		}
	}
}
