package apiextensions

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSelectableFieldsOfBrokenSchema checks that selectable fields are not
// looked up in a schema that is not structural, and that the schema's errors
// are reported, for one version and for several.
func TestSelectableFieldsOfBrokenSchema(t *testing.T) {
	for name, test := range map[string]struct {
		broken apiextensionsv1.JSONSchemaProps
		want   string
	}{
		"unknown fields": {apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(bool)}, "x-kubernetes-preserve-unknown-fields"},
		"id":             {apiextensionsv1.JSONSchemaProps{Type: "object", ID: "x"}, "id"},
		"definitions": {
			apiextensionsv1.JSONSchemaProps{Type: "object", Definitions: apiextensionsv1.JSONSchemaDefinitions{"a": {Type: "string"}}}, "definitions",
		},
	} {
		for _, several := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				version := apiextensionsv1.CustomResourceDefinitionVersion{
					Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": test.broken},
					}},
					SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.color"}},
				}
				c := &apiextensionsv1.CustomResourceDefinition{
					ObjectMeta: metav1.ObjectMeta{Name: "shirts.example.com"},
					Spec: apiextensionsv1.CustomResourceDefinitionSpec{
						Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
						Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "shirts", Singular: "shirt", Kind: "Shirt", ListKind: "ShirtList"},
						Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version},
					},
					Status: apiextensionsv1.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}},
				}
				if several {
					c.Spec.Versions = append(c.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
						Name: "v2", Served: true,
						Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
					})
				}
				errs := validate(nil, c)
				if len(errs) == 0 || !strings.HasSuffix(errs[0].Field, "properties[spec]."+test.want) {
					t.Errorf("%v, want %s to be refused", errs, test.want)
				}
			})
		}
	}
}

// TestSelectableFieldsWithoutSchema checks the selectable fields of a version
// without schema.
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
