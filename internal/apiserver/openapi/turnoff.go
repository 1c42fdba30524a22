package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

// TurnOff removes built-in group versions and resources from the documents,
// with the definitions that only they refer to and the groups without other
// versions. Call it once, after TurnOn. Documents are decompressed by the
// first request.
func (h *Handler) TurnOff(versions []schema.GroupVersion, resources []schema.GroupVersionResource) {
	h.mu.Lock()
	defer h.mu.Unlock()
	off := unserved{}
	for _, r := range resources {
		path := Path(r.GroupVersion())
		if _, documented := h.v3[path]; documented {
			if off[path] == nil {
				off[path] = sets.New[string]()
			}
			off[path].Insert(r.Resource)
		}
	}
	for _, gv := range versions {
		off[Path(gv)] = nil
		delete(h.v3, Path(gv))
	}
	for _, gv := range versions {
		if group := parent(Path(gv)); !h.documentsBelow(group) {
			off[group] = nil
			delete(h.v3, group)
		}
	}
	if len(off) == 0 {
		return
	}
	for path := range off {
		if whole, ok := h.v3[path]; ok {
			h.v3[path] = off.fromV3(whole)
		}
	}
	h.off, h.own = off, off.fromV2(h.own)
	h.renewV2()
}

// parent returns the path of a version's group.
func parent(path string) string { return path[:strings.LastIndex(path, "/")] }

func (h *Handler) documentsBelow(group string) bool {
	for path := range h.v3 {
		if strings.HasPrefix(path, group+"/") {
			return true
		}
	}
	return false
}

// unserved are the resources that are not served, by the paths of their group
// versions, such as "apis/apps/v1". A path without resources is not served at
// all.
type unserved map[string]sets.Set[string]

// has reports whether a path of a document, such as
// "/apis/apps/v1/deployments", belongs to something that is not served.
func (u unserved) has(path string) bool {
	version, rest := split(path)
	resources, ok := u[version]
	return ok && (resources == nil || resources.Has(resourceOf(rest)))
}

// split splits a path after its group or version.
func split(path string) (version string, rest []string) {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	most := 3 // apis, group, version
	if segments[0] == "api" {
		most = 2
	}
	most = min(most, len(segments))
	return strings.Join(segments[:most], "/"), segments[most:]
}

// resourceOf returns the resource of a path below a version:
//
//	pods  watch/namespaces/{namespace}/pods/{name}  namespaces/{name}/status
func resourceOf(segments []string) string {
	if len(segments) > 0 && segments[0] == "watch" {
		segments = segments[1:]
	}
	if len(segments) > 2 && segments[0] == "namespaces" && segments[1] == "{namespace}" {
		segments = segments[2:]
	}
	if len(segments) == 0 {
		return ""
	}
	return segments[0]
}

// fromV3 returns a version 3 document without what is not served.
func (u unserved) fromV3(whole entry) entry {
	made := sync.OnceValues(func() (*document, error) {
		d, err := whole.made()
		if err != nil {
			return nil, err
		}
		raw, err := decompress(d.gzipped)
		if err != nil {
			return nil, err
		}
		left, err := u.from(raw, "components", "schemas")
		if err != nil {
			return nil, fmt.Errorf("OpenAPI v3: %w", err)
		}
		gzipped, err := compress(left)
		if err != nil {
			return nil, err
		}
		return newDocument(gzipped), nil
	})
	return entry{made: made, hash: func() string {
		d, err := made()
		if err != nil {
			return whole.hash()
		}
		return d.hash()
	}}
}

// fromV2 returns the version 2 document without what is not served.
func (u unserved) fromV2(whole func() (*v2Documents, error)) func() (*v2Documents, error) {
	return sync.OnceValues(func() (*v2Documents, error) {
		documents, err := whole()
		if err != nil {
			return nil, err
		}
		raw, err := decompress(documents.json.gzipped)
		if err != nil {
			return nil, err
		}
		left, err := u.from(raw, "definitions")
		if err != nil {
			return nil, fmt.Errorf("OpenAPI v2: %w", err)
		}
		gzipped, err := compress(left)
		if err != nil {
			return nil, err
		}
		return &v2Documents{json: newDocument(gzipped), proto: sync.OnceValues(func() (*document, error) {
			parsed, err := openapi_v2.ParseDocument(left)
			if err != nil {
				return nil, fmt.Errorf("OpenAPI v2 as protobuf: %w", err)
			}
			raw, err := proto.Marshal(parsed)
			if err != nil {
				return nil, err
			}
			gzipped, err := compress(raw)
			if err != nil {
				return nil, err
			}
			return newDocument(gzipped), nil
		})}, nil
	})
}

// from removes the paths of what is not served from a document, with the
// definitions, which are at the end of keys, that only they refer to.
func (u unserved) from(raw []byte, keys ...string) ([]byte, error) {
	var top, paths, definitions map[string]json.RawMessage
	if err := json.Unmarshal(raw, &top); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(top["paths"], &paths); err != nil {
		return nil, err
	}
	places := []map[string]json.RawMessage{top}
	for _, key := range keys[:len(keys)-1] {
		var inner map[string]json.RawMessage
		if err := json.Unmarshal(places[len(places)-1][key], &inner); err != nil {
			return nil, err
		}
		places = append(places, inner)
	}
	last := len(keys) - 1
	if err := json.Unmarshal(places[last][keys[last]], &definitions); err != nil {
		return nil, err
	}
	before := reachable(paths, definitions)
	maps.DeleteFunc(paths, func(path string, _ json.RawMessage) bool { return u.has(path) })
	after := reachable(paths, definitions)
	maps.DeleteFunc(definitions, func(name string, _ json.RawMessage) bool { return before.Has(name) && !after.Has(name) })

	var err error
	if top["paths"], err = json.Marshal(paths); err != nil {
		return nil, err
	}
	var inner any = definitions
	for i := last; i >= 0; i-- {
		if places[i][keys[i]], err = json.Marshal(inner); err != nil {
			return nil, err
		}
		inner = places[i]
	}
	return json.Marshal(top)
}

// reference matches references to definitions.
var reference = regexp.MustCompile(`"\$ref":\s*"#/(?:definitions|components/schemas)/([^"]+)"`)

// reachable returns the definitions that paths refer to, directly or through
// other definitions.
func reachable(paths, definitions map[string]json.RawMessage) sets.Set[string] {
	seen := sets.New[string]()
	waiting := slices.Collect(maps.Values(paths))
	for len(waiting) > 0 {
		next := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		for _, found := range reference.FindAllSubmatch(next, -1) {
			name := string(found[1])
			if !seen.Has(name) {
				seen.Insert(name)
				waiting = append(waiting, definitions[name])
			}
		}
	}
	return seen
}
