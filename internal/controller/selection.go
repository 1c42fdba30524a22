package controller

import (
	"fmt"
	"slices"
	"strings"
)

// Select returns the descriptors that a --controllers list enables, in the
// order of all. "*" enables every controller that is on by default, "foo"
// enables foo and "-foo" disables it. The first entry that names a controller
// takes precedence over "*". Select returns an error for unknown names.
func Select(all []Descriptor, list []string) ([]Descriptor, error) {
	known := map[string]bool{"*": true}
	for _, d := range all {
		for _, name := range append([]string{d.Name}, d.Aliases...) {
			known[name] = true
		}
	}
	var unknown []string
	for _, entry := range list {
		if !known[strings.TrimPrefix(entry, "-")] {
			unknown = append(unknown, fmt.Sprintf("%q", entry))
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("--controllers: %s is not in the list of known controllers: %s",
			strings.Join(unknown, ", "), strings.Join(Names(all), ", "))
	}
	return slices.DeleteFunc(slices.Clone(all), func(d Descriptor) bool { return !enabled(d, list) }), nil
}

// Names returns the names of the controllers, sorted.
func Names(all []Descriptor) []string {
	names := make([]string, len(all))
	for i, d := range all {
		names[i] = d.Name
	}
	slices.Sort(names)
	return names
}

func enabled(d Descriptor, list []string) bool {
	star := false
	for _, entry := range list {
		name, off := strings.CutPrefix(entry, "-")
		if name == d.Name || slices.Contains(d.Aliases, name) {
			return !off
		}
		star = star || entry == "*"
	}
	return star && !d.OffByDefault
}
