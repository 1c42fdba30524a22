package resource

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// Priority is the place of a group version in discovery: the higher one comes
// first. An APIService carries it as groupPriorityMinimum and versionPriority.
type Priority struct{ Group, Version int32 }

// Priorities are the priorities of an API group and its versions in discovery.
// The zero value stands for those that all custom resources have.
type Priorities struct {
	Group int32
	// Versions has the priorities of versions for which they do not follow
	// from the stability level.
	Versions map[string]int32
}

// InGroup sets the priorities of the resources' group.
func InGroup(p Priorities, rs ...*Resource) []*Resource {
	for _, r := range rs {
		r.Priorities = p
	}
	return rs
}

// Priority returns the priority of one of the resource's versions.
func (r *Resource) Priority(v *Version) Priority {
	of := r.Priorities
	if v.Priorities.Group != 0 {
		of = v.Priorities
	}
	if of.Group == 0 {
		return Priority{1000, 100}
	}
	if special, ok := of.Versions[v.Version]; ok {
		return Priority{of.Group, special}
	}
	switch {
	case version.CompareKubeAwareVersionStrings(v.Version, "v1") >= 0:
		return Priority{of.Group, 15}
	case version.CompareKubeAwareVersionStrings(v.Version, "v1beta1") >= 0:
		return Priority{of.Group, 9}
	}
	return Priority{of.Group, 1}
}

// GroupVersions maps group versions to their priorities in discovery.
type GroupVersions map[schema.GroupVersion]Priority

// Served returns the group versions in which resources are served.
func Served(rs []*Resource) GroupVersions {
	all := GroupVersions{}
	for _, r := range rs {
		for i := range r.Versions {
			if v := &r.Versions[i]; !v.Unserved {
				all[v.GroupVersion] = r.Priority(v)
			}
		}
	}
	return all
}
