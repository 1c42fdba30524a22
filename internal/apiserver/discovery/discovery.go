// Package discovery serves the documents that list groups, versions and
// resources:
//
//	/api  /apis                    group lists, or everything at once (KEP-3352)
//	/apis/{group}                  one group
//	/api/v1  /apis/{group}/{version}   one version's resources
//
// It merges the resources of this server with the resources of the servers
// behind APIServices. Groups and versions are in the order of the APIServices'
// priorities. A document is made by the first request after a change, since
// there may be hundreds of changes in a row.
package discovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/resource"
)

// Documents serves discovery requests. It implements http.Handler.
type Documents struct {
	current atomic.Pointer[func() *documents]
	hashes  bool // of storage versions

	mu        sync.Mutex // guards the fields from which the documents are made
	resources []*resource.Resource
	services  []APIService
}

// documents are the responses by path. They are immutable.
type documents struct {
	plain      map[string]*document
	aggregated map[string]*document // /api and /apis
}

// New returns the documents of resources, with the hashes of their storage versions if
// hashes is true.
func New(rs []*resource.Resource, hashes bool) *Documents {
	d := &Documents{hashes: hashes}
	d.Set(rs)
	return d
}

// Set replaces the resources that this server serves.
func (d *Documents) Set(rs []*resource.Resource) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resources = rs
	d.renew()
}

// SetAPIServices replaces the group versions that APIServices register. Group
// versions of this server are listed also without one.
func (d *Documents) SetAPIServices(services []APIService) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.services = services
	d.renew()
}

func (d *Documents) renew() {
	rs, services := d.resources, d.services
	made := sync.OnceValue(func() *documents { return build(groupsOf(rs, services), d.hashes) })
	d.current.Store(&made)
}

func (d *Documents) load() *documents { return (*d.current.Load())() }

// Serves reports whether there is a document at a path.
func (d *Documents) Serves(path string) bool { return d.load().plain[trim(path)] != nil }

// Paths returns the paths of all documents, sorted.
func (d *Documents) Paths() []string { return slices.Sorted(maps.Keys(d.load().plain)) }

// group is one API group with the resources of each of its versions.
type group struct {
	name       string
	versions   []string // most preferred first
	priorities map[string]resource.Priority
	served     map[string][]served
	remote     map[string]*apidiscoveryv2.APIVersionDiscovery
}

// served is one resource in one version.
type served struct {
	resource *resource.Resource
	version  *resource.Version
}

// groupsOf returns the groups of resources and registered services.
func groupsOf(rs []*resource.Resource, services []APIService) []*group {
	byName := map[string]*group{}
	in := func(gv schema.GroupVersion, p resource.Priority) *group {
		g := byName[gv.Group]
		if g == nil {
			g = &group{
				name: gv.Group, priorities: map[string]resource.Priority{}, served: map[string][]served{},
				remote: map[string]*apidiscoveryv2.APIVersionDiscovery{},
			}
			byName[gv.Group] = g
		}
		if _, known := g.priorities[gv.Version]; !known {
			g.versions = append(g.versions, gv.Version)
			g.priorities[gv.Version] = p
		}
		return g
	}
	local := map[schema.GroupVersion]bool{}
	for _, r := range rs {
		for i := range r.Versions {
			if v := &r.Versions[i]; !v.Unserved {
				local[v.GroupVersion] = true
			}
		}
	}
	for _, s := range services {
		if s.Remote != nil {
			in(s.GroupVersion, s.Priority).remote[s.GroupVersion.Version] = s.Remote
		} else if local[s.GroupVersion] {
			in(s.GroupVersion, s.Priority)
		}
	}
	for _, r := range rs {
		for i := range r.Versions {
			v := &r.Versions[i]
			if v.Unserved {
				continue
			}
			if g := in(v.GroupVersion, r.Priority(v)); g.remote[v.Version] == nil {
				g.served[v.Version] = append(g.served[v.Version], served{r, v})
			}
		}
	}
	for _, g := range byName {
		slices.SortFunc(g.versions, g.compareVersions)
		for _, all := range g.served {
			slices.SortFunc(all, func(a, b served) int { return cmp.Compare(a.resource.Plural, b.resource.Plural) })
		}
	}
	return slices.SortedFunc(maps.Values(byName), compareGroups)
}

