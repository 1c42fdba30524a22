package rbac

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// The missing permissions are those that upstream finds by expanding all rules.
func TestComparisonMatchesUpstream(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	pick := func(most int, values ...string) []string {
		var out []string
		for range random.IntN(most + 1) {
			out = append(out, values[random.IntN(len(values))])
		}
		return out
	}
	some := func(n int) (rules []rbacv1.PolicyRule) {
		for range random.IntN(n) {
			r := rbacv1.PolicyRule{
				Verbs: pick(3, "get", "list", "watch", "*"), APIGroups: pick(2, "", "apps", "*"),
				Resources:     pick(4, "pods", "pods/log", "nodes/log", "*/log", "/", "*", "nodes"),
				ResourceNames: pick(3, "", "a", "b"),
			}
			if random.IntN(2) == 0 {
				r.ResourceNames = nil
			}
			if random.IntN(3) == 0 {
				r.NonResourceURLs = pick(3, "/a", "/a/*", "/a/b", "*", "/a/**")
			}
			rules = append(rules, r)
		}
		return rules
	}
	permission := func(r rbacv1.PolicyRule) string {
		return fmt.Sprintf("%q %q %q %q %q", r.Verbs, r.APIGroups, r.Resources, r.ResourceNames, r.NonResourceURLs)
	}
	for range 20_000 {
		held, requested := some(8), some(4)
		_, uncovered := validation.Covers(held, requested)
		want, got := map[string]bool{}, map[string]bool{}
		for _, r := range uncovered {
			want[permission(r)] = true
		}
		c := newComparison(requested)
		if missing := len(uncovered) > 0; c.subtract(held) != missing && missing {
			t.Fatalf("seed %d: held %v, requested %v: nothing is missing", seed, held, requested)
		}
		for _, rest := range c.rest {
			missingVerbs := map[string]bool{}
			for _, b := range rest {
				single := rbacv1.PolicyRule{Verbs: b[verbs], APIGroups: b[groups], Resources: b[resources], ResourceNames: b[names], NonResourceURLs: b[urls]}
				for _, r := range validation.BreakdownRule(single) {
					if missingVerbs[permission(r)] {
						t.Fatalf("seed %d: %s is there twice", seed, permission(r))
					}
					missingVerbs[permission(r)] = true
				}
			}
			maps.Copy(got, missingVerbs)
		}
		if !maps.Equal(got, want) {
			t.Fatalf("seed %d: held %v, requested %v: missing %v, want %v", seed, held, requested, slices.Collect(maps.Keys(got)), slices.Collect(maps.Keys(want)))
		}
	}
}

func numbered(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s%d", prefix, i))
	}
	return out
}

// A role of 5 KB expands to ten million permissions.
func TestExpandingRules(t *testing.T) {
	z := New(fixture())
	a := &user.DefaultInfo{Name: "alice"}
	const many = 220
	wide := rbacv1.PolicyRule{Verbs: numbered("v", many), APIGroups: numbered("g", many), Resources: numbered("r", many)}
	named := wide
	named.ResourceNames = numbered("n", 10_000)
	for what, r := range map[string]rbacv1.PolicyRule{"wide": wide, "named": named, "a long verb": {
		Verbs: []string{strings.Repeat("v", 1<<20)}, APIGroups: []string{""}, Resources: numbered("r", many),
	}} {
		err := z.CheckEscalation(t.Context(), z, a, clusterRole("r", r), nil)
		if err == nil || !strings.Contains(err.Error(), "is attempting to grant RBAC permissions not currently held") || !strings.HasSuffix(err.Error(), "\nand more") {
			t.Errorf("%s: %.300v", what, err)
		}
		if size := len(fmt.Sprint(err)); size > 3*maxDescription {
			t.Errorf("%s: a message of %d bytes", what, size)
		}
		m := fixture()
		m.Put("clusterroles", clusterRole("r", r))
		z := New(m)
		if err := z.CheckEscalation(t.Context(), z, a, bindCluster("b", "r", alice), nil); err == nil || !strings.HasSuffix(err.Error(), "\nand more") {
			t.Errorf("%s, bound: %.300v", what, err)
		}
	}
	var held []rbacv1.PolicyRule
	for i := range many {
		held = append(held, rbacv1.PolicyRule{Verbs: wide.Verbs[:i], APIGroups: wide.APIGroups[i:], Resources: wide.Resources[i/2:][:i/2]})
	}
	c := newComparison([]rbacv1.PolicyRule{wide})
	c.subtract(held)
	if _, err := c.missing(); !errors.Is(err, errTooManyCombinations) {
		t.Errorf("of rules that hold parts of each other: %v", err)
	}
}
