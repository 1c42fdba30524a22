package bootstrap

import (
	_ "embed"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

//go:embed policy.txt
var policyText string

const (
	nodeRole    = "system:node"
	labelPrefix = rbacv1.GroupName + "/"
)

// NodeRules returns the rules of the cluster role system:node, by which the
// Node authorizer allows requests that do not depend on pods.
func NodeRules() []rbacv1.PolicyRule {
	for _, w := range policy() {
		if r, ok := w.obj.(*rbacv1.ClusterRole); ok && r.Name == nodeRole {
			return r.Rules
		}
	}
	panic("the policy has no role " + nodeRole)
}

// policy returns the roles and bindings of the embedded table.
func policy() []wanted {
	all, err := parsePolicy(policyText)
	if err != nil {
		panic(err)
	}
	return all
}

func parsePolicy(text string) ([]wanted, error) {
	var out []wanted
	var role *rbacv1.ClusterRole
	var rules *[]rbacv1.PolicyRule
	number := 0
	for line := range strings.Lines(text) {
		number++
		f := strings.Fields(line)
		if len(f) == 0 || f[0][0] == '#' {
			continue
		}
		fail := func(problem string) ([]wanted, error) {
			return nil, fmt.Errorf("policy, line %d: %s: %q", number, problem, strings.TrimSpace(line))
		}
		switch {
		case line[0] == ' ' && f[0] == "aggregate" && len(f) == 2:
			if role == nil {
				return fail("only a clusterrole aggregates")
			}
			if role.AggregationRule == nil {
				role.AggregationRule = &rbacv1.AggregationRule{}
			}
			role.AggregationRule.ClusterRoleSelectors = append(role.AggregationRule.ClusterRoleSelectors,
				metav1.LabelSelector{MatchLabels: map[string]string{labelPrefix + f[1]: "true"}})
		case line[0] == ' ':
			rule, ok := parseRule(f)
			if !ok || rules == nil {
				return fail("not a rule of a role")
			}
			*rules = append(*rules, rule)
		case f[0] == "clusterrole" && len(f) >= 2:
			role = &rbacv1.ClusterRole{ObjectMeta: defaultMeta("", f[1])}
			for _, label := range f[2:] {
				role.Labels[labelPrefix+label] = "true"
			}
			rules = &role.Rules
			out = append(out, wanted{objects.ClusterRoles, role})
		case f[0] == "role" && len(f) == 3:
			r := &rbacv1.Role{ObjectMeta: defaultMeta(f[1], f[2])}
			role, rules = nil, &r.Rules
			out = append(out, wanted{objects.Roles, r})
		case f[0] == "clusterrolebinding" && len(f) >= 3:
			subjects, err := parseSubjects(f[3:])
			if err != nil {
				return fail(err.Error())
			}
			out = append(out, wanted{objects.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
				ObjectMeta: defaultMeta("", bindingName(f[1], f[2])), Subjects: subjects,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: f[2]}}})
		case f[0] == "rolebinding" && len(f) >= 4:
			subjects, err := parseSubjects(f[4:])
			kind, name, ok := strings.Cut(f[3], "/")
			if err != nil || !ok {
				return fail("not a rolebinding")
			}
			out = append(out, wanted{objects.RoleBindings, &rbacv1.RoleBinding{
				ObjectMeta: defaultMeta(f[1], bindingName(f[2], name)), Subjects: subjects,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}}})
		default:
			return fail("not understood")
		}
	}
	return out, nil
}

func parseRule(f []string) (rbacv1.PolicyRule, bool) {
	if len(f) < 3 || len(f) > 4 {
		return rbacv1.PolicyRule{}, false
	}
	list := func(s string) []string { return strings.Split(s, ",") }
	r := rbacv1.PolicyRule{Verbs: list(f[0])}
	if f[1] == "url" {
		r.NonResourceURLs = list(f[2])
		return r, len(f) == 3
	}
	for _, group := range list(f[1]) {
		if group == "core" {
			group = ""
		}
		r.APIGroups = append(r.APIGroups, group)
	}
	r.Resources = list(f[2])
	if len(f) == 4 {
		r.ResourceNames = list(f[3])
	}
	return r, true
}

func parseSubjects(fields []string) ([]rbacv1.Subject, error) {
	var out []rbacv1.Subject
	for _, f := range fields {
		kind, name, _ := strings.Cut(f, "/")
		switch kind {
		case "user":
			out = append(out, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name})
		case "group":
			out = append(out, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name})
		case "serviceaccount":
			namespace, account, _ := strings.Cut(name, "/")
			out = append(out, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account})
		default:
			return nil, fmt.Errorf("subject %s", f)
		}
	}
	return out, nil
}

func bindingName(name, role string) string {
	if name == "=" {
		return role
	}
	return name
}

func defaultMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:   namespace,
		Name:        name,
		Labels:      map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"},
		Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
	}
}
