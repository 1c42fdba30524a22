package crd

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// openAPI returns the OpenAPI v3 document of one version of a definition.
func (d *definition) openAPI(version string) (*spec3.OpenAPI, error) {
	return builder.BuildOpenAPIV3(d.crd, version, builder.Options{IncludeSelectableFields: true})
}

// openAPIV2 returns the part of the OpenAPI v2 document for the served versions
// of the definition. The document has the built-in kinds that they refer to
// already.
func (d *definition) openAPIV2() (*spec.Swagger, error) {
	all := &spec.Swagger{}
	all.Paths = &spec.Paths{Paths: map[string]spec.PathItem{}}
	all.Definitions, all.Parameters = spec.Definitions{}, map[string]spec.Parameter{}
	for _, gv := range d.groupVersions() {
		one, err := builder.BuildOpenAPIV2(d.crd, gv.Version, builder.Options{V2: true, IncludeSelectableFields: true})
		if err != nil {
			return nil, fmt.Errorf("OpenAPI of %s: %w", d.crd.Name, err)
		}
		maps.Copy(all.Paths.Paths, one.Paths.Paths)
		maps.Copy(all.Parameters, one.Parameters)
		for name, definition := range one.Definitions {
			if !strings.HasPrefix(name, "io.k8s.apimachinery.") && !strings.HasPrefix(name, "io.k8s.api.") {
				all.Definitions[name] = definition
			}
		}
	}
	return all, nil
}

// publish sets the OpenAPI v3 document of a group version to the document of
// its served definitions, or removes it if there are none.
func (s *Server) publish(gv schema.GroupVersion) {
	if s.Documents == nil {
		return
	}
	path := "apis/" + gv.String()
	var in []*definition
	for _, d := range s.inGroup(gv.Group) {
		if d.view(gv.Version) != nil {
			in = append(in, d)
		}
	}
	if len(in) == 0 {
		s.Documents.SetV3(path, "", nil)
		return
	}
	s.Documents.SetV3(path, tag(in), func() ([]byte, error) {
		var parts []*spec3.OpenAPI
		for _, d := range in {
			part, err := d.openAPI(gv.Version)
			if err != nil {
				return nil, fmt.Errorf("OpenAPI of %s: %w", d.crd.Name, err)
			}
			parts = append(parts, part)
		}
		merged, err := builder.MergeSpecsV3(parts...)
		if err != nil {
			return nil, fmt.Errorf("OpenAPI of %v: %w", gv, err)
		}
		return json.Marshal(merged)
	})
}

// tag identifies the content of a document of definitions.
func tag(in []*definition) string {
	var b strings.Builder
	for _, d := range in {
		fmt.Fprintf(&b, "%s %d %v\n", d.uid, d.crd.Generation, d.crd.Status.AcceptedNames)
	}
	return b.String()
}

// publishV2 sets the part of a definition in the OpenAPI v2 document; nil
// removes it.
func (s *Server) publishV2(name string, d *definition) {
	switch {
	case s.Documents == nil:
	case d == nil || len(d.views) == 0:
		s.Documents.SetV2(name, nil)
	default:
		s.Documents.SetV2(name, d.openAPIV2)
	}
}
