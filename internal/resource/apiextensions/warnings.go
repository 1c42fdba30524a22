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

// warnings warns of unrecognized formats and of sets with items that are not
// scalars, unless the old definition has them, too.
func warnings(_ *resource.RequestContext, c, old *apiextensionsv1.CustomResourceDefinition) []string {
	formats, sets := schemaProblems(c)
	knownFormats, knownSets := schemaProblems(old)
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

// schemaProblems returns the unrecognized formats in a definition's schemas,
// and the types of the items of sets that are not scalars.
func schemaProblems(c *apiextensionsv1.CustomResourceDefinition) (formats, sets []string) {
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
