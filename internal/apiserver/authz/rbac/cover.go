package rbac

import (
	"errors"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// What it costs to find out what a user does not hold, in comparisons of a
// value, and how much it may cost: a fraction of a second, and some ten
// megabytes.
const (
	maxCompared = 16 << 20
	visitCost   = 4  // of a block
	splitCost   = 8  // of a value, in a list that is split
	partCost    = 64 // of a part of a block
)

var errTooManyCombinations = errors.New("there are too many combinations of verbs, API groups, resources and names to tell whether they are held")

// The factors of a rule: it allows each verb for each group, each resource and
// each name, and each verb for each URL.
const (
	verbs = iota
	groups
	resources
	names
	urls
	factors
)

// block is what a rule, or a part of it, allows: all combinations of the
// values of its factors. Upstream multiplies these out, so that three short
// lists make millions of rules; here they stay factors. No value is there twice.
type block [factors][]string

// blocks are what a rule allows.
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

// distinct returns values without repetitions, in their order.
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

// holding is a rule that a user holds.
type holding struct {
	lists [factors][]string
	sets  [factors]map[string]bool // of the lists that are long
	all   [factors]bool            // whatever the list
}

func newHolding(r *rbacv1.PolicyRule) *holding {
	h := &holding{lists: [factors][]string{r.Verbs, r.APIGroups, r.Resources, r.ResourceNames, r.NonResourceURLs}}
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

func (h *holding) has(factor int, value string) bool {
	if set := h.sets[factor]; set != nil {
		return set[value]
	}
	return slices.Contains(h.lists[factor], value)
}

func (h *holding) covers(factor int, value string) bool {
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

// comparison finds what a user does not hold of the rules asked for.
type comparison struct {
	asked []rbacv1.PolicyRule
	rest  [][]block // what is missing of each; the parts have nothing in common
	left  int       // comparisons that may still be made
}

func newComparison(asked []rbacv1.PolicyRule) *comparison {
	c := &comparison{asked: asked, left: maxCompared}
	for i := range asked {
		c.rest = append(c.rest, blocks(&asked[i]))
	}
	return c
}

// hold says that the user holds rules. It returns false if nothing is missing
// any more, or if there is too much to compare.
func (c *comparison) hold(held []rbacv1.PolicyRule) bool {
	missing := false
	for i := range held {
		h := newHolding(&held[i])
		for _, list := range h.lists {
			c.left -= len(list)
		}
		missing = false
		for asked, rest := range c.rest {
			if len(rest) == 0 {
				continue
			}
			var next []block
			for _, b := range rest {
				if next = c.without(next, b, h); c.left < 0 {
					return false
				}
			}
			c.rest[asked] = next
			missing = missing || len(next) > 0
		}
		if !missing {
			return false
		}
	}
	return true
}

// missing describes what the user does not hold; it is empty if there is nothing.
func (c *comparison) missing() (description, error) {
	var d description
	if c.left < 0 {
		return d, errTooManyCombinations
	}
	for i, rest := range c.rest {
		d.add(&c.asked[i], rest)
	}
	return d, nil
}

// without appends what of a block the holding does not cover: for each factor
// the values not covered, with those of the factors before that are covered
// and all of the factors after.
func (c *comparison) without(rest []block, b block, h *holding) []block {
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

// split tells the values that the holding covers from the others. It stops
// with none covered if there is too much to compare.
func (c *comparison) split(factor int, values []string, h *holding) (covered, uncovered []string) {
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
