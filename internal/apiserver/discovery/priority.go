package discovery

import (
	"cmp"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// Priority orders groups and the versions of one group; the higher one comes
// first. An APIService carries it as groupPriorityMinimum and versionPriority.
type Priority struct{ Group, Version int32 }

// registrationPriority puts the group of the APIServices themselves, for
// which there is none, before all others.
const registrationPriority = 20001

// CustomPriority is that of every group version of custom resources.
var CustomPriority = Priority{1000, 100}

// groupPriorities are those of the built-in groups.
var groupPriorities = map[string]int32{
	"":                             18000,
	"apiregistration.k8s.io":       registrationPriority,
	"apps":                         17800,
	"events.k8s.io":                17750,
	"authentication.k8s.io":        17700,
	"authorization.k8s.io":         17600,
	"autoscaling":                  17500,
	"batch":                        17400,
	"certificates.k8s.io":          17300,
	"networking.k8s.io":            17200,
	"policy":                       17100,
	"rbac.authorization.k8s.io":    17000,
	"storage.k8s.io":               16800,
	"admissionregistration.k8s.io": 16700,
	"apiextensions.k8s.io":         16700,
	"scheduling.k8s.io":            16600,
	"coordination.k8s.io":          16500,
	"node.k8s.io":                  16300,
	"discovery.k8s.io":             16200,
	"resource.k8s.io":              16200,
	"flowcontrol.apiserver.k8s.io": 16100,
	"internal.apiserver.k8s.io":    16000,
	"storagemigration.k8s.io":      15900,
}

// versionPriorities are those that do not follow from the version's stage.
var versionPriorities = map[schema.GroupVersion]int32{
	{Version: "v1"}:                                             1,
	{Group: "autoscaling", Version: "v2"}:                       30,
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"}:      21,
	{Group: "resource.k8s.io", Version: "v1"}:                   21,
	{Group: "resource.k8s.io", Version: "v1beta2"}:              15,
	{Group: "rbac.authorization.k8s.io", Version: "v1beta1"}:    12,
	{Group: "admissionregistration.k8s.io", Version: "v1beta1"}: 12,
	{Group: "scheduling.k8s.io", Version: "v1beta1"}:            12,
	{Group: "discovery.k8s.io", Version: "v1beta1"}:             12,
}

// BuiltInPriority is the priority of a group version that the server itself
// brings; ok is false for any other.
func BuiltInPriority(gv schema.GroupVersion) (p Priority, ok bool) {
	group, ok := groupPriorities[gv.Group]
	if !ok {
		return CustomPriority, false
	}
	if v, special := versionPriorities[gv]; special {
		return Priority{group, v}, true
	}
	switch {
	case version.CompareKubeAwareVersionStrings(gv.Version, "v1") >= 0:
		return Priority{group, 15}, true
	case version.CompareKubeAwareVersionStrings(gv.Version, "v1beta1") >= 0:
		return Priority{group, 9}, true
	}
	return Priority{group, 1}, true
}

// APIService is a group version that is registered by an APIService.
type APIService struct {
	schema.GroupVersion
	Priority
	// Remote is what the server behind it says of it; nil if this server
	// serves the group version itself.
	Remote *apidiscoveryv2.APIVersionDiscovery
}

// compareVersions orders the versions of a group, most preferred first.
func (g *group) compareVersions(a, b string) int {
	return cmp.Or(cmp.Compare(g.priorities[b].Version, g.priorities[a].Version), version.CompareKubeAwareVersionStrings(b, a))
}

// priority is the highest that one of the group's versions asks for it.
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
