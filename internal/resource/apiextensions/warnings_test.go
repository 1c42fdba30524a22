package apiextensions

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func TestWarnings(t *testing.T) {
	parse := func(schema string) *apiextensionsv1.CustomResourceDefinition {
		c := &apiextensionsv1.CustomResourceDefinition{}
		v := apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1", Schema: &apiextensionsv1.CustomResourceValidation{}}
		if err := yaml.Unmarshal([]byte(schema), &v.Schema.OpenAPIV3Schema); err != nil {
			t.Fatal(err)
		}
		c.Spec.Versions = append(c.Spec.Versions, v)
		return c
	}
	plain := parse(`{type: object, properties: {a: {type: string, format: date-time}}}`)
	odd := parse(`{type: object, properties: {a: {type: string, format: odd}, s: {type: array, x-kubernetes-list-type: set, items: {type: object}}}}`)
	want := []string{
		`unrecognized format "odd"`,
		`x-kubernetes-list-type: set for items of type "object" is not supported by server-side apply or CEL validation rules`,
	}
	if got := warnings(nil, plain, nil); len(got) > 0 {
		t.Errorf("plain: %q", got)
	}
	if diff := cmp.Diff(want, warnings(nil, odd, plain)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := warnings(nil, odd, odd); len(got) > 0 {
		t.Errorf("again: %q", got)
	}
}
