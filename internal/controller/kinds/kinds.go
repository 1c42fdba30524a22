// Package kinds discovers and watches the resources that an API server serves,
// for controllers that handle all of them (garbage collector, namespace,
// resource quota).
package kinds

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Kind is a resource in the preferred version of its group.
type Kind struct {
	schema.GroupVersionKind
	Resource   schema.GroupVersionResource
	Namespaced bool
	Verbs      []string
}

// SupportsAll reports whether the resource supports all of the verbs.
func (k Kind) SupportsAll(verbs ...string) bool {
	return !slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(k.Verbs, v) })
}

// Served returns the served resources, without subresources, in discovery
// order. If the discovery of some groups fails, it returns the resources of the
// others and an error for which discovery.IsGroupDiscoveryFailedError is true. A malformed
// group version is left out.
func Served(client discovery.DiscoveryInterface) ([]Kind, error) {
	groups, lists, err := client.ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	rank := map[string]int{} // group version to its preference within the group
	for _, g := range groups {
		for i, v := range g.Versions {
			rank[v.GroupVersion] = i + 1
		}
		rank[g.PreferredVersion.GroupVersion] = 0
	}
	var kinds []Kind
	at := map[schema.GroupResource]int{} // index in kinds
	for _, list := range lists {
		gv, parseErr := schema.ParseGroupVersion(list.GroupVersion)
		if parseErr != nil {
			continue // an aggregated API announces what it likes
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue
			}
			kind := Kind{
				GroupVersionKind: gv.WithKind(r.Kind),
				Resource:         gv.WithResource(r.Name),
				Namespaced:       r.Namespaced,
				Verbs:            r.Verbs,
			}
			i, seen := at[kind.Resource.GroupResource()]
			if !seen {
				at[kind.Resource.GroupResource()] = len(kinds)
				kinds = append(kinds, kind)
			} else if rank[gv.String()] < rank[kinds[i].Resource.GroupVersion().String()] {
				kinds[i] = kind
			}
		}
	}
	return kinds, err
}
