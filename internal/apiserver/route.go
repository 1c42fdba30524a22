package apiserver

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// endpoint is one resource in one served version.
type endpoint struct {
	resource *resource.Resource
	version  *resource.Version
	kind     *watchcache.Kind // nil for virtual resources
	codec    *codec.Version
	fields   knownFields // of the version's struct; nil for custom resources
}

func (e *endpoint) gvk() schema.GroupVersionKind { return e.codec.Kind }

func (e *endpoint) gvr() schema.GroupVersionResource {
	return e.version.WithResource(e.resource.Plural)
}

// groupResource names the resource in errors, in the group it was asked for in.
func (e *endpoint) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: e.version.Group, Resource: e.resource.Plural}
}

func (e *endpoint) allows(verb string) bool { return slices.Contains(e.resource.Verbs, verb) }

// routes finds endpoints. It never changes.
type routes struct {
	versions map[schema.GroupVersion]map[string]*endpoint
	kinds    map[schema.GroupVersionKind]*endpoint
}

func newRoutes(rs []*resource.Resource, cache *watchcache.Cache, slots *codec.Slots) *routes {
	return (&routes{}).replaced(rs, cache, slots)
}

// replaced returns routes to other resources. Endpoints of resources that
// stay are kept, with the encodings that entries hold for them.
func (t *routes) replaced(rs []*resource.Resource, cache *watchcache.Cache, slots *codec.Slots) *routes {
	next := &routes{
		versions: map[schema.GroupVersion]map[string]*endpoint{},
		kinds:    map[schema.GroupVersionKind]*endpoint{},
	}
	for _, r := range rs {
		for i := range r.Versions {
			v := &r.Versions[i]
			if v.Unserved {
				continue
			}
			e := t.find(v.GroupVersion, r.Plural)
			if e == nil || e.resource != r {
				e = &endpoint{resource: r, version: v, codec: codec.NewVersion(r, v, slots), fields: outerFields(v.New())}
				if !r.Virtual {
					e.kind = cache.Kind(r)
				}
			}
			if next.versions[v.GroupVersion] == nil {
				next.versions[v.GroupVersion] = map[string]*endpoint{}
			}
			next.versions[v.GroupVersion][r.Plural] = e
			next.kinds[e.gvk()] = e
		}
	}
	return next
}

func (t *routes) find(gv schema.GroupVersion, plural string) *endpoint { return t.versions[gv][plural] }

func (t *routes) serves(gv schema.GroupVersion) bool { return t.versions[gv] != nil }

// stored returns the hub endpoint of a built-in resource by its group and plural.
func (t *routes) stored(group, plural string) *endpoint {
	for gv, plurals := range t.versions {
		if gv.Group == group && plurals[plural] != nil && plurals[plural].version.Hub {
			return plurals[plural]
		}
	}
	return nil
}

// known tells whether a kind is served, for messages about objects in the
// wrong place.
func (t *routes) known(kind schema.GroupVersionKind) bool { return t.kinds[kind] != nil }
