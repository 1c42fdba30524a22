package apiextensions

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Selectable fields of a version that has no schema cannot be looked up in it.
func TestSelectableFieldsWithoutSchema(t *testing.T) {
	for name, test := range map[string]struct {
		schema *apiextensionsv1.CustomResourceValidation
		others bool // another version has a schema
		want   []string
	}{
		"none":             {want: []string{"spec.versions[0].schema.openAPIV3Schema", "spec.selectableFields"}},
		"empty":            {schema: &apiextensionsv1.CustomResourceValidation{}, want: []string{"spec.versions[0].schema.openAPIV3Schema"}},
		"none of several":  {others: true, want: []string{"spec.versions[0].schema.openAPIV3Schema", "spec.versions[0].selectableFields"}},
		"empty of several": {schema: &apiextensionsv1.CustomResourceValidation{}, others: true, want: []string{"spec.versions[0].schema.openAPIV3Schema", "spec.versions[0].selectableFields"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &apiextensionsv1.CustomResourceDefinition{
				ObjectMeta: metav1.ObjectMeta{Name: "shirts.example.com"},
				Spec: apiextensionsv1.CustomResourceDefinitionSpec{
					Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
					Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "shirts", Singular: "shirt", Kind: "Shirt", ListKind: "ShirtList"},
					Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
						Name: "v1", Served: true, Storage: true, Schema: test.schema,
						SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.color"}},
					}},
				},
				Status: apiextensionsv1.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}},
			}
			if test.others {
				schema := &apiextensionsv1.JSONSchemaProps{Type: "object"}
				c.Spec.Versions = append(c.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
					Name: "v2", Served: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema},
				})
			}
			errs := validate(nil, c)
			found := map[string]bool{}
			for _, err := range errs {
				found[err.Field] = true
			}
			for _, path := range test.want {
				if !found[path] {
					t.Errorf("%v, want one of %s", errs, path)
				}
			}
			if len(errs) != len(test.want) {
				t.Errorf("%v, want %d", errs, len(test.want))
			}
		})
	}
}
