package crd

import (
	"encoding/json"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"
)

// openAPI is the OpenAPI v3 document of one version of a definition.
func (d *definition) openAPI(version string) (*spec3.OpenAPI, error) {
	return builder.BuildOpenAPIV3(d.crd, version, builder.Options{IncludeSelectableFields: true})
}

// publish sets the OpenAPI document of a group version to that of the
// definitions which are served in it now.
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
		s.Documents.SetV3Func(path, nil)
		return
	}
	s.Documents.SetV3Func(path, func() ([]byte, error) {
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
