// Package kinds finds out which resources an API server serves, for the
// controllers that work on all of them.
package kinds

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Kind is one resource, in the version that its group prefers.
type Kind struct {
	schema.GroupVersionKind
	Resource   schema.GroupVersionResource
	Namespaced bool
	Verbs      []string
}

// Can reports whether the resource has all of the verbs.
func (k Kind) Can(verbs ...string) bool {
	return !slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(k.Verbs, v) })
}

// Served lists the resources that are served, without subresources, in the
// order of discovery. If some groups could not be read, it returns the
// others and an error for which discovery.IsGroupDiscoveryFailedError holds.
func Served(client discovery.DiscoveryInterface) ([]Kind, error) {
	groups, lists, err := client.ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	rank := map[string]int{} // of a group version within its group
	for _, g := range groups {
		for i, v := range g.Versions {
			rank[v.GroupVersion] = i + 1
		}
		rank[g.PreferredVersion.GroupVersion] = 0
	}
	var kinds []Kind
	at := map[schema.GroupResource]int{}
	for _, list := range lists {
		gv, parseErr := schema.ParseGroupVersion(list.GroupVersion)
		if parseErr != nil {
			return nil, parseErr
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
