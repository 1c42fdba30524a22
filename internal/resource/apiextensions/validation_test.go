package apiextensions

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Selectable fields of a version that has no schema cannot be looked up in it.
func TestSelectableFieldsWithoutSchema(t *testing.T) {
	for name, schema := range map[string]*apiextensionsv1.CustomResourceValidation{"none": nil, "empty": {}} {
		colored := []apiextensionsv1.SelectableField{{JSONPath: ".spec.color"}}
		c := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "shirts.example.com"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "shirts", Singular: "shirt", Kind: "Shirt", ListKind: "ShirtList"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
					{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
						OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"},
					}},
					{Name: "v2", Served: true, Schema: schema, SelectableFields: colored},
				},
			},
			Status: apiextensionsv1.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}},
		}
		errs := validate(nil, c)
		if len(errs) != 1 || errs[0].Field != "spec.versions[1].schema.openAPIV3Schema" || errs[0].Type != field.ErrorTypeRequired {
			t.Errorf("schema %s: %v", name, errs)
		}
	}
}
