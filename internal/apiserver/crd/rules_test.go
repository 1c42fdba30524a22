package crd

import (
	"context"
	"slices"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// The evaluation of rules ends when the client disconnects.
func TestRulesEndWithContext(t *testing.T) {
	most := int64(1000)
	schema, err := structuralschema.NewStructural(&apiextensions.JSONSchemaProps{
		Type: "object",
		Properties: map[string]apiextensions.JSONSchemaProps{"items": {
			Type: "array", MaxItems: &most, Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &apiextensions.JSONSchemaProps{Type: "integer"}},
			XValidations: apiextensions.ValidationRules{{Rule: "self.all(x, x >= 0)"}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &compiled{schema: schema, cel: cel.NewValidator(schema, true, celconfig.PerCallLimit)}
	u := &unstructured.Unstructured{Object: map[string]any{"items": slices.Repeat([]any{int64(1)}, int(most))}}
	if errs := c.evaluate(t.Context(), u, nil, nil); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if errs := c.evaluate(ctx, u, nil, nil); len(errs) == 0 {
		t.Error("the rule was evaluated for a request that has ended")
	}
}
