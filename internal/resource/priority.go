package resource

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// Priority is the place of a group version in discovery: the higher one comes
// first. An APIService carries it as groupPriorityMinimum and versionPriority.
type Priority struct{ Group, Version int32 }

// Priorities are the places of an API group and its versions in discovery.
// Without a place are those of custom resources, which all have the same.
type Priorities struct {
	Group int32
	// Versions are those of versions whose place does not follow from their
	// stage.
	Versions map[string]int32
}

// InGroup gives resources the priorities of their group.
func InGroup(p Priorities, rs ...*Resource) []*Resource {
	for _, r := range rs {
		r.Priorities = p
	}
	return rs
}

// Priority is the place of one of the resource's versions.
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

// GroupVersions are group versions with their places in discovery.
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
