package rbac

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/coracle-io/coracle/internal/apiserver/faults"
)

// mostDescribed bounds what is told of missing permissions, in bytes.
const mostDescribed = 1 << 20

// description tells of permissions as upstream does: a line for each thing,
// with all verbs that are missing for it, sorted. Things that have no room in
// it are left out.
type description struct {
	lines  map[thing][]string // verbs
	things int
	bytes  int
	full   bool
}

// thing is what verbs are for: a resource, by name or not, or a URL.
type thing struct {
	group, resource, name, url string
	named                      bool
}

// add tells of what is missing of a rule.
func (d *description) add(r *rbacv1.PolicyRule, missing []block) {
	ofRule := map[thing][]string{}
	for _, b := range missing {
		for t := range b.things() {
			if d.charge(t, b[verbs]); d.full {
				break
			}
			ofRule[t] = append(ofRule[t], b[verbs]...)
		}
	}
	if len(ofRule) == 0 {
		return
	}
	position := make(map[string]int, len(r.Verbs))
	for i, verb := range slices.Backward(r.Verbs) {
		position[verb] = i
	}
	if d.lines == nil {
		d.lines = map[thing][]string{}
	}
	for t, verbs := range ofRule {
		slices.SortFunc(verbs, func(a, b string) int { return cmp.Compare(position[a], position[b]) })
		d.lines[t] = append(d.lines[t], verbs...)
	}
}

// charge counts what a thing and its verbs take.
func (d *description) charge(t thing, verbs []string) {
	const quotes = 8 // what is around a value in the text, or in memory
	d.things++
	d.bytes += len(t.group) + len(t.resource) + len(t.name) + len(t.url) + quotes
	for _, verb := range verbs {
		d.bytes += len(verb) + quotes
	}
	if d.things > 1 && (d.things > faults.Most || d.bytes > mostDescribed) {
		d.full = true
	}
}

// things visits what the verbs of a block are for.
func (b block) things() iter.Seq[thing] {
	return func(yield func(thing) bool) {
		for _, url := range b[urls] {
			if !yield(thing{url: url}) {
				return
			}
		}
		for _, group := range b[groups] {
			for _, resource := range b[resources] {
				if b[names] == nil && !yield(thing{group: group, resource: resource}) {
					return
				}
				for _, name := range b[names] {
					if !yield(thing{group: group, resource: resource, name: name, named: true}) {
						return
					}
				}
			}
		}
	}
}

func (d *description) text() string {
	var lines []string
	for t, verbs := range d.lines {
		lines = append(lines, t.describe(distinct(verbs)))
	}
	slices.Sort(lines)
	if d.full {
		lines = append(lines, "and more")
	}
	return strings.Join(lines, "\n")
}

func (t thing) describe(verbs []string) string {
	switch {
	case t.url != "":
		return fmt.Sprintf("{NonResourceURLs:%q, Verbs:%q}", []string{t.url}, verbs)
	case t.named:
		return fmt.Sprintf("{APIGroups:%q, Resources:%q, ResourceNames:%q, Verbs:%q}", []string{t.group}, []string{t.resource}, []string{t.name}, verbs)
	}
	return fmt.Sprintf("{APIGroups:%q, Resources:%q, Verbs:%q}", []string{t.group}, []string{t.resource}, verbs)
}
