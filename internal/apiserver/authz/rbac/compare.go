package rbac

import (
	"errors"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// The cost of a comparison, in comparisons of single values, and its limit. The
// limit is a fraction of a second and about ten megabytes.
const (
	maxCompared = 16 << 20
	visitCost   = 4  // of visiting a block
	splitCost   = 8  // of a value in a list that is split
	partCost    = 64 // of creating a part of a block
)

var errTooManyCombinations = errors.New("there are too many combinations of verbs, API groups, resources and names to tell whether they are held")

// The factors of a rule. A rule allows each verb for each group, resource and
// name, and each verb for each URL.
const (
	verbs = iota
	groups
	resources
	names
	urls
	factors
)

// block is a rule, or a part of one, that allows all combinations of the values
// of its factors. Upstream expands these, so that three short lists make
// millions of rules. Here they stay factors. No value is repeated.
type block [factors][]string

// blocks returns the blocks of a rule.
func blocks(r *rbacv1.PolicyRule) (out []block) {
	if len(r.Verbs) == 0 {
		return nil
	}
	if len(r.APIGroups) > 0 && len(r.Resources) > 0 {
		out = append(out, block{verbs: distinct(r.Verbs), groups: distinct(r.APIGroups), resources: distinct(r.Resources), names: distinct(r.ResourceNames)})
	}
	if len(r.NonResourceURLs) > 0 {
		out = append(out, block{verbs: distinct(r.Verbs), urls: distinct(r.NonResourceURLs)})
	}
	return out
}

// distinct returns the values without repetitions, in their order.
func distinct(values []string) []string {
	seen := make(map[string]bool, len(values))
	var out []string
	for _, v := range values {
		if !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}

// heldRule is a rule that a user has, prepared for comparison.
type heldRule struct {
	lists [factors][]string
	sets  [factors]map[string]bool // of long lists
	all   [factors]bool            // whether all values are covered
}

func newHeldRule(r *rbacv1.PolicyRule) *heldRule {
	h := &heldRule{lists: [factors][]string{r.Verbs, r.APIGroups, r.Resources, r.ResourceNames, r.NonResourceURLs}}
	h.all = [factors]bool{
		verbs:     slices.Contains(r.Verbs, rbacv1.VerbAll),
		groups:    slices.Contains(r.APIGroups, rbacv1.APIGroupAll),
		resources: slices.Contains(r.Resources, rbacv1.ResourceAll),
		names:     len(r.ResourceNames) == 0,
	}
	const long = 16
	for factor, list := range h.lists {
		if len(list) > long && !h.all[factor] {
			h.sets[factor] = make(map[string]bool, len(list))
			for _, value := range list {
				h.sets[factor][value] = true
			}
		}
	}
	return h
}

func (h *heldRule) has(factor int, value string) bool {
	if set := h.sets[factor]; set != nil {
		return set[value]
	}
	return slices.Contains(h.lists[factor], value)
}

func (h *heldRule) covers(factor int, value string) bool {
	if h.all[factor] || h.has(factor, value) {
		return true
	}
	switch factor {
	case resources:
		_, subresource, ok := strings.Cut(value, "/")
		return ok && h.has(factor, "*/"+subresource)
	case urls:
		return slices.ContainsFunc(h.lists[urls], func(held string) bool {
			return strings.HasSuffix(held, "*") && strings.HasPrefix(value, strings.TrimRight(held, "*"))
		})
	}
	return false
}

// comparison finds out which of the requested rules a user does not have.
type comparison struct {
	requested []rbacv1.PolicyRule
	rest      [][]block // what is missing of each rule, as disjoint blocks
	left      int       // remaining cost
}

func newComparison(requested []rbacv1.PolicyRule) *comparison {
	c := &comparison{requested: requested, left: maxCompared}
	for i := range requested {
		c.rest = append(c.rest, blocks(&requested[i]))
	}
	return c
}

// subtract removes the rules that the user has from what is missing. It returns
// false if nothing is missing any more, or if the limit is exceeded.
func (c *comparison) subtract(held []rbacv1.PolicyRule) bool {
	missing := false
	for i := range held {
		h := newHeldRule(&held[i])
		for _, list := range h.lists {
			c.left -= len(list)
		}
		missing = false
		for requested, rest := range c.rest {
			if len(rest) == 0 {
				continue
			}
			var next []block
			for _, b := range rest {
				if next = c.without(next, b, h); c.left < 0 {
					return false
				}
			}
			c.rest[requested] = next
			missing = missing || len(next) > 0
		}
		if !missing {
			return false
		}
	}
	return true
}

// missing describes the missing permissions. It is empty if there are none.
func (c *comparison) missing() (description, error) {
	var d description
	if c.left < 0 {
		return d, errTooManyCombinations
	}
	for i, rest := range c.rest {
		d.add(&c.requested[i], rest)
	}
	return d, nil
}

// without appends the parts of a block that a held rule does not cover. There
// is one part for each factor: the values of that factor that are not covered,
// the covered values of the factors before it, and all values of the factors
// after it.
func (c *comparison) without(rest []block, b block, h *heldRule) []block {
	c.left -= visitCost
	var covered, uncovered block
	for factor, values := range b {
		if values == nil {
			if factor == names && !h.all[names] {
				return append(rest, b)
			}
			continue
		}
		covered[factor], uncovered[factor] = c.split(factor, values, h)
		if len(covered[factor]) == 0 {
			return append(rest, b)
		}
	}
	for factor := range b {
		if len(uncovered[factor]) > 0 {
			c.left -= partCost
			part := b
			part[factor] = uncovered[factor]
			rest = append(rest, part)
		}
		b[factor] = covered[factor]
	}
	return rest
}

// split separates the covered values of a factor from the others. If the limit
// is exceeded, none is covered.
func (c *comparison) split(factor int, values []string, h *heldRule) (covered, uncovered []string) {
	if h.all[factor] {
		return values, nil
	}
	c.left -= len(values)
	if factor == urls {
		c.left -= len(values) * len(h.lists[urls])
	}
	if c.left < 0 {
		return nil, values
	}
	first := h.covers(factor, values[0])
	differs := func(value string) bool { return h.covers(factor, value) != first }
	switch {
	case slices.ContainsFunc(values, differs):
		c.left -= splitCost * len(values)
	case first:
		return values, nil
	default:
		return nil, values
	}
	for _, value := range values {
		if h.covers(factor, value) {
			covered = append(covered, value)
		} else {
			uncovered = append(uncovered, value)
		}
	}
	return covered, uncovered
}
