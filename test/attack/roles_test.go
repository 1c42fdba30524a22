package attack

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

const rbacOf = "/apis/rbac.authorization.k8s.io/v1/namespaces/"

// manager returns a tenant that may create roles and bindings in its namespace.
func (c *cluster) manager(t *testing.T) (mallory *rest.Config, namespace string) {
	t.Helper()
	mallory, namespace = c.tenant(t, "admin")
	allow(t, c, mallory, namespace)
	return mallory, namespace
}

// TestRoleAmplification creates roles whose rules expand to millions of
// permissions, which the escalation check compares with the permissions of the
// user.
func TestRoleAmplification(t *testing.T) {
	c := controlPlane(t)
	mallory, namespace := c.manager(t)
	roles := rbacOf + namespace + "/roles"
	role := func(name, rule string) string {
		return `{"metadata":{"name":"` + name + `"},"rules":[{` + rule + `}]}`
	}
	list := func(what, prefix string, n int) string {
		return `"` + what + `":` + jsonList(n, `"`+prefix+`%d"`)
	}
	repeated := func(what, value string, n int) string {
		return `"` + what + `":[` + strings.TrimSuffix(strings.Repeat(`"`+value+`",`, n), ",") + `]`
	}
	before := c.memory(t)
	c.checkLatencyDuring(t, func(context.Context) {
		wide := list("apiGroups", "g", 220) + "," + list("resources", "r", 220) + "," + list("verbs", "v", 220)
		checkAnswer(t, "ten million permissions", mallory, http.MethodPost, roles, role("wide", wide), "application/json", http.StatusForbidden)
		checkAnswer(t, "ten million permissions for each of 10,000 names", mallory, http.MethodPost, roles, role("wide", wide+","+list("resourceNames", "n", 10_000)), "application/json", http.StatusForbidden)
		checkAnswer(t, "one permission, millions of times", mallory, http.MethodPost, roles+"?dryRun=All",
			role("same", repeated("apiGroups", "", 10_000)+","+repeated("resources", "pods", 10_000)+","+repeated("verbs", "get", 10_000)), "application/json", http.StatusCreated)
		checkAnswer(t, "a role that the tenant may create", mallory, http.MethodPost, roles+"?dryRun=All",
			role("own", `"apiGroups":[""],"resources":["pods"],"verbs":["get","list"]`), "application/json", http.StatusCreated)
	})
	if code, answer := send(t, mallory, http.MethodPost, roles, role("wide", `"apiGroups":["g"],"resources":["r"],"verbs":["v","w"]`)); code != http.StatusForbidden ||
		!strings.Contains(answer, `not currently held:\n{APIGroups:[\"g\"], Resources:[\"r\"], Verbs:[\"v\" \"w\"]}`) {
		t.Errorf("%d %s", code, fmt.Sprintf("%.500s", answer))
	}
	c.recordMemory(t, before)
}

// TestBindingAmplification creates bindings of large roles with thousands of equal
// subjects, and requests the tenant's rules (SelfSubjectRulesReview).
func TestBindingAmplification(t *testing.T) {
	c := controlPlane(t)
	mallory, namespace := c.manager(t)
	roles, bindings := rbacOf+namespace+"/roles", rbacOf+namespace+"/rolebindings"
	bound := func(name, role string, times int) string {
		subject := `{"kind":"ServiceAccount","name":"tenant","namespace":"` + namespace + `"},`
		return `{"metadata":{"name":"` + name + `"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"` + role + `"},"subjects":[` +
			strings.TrimSuffix(strings.Repeat(subject, times), ",") + `]}`
	}
	before := c.memory(t)
	c.checkLatencyDuring(t, func(context.Context) {
		for i := range 4 {
			role, binding := fmt.Sprintf("large%d", i), fmt.Sprintf("many%d", i)
			send(t, mallory, http.MethodDelete, roles+"/"+role, "")
			send(t, mallory, http.MethodDelete, bindings+"/"+binding, "")
			checkAnswer(t, "a large role", mallory, http.MethodPost, roles,
				`{"metadata":{"name":"`+role+`"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"],"resourceNames":`+jsonList(50_000, `"n%d"`)+`}]}`, "application/json", http.StatusCreated)
			checkAnswer(t, "5000 times the same subject", mallory, http.MethodPost, bindings, bound(binding, role, 5000), "application/json", http.StatusCreated)
		}
		code, answer := send(t, mallory, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", `{"spec":{"namespace":"`+namespace+`"}}`)
		if code != http.StatusCreated || !strings.Contains(answer, `"incomplete":true`) || len(answer) > 4<<20 {
			t.Errorf("%d with %d bytes", code, len(answer))
		}
	})
	c.recordMemory(t, before)
}

// TestBindingChangesDelayOthers changes a binding continuously in a namespace
// with hundreds of thousands of subjects.
func TestBindingChangesDelayOthers(t *testing.T) {
	c := controlPlane(t)
	mallory, namespace := c.manager(t)
	bindings := rbacOf + namespace + "/rolebindings"
	bound := func(name, subjects string) string {
		return `{"metadata":{"name":"` + name + `"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":` + subjects + `}`
	}
	for i := range 24 {
		subjects := jsonList(15_000, fmt.Sprintf(`{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"u%d-%%d"}`, i))
		eventually(t, "a large binding", func() error { // there may be no memory for it for a moment
			if code, answer := send(t, mallory, http.MethodPost, bindings, bound(fmt.Sprint("b", i), subjects)); code != http.StatusCreated {
				return fmt.Errorf("%d %.300s", code, answer)
			}
			return nil
		})
	}
	checkAnswer(t, "a small binding", mallory, http.MethodPost, bindings, bound("poke", "[]"), "application/json", http.StatusCreated)
	c.checkLatencyDuring(t, func(context.Context) {
		for i := range 30 {
			checkAnswer(t, "a label", mallory, http.MethodPatch, bindings+"/poke", fmt.Sprintf(`{"metadata":{"labels":{"a":"%d"}}}`, i), mergePatch, http.StatusOK)
		}
	})
}
