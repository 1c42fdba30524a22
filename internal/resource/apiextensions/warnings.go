package apiextensions

import (
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/coracle-io/coracle/internal/resource"
)

// warnings are of formats that nobody checks and of sets of what sets cannot
// hold, each unless the definition had it before.
func warnings(_ *resource.Request, c, old *apiextensionsv1.CustomResourceDefinition) []string {
	formats, sets := oddities(c)
	knownFormats, knownSets := oddities(old)
	var out []string
	for _, format := range formats {
		if !slices.Contains(knownFormats, format) {
			out = append(out, fmt.Sprintf("unrecognized format %q", format))
		}
	}
	slices.Sort(sets)
	for _, items := range slices.Compact(sets) {
		if !slices.Contains(knownSets, items) {
			out = append(out, fmt.Sprintf("x-kubernetes-list-type: set for items of type %q is not supported by server-side apply or CEL validation rules", items))
		}
	}
	return out
}

// oddities lists the unknown formats in a definition's schemas, and the types
// of the items of sets that are not scalars.
func oddities(c *apiextensionsv1.CustomResourceDefinition) (formats, sets []string) {
	if c == nil {
		return nil, nil
	}
	in, errs := internal(c)
	if errs != nil {
		return nil, nil
	}
	look := func(s *apiextensions.JSONSchemaProps) bool {
		if s.Format != "" {
			schema := &spec.Schema{SchemaProps: spec.SchemaProps{Format: s.Format, Type: []string{s.Type}}}
			formats = append(formats, schemavalidation.GetUnrecognizedFormats(schema, environment.DefaultCompatibilityVersion())...)
		}
		if s.XListType != nil && *s.XListType == "set" && s.Items != nil && s.Items.Schema != nil {
			if items := s.Items.Schema.Type; items == "object" || items == "array" {
				sets = append(sets, items)
			}
		}
		return false
	}
	if in.Spec.Validation != nil && in.Spec.Validation.OpenAPIV3Schema != nil {
		validation.SchemaHas(in.Spec.Validation.OpenAPIV3Schema, look)
	}
	for _, v := range in.Spec.Versions {
		if v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
			validation.SchemaHas(v.Schema.OpenAPIV3Schema, look)
		}
	}
	return formats, sets
}
