package rbac

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/coracle-io/coracle/internal/apiserver/errorlist"
)

// maxDescription bounds the description of missing permissions, in bytes.
const maxDescription = 1 << 20

// description describes missing permissions as upstream does: a line for each
// target, with all missing verbs, sorted. It omits targets once it is full.
type description struct {
	lines   map[target][]string // verbs
	targets int
	bytes   int
	full    bool
}

// target is the object of verbs: a resource, optionally with a name, or a URL.
type target struct {
	group, resource, name, url string
	named                      bool
}

// add adds the missing permissions of a rule.
func (d *description) add(r *rbacv1.PolicyRule, missing []block) {
	missingVerbs := map[target][]string{}
	for _, b := range missing {
		for t := range b.targets() {
			if d.charge(t, b[verbs]); d.full {
				break
			}
			missingVerbs[t] = append(missingVerbs[t], b[verbs]...)
		}
	}
	if len(missingVerbs) == 0 {
		return
	}
	position := make(map[string]int, len(r.Verbs))
	for i, verb := range slices.Backward(r.Verbs) {
		position[verb] = i
	}
	if d.lines == nil {
		d.lines = map[target][]string{}
	}
	for t, verbs := range missingVerbs {
		slices.SortFunc(verbs, func(a, b string) int { return cmp.Compare(position[a], position[b]) })
		d.lines[t] = append(d.lines[t], verbs...)
	}
}

// charge adds the size of a target and its verbs.
func (d *description) charge(t target, verbs []string) {
	const quotes = 8 // the overhead of a value in the text, or in memory
	d.targets++
	d.bytes += len(t.group) + len(t.resource) + len(t.name) + len(t.url) + quotes
	for _, verb := range verbs {
		d.bytes += len(verb) + quotes
	}
	if d.targets > 1 && (d.targets > errorlist.MaxErrors || d.bytes > maxDescription) {
		d.full = true
	}
}

// targets returns the targets of a block.
func (b block) targets() iter.Seq[target] {
	return func(yield func(target) bool) {
		for _, url := range b[urls] {
			if !yield(target{url: url}) {
				return
			}
		}
		for _, group := range b[groups] {
			for _, resource := range b[resources] {
				if b[names] == nil && !yield(target{group: group, resource: resource}) {
					return
				}
				for _, name := range b[names] {
					if !yield(target{group: group, resource: resource, name: name, named: true}) {
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

func (t target) describe(verbs []string) string {
	switch {
	case t.url != "":
		return fmt.Sprintf("{NonResourceURLs:%q, Verbs:%q}", []string{t.url}, verbs)
	case t.named:
		return fmt.Sprintf("{APIGroups:%q, Resources:%q, ResourceNames:%q, Verbs:%q}", []string{t.group}, []string{t.resource}, []string{t.name}, verbs)
	}
	return fmt.Sprintf("{APIGroups:%q, Resources:%q, Verbs:%q}", []string{t.group}, []string{t.resource}, verbs)
}
