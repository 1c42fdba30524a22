package registry

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Endpoint is one resource in one served version.
type Endpoint struct {
	Resource *resource.Resource
	Version  *resource.Version
	Kind     *watchcache.Kind // nil for virtual resources
	Codec    *codec.Version

	fields    knownFields // of the version's struct; nil for custom resources
	lifecycle Lifecycle   // nil for nothing
}

// GVK returns the kind of the objects that clients exchange.
func (e *Endpoint) GVK() schema.GroupVersionKind { return e.Codec.Kind }

// GVR returns the resource in the endpoint's version.
func (e *Endpoint) GVR() schema.GroupVersionResource {
	return e.Version.WithResource(e.Resource.Plural)
}

// GroupResource returns the resource as named in errors, in the group of the
// request.
func (e *Endpoint) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: e.Version.Group, Resource: e.Resource.Plural}
}

// Allows reports whether the resource has the verb.
func (e *Endpoint) Allows(verb string) bool { return slices.Contains(e.Resource.Verbs, verb) }

// IsCustom reports whether the objects are custom resources, which have no Go
// struct.
func (e *Endpoint) IsCustom() bool { return e.fields == nil }

// FieldLabel returns the field of a field label in this version, or an error
// for labels that are not supported. A version with its own labels, such as
// one of a custom resource, has metadata.namespace only if the kind is
// namespaced.
func (e *Endpoint) FieldLabel(label string) (string, error) {
	r, v := e.Resource, e.Version
	field, known := v.FieldLabels[label]
	switch {
	case label == "metadata.name", label == "metadata.namespace" && (r.Namespaced || v.FieldLabels == nil):
		return label, nil
	case known:
		return field, nil
	case v.FieldLabels == nil && slices.Contains(r.FieldSelectors.Fields, label):
		return label, nil
	case len(r.FieldSelectors.Fields) > 0, v.FieldLabels != nil:
		return "", fmt.Errorf("field label not supported: %s", label)
	}
	return "", fmt.Errorf(`%q is not a known field selector: only "metadata.name", "metadata.namespace"`, label)
}

// Routes maps group versions, resources and kinds to endpoints. It is
// immutable.
type Routes struct {
	versions map[schema.GroupVersion]map[string]*Endpoint
	kinds    map[schema.GroupVersionKind]*Endpoint
}

// replaced returns routes for other resources. It keeps the endpoints of
// unchanged resources, and with them the encodings that cache entries hold.
func (t *Routes) replaced(g *Registry, rs []*resource.Resource) *Routes {
	next := &Routes{
		versions: map[schema.GroupVersion]map[string]*Endpoint{},
		kinds:    map[schema.GroupVersionKind]*Endpoint{},
	}
	for _, r := range rs {
		for i := range r.Versions {
			v := &r.Versions[i]
			if v.Unserved {
				continue
			}
			e := t.Find(v.GroupVersion, r.Plural)
			if e == nil || e.Resource != r {
				e = &Endpoint{
					Resource: r, Version: v, Codec: codec.NewVersion(r, v, &g.slots),
					fields: outerFields(v.New()), lifecycle: g.Lifecycles[r.GroupResource()],
				}
				if !r.Virtual() {
					e.Kind = g.Cache.Kind(r)
				}
			}
			if next.versions[v.GroupVersion] == nil {
				next.versions[v.GroupVersion] = map[string]*Endpoint{}
			}
			next.versions[v.GroupVersion][r.Plural] = e
			next.kinds[e.GVK()] = e
		}
	}
	return next
}

// Find returns the endpoint of a resource by its plural name, or nil.
func (t *Routes) Find(gv schema.GroupVersion, plural string) *Endpoint { return t.versions[gv][plural] }

// ofKind returns the endpoint of a kind, or nil.
func (t *Routes) ofKind(kind schema.GroupVersionKind) *Endpoint { return t.kinds[kind] }

// Serves reports whether the group version has an endpoint.
func (t *Routes) Serves(gv schema.GroupVersion) bool { return t.versions[gv] != nil }

// Stored returns the hub endpoint of a built-in resource by its group and
// plural name, or nil.
func (t *Routes) Stored(group, plural string) *Endpoint {
	for gv, plurals := range t.versions {
		if gv.Group == group && plurals[plural] != nil && plurals[plural].Version.Hub {
			return plurals[plural]
		}
	}
	return nil
}

// All calls visit with every endpoint.
func (t *Routes) All(visit func(*Endpoint)) {
	for _, e := range t.kinds {
		visit(e)
	}
}

// known reports whether a kind is served. It is used in messages about
// objects sent to the wrong endpoint.
func (t *Routes) known(kind schema.GroupVersionKind) bool { return t.kinds[kind] != nil }
