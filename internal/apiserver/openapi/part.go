package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// part is an addition to the version 2 document, made at the first use.
type part struct {
	render func() (*spec.Swagger, error)
	once   sync.Once
	made   fragment
	err    error
}

func newPart(render func() (*spec.Swagger, error)) *part { return &part{render: render} }

// fragment returns the members that the part adds to the known ones.
func (p *part) fragment(known members) (fragment, error) {
	p.once.Do(func() {
		p.made, p.err = renderFragment(p.render, known)
		p.render = nil
	})
	return p.made, p.err
}

func renderFragment(render func() (*spec.Swagger, error), known members) (fragment, error) {
	swagger, err := render()
	if err != nil {
		return fragment{}, err
	}
	raw, err := json.Marshal(swagger)
	if err != nil {
		return fragment{}, err
	}
	var m members
	if err := json.Unmarshal(raw, &m); err != nil {
		return fragment{}, err
	}
	return m.against(known).pack()
}

// fragment is a compressed version 2 document with the additions of a part.
type fragment struct{ gzipped []byte }

func (f fragment) members() (members, error) {
	raw, err := decompress(f.gzipped)
	if err != nil {
		return members{}, err
	}
	var m members
	return m, json.Unmarshal(raw, &m)
}

func (m members) pack() (fragment, error) {
	raw, err := json.Marshal(struct {
		Swagger string            `json:"swagger"`
		Info    map[string]string `json:"info"`
		members
	}{"2.0", map[string]string{"title": "Kubernetes", "version": "unversioned"}, m})
	if err != nil {
		return fragment{}, err
	}
	gzipped, err := compress(raw)
	return fragment{gzipped}, err
}

// against returns the members that are not known. A definition that differs
// from the known one of the same name is renamed.
func (m members) against(known members) members {
	renames := m.renames(known.Definitions)
	out := members{Paths: map[string]json.RawMessage{}, Definitions: map[string]json.RawMessage{}, Parameters: map[string]json.RawMessage{}}
	for name, raw := range m.Paths {
		if known.Paths[name] == nil {
			out.Paths[name] = rename(raw, renames)
		}
	}
	for name, raw := range m.Definitions {
		switch other := renames[name]; {
		case other != "":
			out.Definitions[other] = rename(raw, renames)
		case known.Definitions[name] == nil:
			out.Definitions[name] = rename(raw, renames)
		}
	}
	for name, raw := range m.Parameters {
		if known.Parameters[name] == nil {
			out.Parameters[name] = rename(raw, renames)
		}
	}
	return out
}

// conflicts returns the definitions that differ from known ones of the same
// name.
func (m members) conflicts(known map[string]json.RawMessage) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(m.Definitions)) {
		if have := known[name]; have != nil && !sameDefinition(have, m.Definitions[name]) {
			names = append(names, name)
		}
	}
	return names
}

// renames returns an unused name for each conflicting definition.
func (m members) renames(known map[string]json.RawMessage) map[string]string {
	renames := map[string]string{}
	for _, name := range m.conflicts(known) {
		for i := 2; ; i++ {
			other := fmt.Sprintf("%s_v%d", name, i)
			if have := known[other]; have != nil && !sameDefinition(have, m.Definitions[name]) || m.Definitions[other] != nil {
				continue
			}
			renames[name] = other
			break
		}
	}
	return renames
}

// rename renames the references to definitions.
func rename(raw json.RawMessage, renames map[string]string) json.RawMessage {
	for _, name := range slices.Sorted(maps.Keys(renames)) {
		raw = bytes.ReplaceAll(raw, fmt.Appendf(nil, `"#/definitions/%s"`, name), fmt.Appendf(nil, `"#/definitions/%s"`, renames[name]))
	}
	return raw
}

const kindExtension = "x-kubernetes-group-version-kind"

// sameDefinition compares definitions, except for the kinds that use them.
func sameDefinition(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var left, right map[string]any
	if json.Unmarshal(a, &left) != nil || json.Unmarshal(b, &right) != nil {
		return false
	}
	delete(left, kindExtension)
	delete(right, kindExtension)
	return reflect.DeepEqual(left, right)
}
