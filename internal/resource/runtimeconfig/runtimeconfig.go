// Package runtimeconfig decides which versions of the API are served, and holds
// the alpha and beta versions, which are served only if --runtime-config asks
// for them.
//
//	--runtime-config=api/beta=true,resource.k8s.io/v1beta1=false,apps/v1/daemonsets=false
//	                 a stage       a version                      a resource of a version
//
// A narrower key takes precedence over a wider one. Objects are stored in the
// version that is served by default, if there is one, so that turning versions
// on and off does not change what is stored. A kind that belongs to a feature
// gate is served only if the gate is on, too.
package runtimeconfig

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
)

// stages are the keys that select versions by stage, in the order in which
// they are applied.
func stages() []struct {
	key string
	has func(version string) bool
} {
	return []struct {
		key string
		has func(version string) bool
	}{
		{"api/all", func(string) bool { return true }},
		{"api/ga", func(v string) bool { return !strings.Contains(v, "alpha") && !strings.Contains(v, "beta") }},
		{"api/beta", func(v string) bool { return strings.Contains(v, "beta") }},
		{"api/alpha", func(v string) bool { return strings.Contains(v, "alpha") }},
	}
}

// Serve returns the resources that are served by default, rs, and those that
// the entries of --runtime-config ("resource.k8s.io/v1beta1=true") add. It
// marks the versions that are not served as Unserved, among them all versions
// of a kind whose feature gate is off. A kind without a served version is left
// out unless it has one by default. The error for keys that match nothing
// lists all of them.
func Serve(rs []*resource.Resource, config []string, features *feature.Set) ([]*resource.Resource, error) {
	settings, err := parse(config)
	if err != nil {
		return nil, err
	}
	byDefault := sets.New[schema.GroupVersionResource]()
	groups := map[string]resource.Priorities{}
	var all []*resource.Resource
	for _, r := range rs {
		groups[r.Group] = r.Priorities
		for i := range r.Versions {
			byDefault.Insert(r.Versions[i].WithResource(r.Plural))
		}
		all = append(all, withVersions(r))
	}
	for _, r := range kinds() {
		if p, known := groups[r.Group]; known {
			r.Priorities = p
		}
		all = append(all, r)
	}
	if err := settings.check(all); err != nil {
		return nil, err
	}
	var served []*resource.Resource
	for _, r := range all {
		off := r.Gate != "" && !features.Enabled(r.Gate)
		some, usual := false, false
		for i := range r.Versions {
			v := &r.Versions[i]
			gvr := v.WithResource(r.Plural)
			usual = usual || byDefault.Has(gvr)
			v.Unserved = v.Unserved || off || !settings.enabled(gvr, byDefault.Has(gvr))
			some = some || !v.Unserved
		}
		if some || usual {
			served = append(served, r)
		}
	}
	return served, nil
}

// Changed compares the served resources with the usual ones, which are served
// by default. on has the group versions that only served has, off the group
// versions that only usual has. Both are sorted.
func Changed(usual, served []*resource.Resource) (on, off []schema.GroupVersion) {
	before, after := sets.KeySet(resource.Served(usual)), sets.KeySet(resource.Served(served))
	return sorted(after.Difference(before)), sorted(before.Difference(after))
}

// Unserved returns the built-in resources that are not served, in each version
// that could be, sorted.
func Unserved(usual, served []*resource.Resource) []schema.GroupVersionResource {
	missing := sets.New[schema.GroupVersionResource]()
	for _, r := range append(slices.Clone(usual), kinds()...) {
		for _, v := range withVersions(r).Versions {
			missing.Insert(v.WithResource(r.Plural))
		}
	}
	for _, r := range served {
		for i := range r.Versions {
			if v := &r.Versions[i]; !v.Unserved {
				missing.Delete(v.WithResource(r.Plural))
			}
		}
	}
	return slices.SortedFunc(maps.Keys(missing), func(a, b schema.GroupVersionResource) int { return cmp.Compare(a.String(), b.String()) })
}

func sorted(gvs sets.Set[schema.GroupVersion]) []schema.GroupVersion {
	return slices.SortedFunc(maps.Keys(gvs), func(a, b schema.GroupVersion) int { return cmp.Compare(a.String(), b.String()) })
}

// settings are the entries of --runtime-config by key.
type settings map[string]bool

func parse(config []string) (settings, error) {
	s := settings{}
	for _, entry := range config {
		key, value, given := strings.Cut(strings.TrimSpace(entry), "=")
		on := true
		if given && value != "" {
			var err error
			if on, err = strconv.ParseBool(value); err != nil {
				return nil, fmt.Errorf("--runtime-config: invalid value of %s: %q, want true or false", key, value)
			}
		}
		s[key] = on
	}
	return s, nil
}

// check returns an error for keys that match no version of rs.
func (s settings) check(rs []*resource.Resource) error {
	known := sets.New[string]()
	for _, stage := range stages() {
		known.Insert(stage.key)
	}
	for _, r := range rs {
		for i := range r.Versions {
			version := r.Versions[i].GroupVersion.String()
			known.Insert(version, version+"/"+r.Plural)
			if r.Group == "" {
				known.Insert("api/"+version, "api/"+version+"/"+r.Plural)
			}
		}
	}
	var unknown []string
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if !known.Has(key) {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return fmt.Errorf("--runtime-config: unknown api groups, versions or resources %s: want api/all, api/ga, api/beta, api/alpha, group/version or group/version/resource", strings.Join(unknown, ", "))
}

// enabled reports whether a resource is served in a version; on is the default.
func (s settings) enabled(gvr schema.GroupVersionResource, on bool) bool {
	for _, stage := range stages() {
		if value, given := s[stage.key]; given && stage.has(gvr.Version) {
			on = value
		}
	}
	version := gvr.GroupVersion().String()
	keys := []string{version, version + "/" + gvr.Resource}
	if gvr.Group == "" {
		keys = []string{version, "api/" + version, version + "/" + gvr.Resource, "api/" + version + "/" + gvr.Resource}
	}
	for _, key := range keys {
		if value, given := s[key]; given {
			on = value
		}
	}
	return on
}