func (g *group) path(v string) string {
	path := "/apis/" + g.name
	if g.name == "" {
		path = "/api"
	}
	if v != "" {
		path += "/" + v
	}
	return path
}

func (g *group) apiGroup() metav1.APIGroup {
	a := metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: g.name}
	for _, v := range g.versions {
		a.Versions = append(a.Versions, metav1.GroupVersionForDiscovery{
			GroupVersion: schema.GroupVersion{Group: g.name, Version: v}.String(), Version: v,
		})
	}
	a.PreferredVersion = a.Versions[0]
	return a
}

// resourceList returns the document of one version.
func (g *group) resourceList(v string, hashes bool) *metav1.APIResourceList {
	list := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: schema.GroupVersion{Group: g.name, Version: v}.String(),
		APIResources: []metav1.APIResource{},
	}
	for _, s := range g.served[v] {
		r := s.resource
		entry := metav1.APIResource{
			Name: r.Plural, SingularName: r.Singular, Namespaced: r.Namespaced, Kind: r.Kind,
			Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
		}
		if hashes && !r.Virtual() {
			entry.StorageVersionHash = storageHash(r)
		}
		list.APIResources = append(list.APIResources, entry)
		for _, sub := range sortedSubresources(r) {
			kind := subresourceKind(s, sub)
			entry := metav1.APIResource{Name: r.Plural + "/" + sub.Name, Namespaced: r.Namespaced, Kind: kind.Kind, Verbs: sub.Verbs}
			if kind.GroupVersion() != s.version.GroupVersion {
				entry.Group, entry.Version = kind.Group, kind.Version
			}
			list.APIResources = append(list.APIResources, entry)
		}
	}
	return list
}

func sortedSubresources(r *resource.Resource) []*resource.Subresource {
	all := make([]*resource.Subresource, len(r.Subresources))
	for i := range r.Subresources {
		all[i] = &r.Subresources[i]
	}
	slices.SortFunc(all, func(a, b *resource.Subresource) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func subresourceKind(s served, sub *resource.Subresource) schema.GroupVersionKind {
	if sub.Kind.Empty() {
		return s.version.WithKind(s.resource.Kind)
	}
	return sub.Kind
}

// storageHash returns the hash of a resource's storage version. It is
// computed as by upstream's servers, because the storage version migrator
// compares it with their hashes.
func storageHash(r *resource.Resource) string {
	stored := r.Storage.Version
	if stored.Empty() {
		stored = r.Hub().GroupVersion
	}
	sum := sha256.Sum256([]byte(stored.Group + "/" + stored.Version + "/" + r.Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// discoveryGroup returns the group's part of the aggregated document.
func (g *group) discoveryGroup() apidiscoveryv2.APIGroupDiscovery {
	out := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
	for _, v := range g.versions {
		if remote := g.remote[v]; remote != nil {
			out.Versions = append(out.Versions, *remote)
			continue
		}
		one := apidiscoveryv2.APIVersionDiscovery{Version: v, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
		for _, s := range g.served[v] {
			one.Resources = append(one.Resources, discoveryResource(s))
		}
		out.Versions = append(out.Versions, one)
	}
	return out
}

func discoveryResource(s served) apidiscoveryv2.APIResourceDiscovery {
	r := s.resource
	scope := apidiscoveryv2.ScopeCluster
	if r.Namespaced {
		scope = apidiscoveryv2.ScopeNamespace
	}
	out := apidiscoveryv2.APIResourceDiscovery{
		Resource: r.Plural, ResponseKind: groupVersionKind(s.version.WithKind(r.Kind)), Scope: scope,
		SingularResource: r.Singular, Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
	}
	for _, sub := range sortedSubresources(r) {
		out.Subresources = append(out.Subresources, apidiscoveryv2.APISubresourceDiscovery{
			Subresource: sub.Name, ResponseKind: groupVersionKind(subresourceKind(s, sub)), Verbs: sub.Verbs,
		})
	}
	return out
}

func groupVersionKind(k schema.GroupVersionKind) *metav1.GroupVersionKind {
	return &metav1.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind}
}
