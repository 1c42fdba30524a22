// Package discovery serves the documents that tell clients which groups,
// versions and resources there are:
//
//	/api  /apis                    group lists, or everything at once (KEP-3352)
//	/apis/{group}                  one group
//	/api/v1  /apis/{group}/{version}   one version's resources
//
// Documents are made when the resources change, not when they are asked for.
package discovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"slices"
	"sync/atomic"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/coracle-io/coracle/internal/resource"
)

// Documents answers discovery requests. It is an http.Handler.
type Documents struct {
	current atomic.Pointer[documents]
}

// documents are the answers by path. They never change.
type documents struct {
	plain      map[string]*document
	aggregated map[string]*document // /api and /apis
}

// New makes the documents of the resources.
func New(rs []*resource.Resource) *Documents {
	d := &Documents{}
	d.Set(rs)
	return d
}

// Set replaces the documents by those of other resources.
func (d *Documents) Set(rs []*resource.Resource) { d.current.Store(build(rs)) }

// Serves says whether there is a document at a path.
func (d *Documents) Serves(path string) bool { return d.current.Load().plain[trim(path)] != nil }

// Paths lists the paths of all documents, sorted.
func (d *Documents) Paths() []string { return slices.Sorted(maps.Keys(d.current.Load().plain)) }

// groupOrder is the order in which clients prefer the built-in groups; others
// follow by name.
var groupOrder = []string{
	"", "apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io",
	"autoscaling", "batch", "certificates.k8s.io", "networking.k8s.io", "policy", "rbac.authorization.k8s.io",
	"storage.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io", "scheduling.k8s.io",
	"coordination.k8s.io", "node.k8s.io", "discovery.k8s.io", "resource.k8s.io", "flowcontrol.apiserver.k8s.io",
	"internal.apiserver.k8s.io", "storagemigration.k8s.io",
}

// group is one API group with the resources of each of its versions.
type group struct {
	name     string
	versions []string // most preferred first
	served   map[string][]served
}

// served is one resource in one version.
type served struct {
	resource *resource.Resource
	version  *resource.Version
}

// groupsOf sorts resources into groups and versions.
func groupsOf(rs []*resource.Resource) []*group {
	byName := map[string]*group{}
	for _, r := range rs {
		for i := range r.Versions {
			v := &r.Versions[i]
			if v.Unserved {
				continue
			}
			g := byName[v.Group]
			if g == nil {
				g = &group{name: v.Group, served: map[string][]served{}}
				byName[v.Group] = g
			}
			if g.served[v.Version] == nil {
				g.versions = append(g.versions, v.Version)
			}
			g.served[v.Version] = append(g.served[v.Version], served{r, v})
		}
	}
	for _, g := range byName {
		slices.SortFunc(g.versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
		for _, all := range g.served {
			slices.SortFunc(all, func(a, b served) int { return cmp.Compare(a.resource.Plural, b.resource.Plural) })
		}
	}
	return slices.SortedFunc(maps.Values(byName), compareGroups)
}

func compareGroups(a, b *group) int {
	place := func(g *group) int {
		if i := slices.Index(groupOrder, g.name); i >= 0 {
			return i
		}
		return len(groupOrder)
	}
	return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a.name, b.name))
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

// resourceList is the document of one version.
func (g *group) resourceList(v string) *metav1.APIResourceList {
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
		if !r.Virtual {
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

// storageHash tells clients when the stored version of a resource changes.
func storageHash(r *resource.Resource) string {
	stored := r.StorageVersion
	if stored.Empty() {
		stored = r.Hub().GroupVersion
	}
	sum := sha256.Sum256([]byte(stored.WithKind(r.Kind).String()))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// discoveryGroup is the group's part of the aggregated document.
func (g *group) discoveryGroup() apidiscoveryv2.APIGroupDiscovery {
	out := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
	for _, v := range g.versions {
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
