package discovery

import (
	"cmp"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/coracle-io/coracle/internal/resource"
)

// APIService is a group version that an APIService registers.
type APIService struct {
	schema.GroupVersion
	resource.Priority
	// Remote is the discovery document of the server behind it; nil if this
	// server serves the group version itself.
	Remote *apidiscoveryv2.APIVersionDiscovery
}

// compareVersions orders the versions of a group, the most preferred first.
func (g *group) compareVersions(a, b string) int {
	return cmp.Or(cmp.Compare(g.priorities[b].Version, g.priorities[a].Version), version.CompareKubeAwareVersionStrings(b, a))
}

// priority returns the highest groupPriorityMinimum of the group's versions.
func (g *group) priority() int32 {
	var highest int32
	for _, p := range g.priorities {
		highest = max(highest, p.Group)
	}
	return highest
}

func compareGroups(a, b *group) int {
	return cmp.Or(cmp.Compare(b.priority(), a.priority()), cmp.Compare(a.name, b.name))
}
