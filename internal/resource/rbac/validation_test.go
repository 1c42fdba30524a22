package rbac

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// That rules have verbs is checked by the tags of the type, after everything else, and
// without details.
func TestVerbsAreCheckedLast(t *testing.T) {
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}}, {Verbs: []string{"get"}, NonResourceURLs: []string{"/"}}, {NonResourceURLs: []string{"/"}}}
	var got []string
	for _, err := range slices.Concat(validateRules(rules, false), validateVerbs(rules)) {
		got = append(got, err.Error())
	}
	want := []string{
		"rules[0].resources: Required value: resource rules must supply at least one resource",
		"rules[0].verbs: Required value",
		"rules[2].verbs: Required value",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestRoleRefs checks that the role of a binding cannot change.
func TestRoleRefs(t *testing.T) {
	view := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}
	edit := view
	edit.Name = "edit"
	for _, test := range []struct {
		name     string
		now, old rbacv1.RoleRef
		want     string
	}{
		{"the same", view, view, ""},
		{"another", edit, view, `roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"ClusterRole","Name":"edit"}: field is immutable`},
	} {
		got := ""
		if errs := validateRoleRefUpdate(test.now, test.old); len(errs) > 0 {
			got = errs.ToAggregate().Error()
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}
