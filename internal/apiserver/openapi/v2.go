package openapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// The version 2 document describes the built-in resources, with added parts for
// custom resources and aggregated servers. Unchanged content is not parsed. A
// part adds members to three of the document's objects: in JSON by editing
// the text, and in protobuf, where fields may have any order, by appending.
//
//	{"swagger":…,"paths":{built-in…  ,"/apis/example.com/v1/boats":…},
//	             "definitions":{built-in…  ,"com.example.v1.Boat":…},
//	             "parameters":{built-in…}}

// v2Documents is the version 2 document in both media types.
type v2Documents struct {
	json  *document
	proto func() (*document, error)
}

// SetV2 adds the result of render to the version 2 document; nil removes it.
// render is called once, by the first request for the document. Existing
// paths are skipped, and definitions with the name of a different one are
// renamed.
func (h *Handler) SetV2(name string, render func() (*spec.Swagger, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if render == nil {
		delete(h.parts, name)
	} else {
		h.parts[name] = newPart(render)
	}
	h.renewV2()
}

// renewV2 makes the next request merge the parts again.
func (h *Handler) renewV2() {
	if len(h.parts) == 0 {
		h.v2 = h.own
		return
	}
	own, parts := h.own, maps.Clone(h.parts)
	h.v2 = sync.OnceValues(func() (*v2Documents, error) {
		documents, err := own()
		if err != nil {
			return nil, err
		}
		return documents.merge(parts)
	})
}

func (h *Handler) serveV2(w http.ResponseWriter, r *http.Request) {
	chosen := negotiate(r, typeJSON, typeV2, typeV2Old)
	if chosen == "" {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	h.mu.RLock()
	merged := h.v2
	h.mu.RUnlock()
	documents, err := merged()
	if err == nil && chosen == typeJSON {
		write(w, r, documents.json, typeJSON)
		return
	}
	var asProto *document
	if err == nil {
		asProto, err = documents.proto()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, r, asProto, typeV2)
}

// members are the objects of a version 2 document that are merged.
type members struct {
	Paths       map[string]json.RawMessage `json:"paths,omitempty"`
	Definitions map[string]json.RawMessage `json:"definitions,omitempty"`
	Parameters  map[string]json.RawMessage `json:"parameters,omitempty"`
}

// merge adds parts to the document of the built-in resources. It skips parts
// whose render fails.
func (own *v2Documents) merge(parts map[string]*part) (*v2Documents, error) {
	raw, err := decompress(own.json.gzipped)
	if err != nil {
		return nil, err
	}
	var known members
	if err := json.Unmarshal(raw, &known); err != nil {
		return nil, fmt.Errorf("OpenAPI v2: %w", err)
	}
	added := members{Paths: map[string]json.RawMessage{}, Definitions: map[string]json.RawMessage{}, Parameters: map[string]json.RawMessage{}}
	var used []fragment
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		f, err := parts[name].fragment(known)
		if err != nil {
			klog.ErrorS(err, "Left a part out of the OpenAPI v2 document", "part", name)
			continue
		}
		m, err := f.members()
		if err != nil {
			return nil, err
		}
		if conflicts := m.conflicts(added.Definitions); len(conflicts) > 0 {
			// Two parts use the same name for different definitions.
			if f, err = m.against(added).pack(); err != nil {
				return nil, err
			}
			if m, err = f.members(); err != nil {
				return nil, err
			}
		}
		used = append(used, f)
		maps.Copy(added.Paths, m.Paths)
		maps.Copy(added.Definitions, m.Definitions)
		maps.Copy(added.Parameters, m.Parameters)
	}
	extended, err := extend(raw, added)
	if err != nil {
		return nil, err
	}
	gzipped, err := compressAt(extended, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	return &v2Documents{
		json:  newDocument(gzipped),
		proto: sync.OnceValues(func() (*document, error) { return own.appended(used) }),
	}, nil
}

// appended returns the document with fragments as protobuf.
func (own *v2Documents) appended(fragments []fragment) (*document, error) {
	whole, err := own.proto()
	if err != nil {
		return nil, err
	}
	all, err := decompress(whole.gzipped)
	if err != nil {
		return nil, err
	}
	for _, f := range fragments {
		raw, err := decompress(f.gzipped)
		if err != nil {
			return nil, err
		}
		parsed, err := openapi_v2.ParseDocument(raw)
		if err != nil {
			return nil, fmt.Errorf("OpenAPI v2 as protobuf: %w", err)
		}
		parsed.Swagger, parsed.Info = "", nil // the built-in document has them
		if all, err = (proto.MarshalOptions{}).MarshalAppend(all, parsed); err != nil {
			return nil, err
		}
	}
	gzipped, err := compressAt(all, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	return newDocument(gzipped), nil
}

// extend adds members to a document. It edits the text, because the members
// are valid JSON already and may be large.
func extend(raw []byte, added members) ([]byte, error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(raw, &top); err != nil {
		return nil, err
	}
	more := map[string]map[string]json.RawMessage{"paths": added.Paths, "definitions": added.Definitions, "parameters": added.Parameters}
	size := len(raw)
	for section, all := range more {
		if top[section] == nil {
			top[section] = json.RawMessage("{}")
		}
		for name, value := range all {
			size += len(name) + len(value) + len(`"":,`)
		}
	}
	out := append(make([]byte, 0, size+len(`"parameters":{},`)), '{')
	for i, section := range slices.Sorted(maps.Keys(top)) {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendName(out, section)
		out = appendMembers(out, top[section], more[section])
	}
	return append(out, '}'), nil
}

// appendMembers appends an object with additional members.
func appendMembers(out, object []byte, more map[string]json.RawMessage) []byte {
	if len(more) == 0 {
		return append(out, object...)
	}
	object = bytes.TrimSpace(object)
	object = object[:len(object)-1]
	out = append(out, object...)
	for i, name := range slices.Sorted(maps.Keys(more)) {
		if i > 0 || len(object) > len("{") {
			out = append(out, ',')
		}
		out = appendName(out, name)
		out = append(out, more[name]...)
	}
	return append(out, '}')
}

func appendName(out []byte, name string) []byte {
	quoted, err := json.Marshal(name)
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return append(append(out, quoted...), ':')
}
