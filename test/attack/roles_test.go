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

// manager is a tenant who may give roles in his namespace.
func (c *cluster) manager(t *testing.T) (mallory *rest.Config, namespace string) {
	t.Helper()
	mallory, namespace = c.tenant(t, "admin")
	allow(t, c, mallory, namespace)
	return mallory, namespace
}

// TestRolesThatMultiply: rules whose lists make more permissions than there is
// room for, to be compared with what their writer holds.
func TestRolesThatMultiply(t *testing.T) {
	c := controlPlane(t)
	mallory, namespace := c.manager(t)
	roles := rbacOf + namespace + "/roles"
	role := func(name, rule string) string {
		return `{"metadata":{"name":"` + name + `"},"rules":[{` + rule + `}]}`
	}
	list := func(what, prefix string, n int) string {
		return `"` + what + `":` + many(n, `"`+prefix+`%d"`)
	}
	repeated := func(what, value string, n int) string {
		return `"` + what + `":[` + strings.TrimSuffix(strings.Repeat(`"`+value+`",`, n), ",") + `]`
	}
	before := c.memory(t)
	c.meanwhile(t, func(context.Context) {
		wide := list("apiGroups", "g", 220) + "," + list("resources", "r", 220) + "," + list("verbs", "v", 220)
		answered(t, "ten million permissions", mallory, http.MethodPost, roles, role("wide", wide), "application/json", http.StatusForbidden)
		answered(t, "ten million permissions for each of 10,000 names", mallory, http.MethodPost, roles, role("wide", wide+","+list("resourceNames", "n", 10_000)), "application/json", http.StatusForbidden)
		answered(t, "one permission, millions of times", mallory, http.MethodPost, roles+"?dryRun=All",
			role("same", repeated("apiGroups", "", 10_000)+","+repeated("resources", "pods", 10_000)+","+repeated("verbs", "get", 10_000)), "application/json", http.StatusCreated)
		answered(t, "a role of his own", mallory, http.MethodPost, roles+"?dryRun=All",
			role("own", `"apiGroups":[""],"resources":["pods"],"verbs":["get","list"]`), "application/json", http.StatusCreated)
	})
	if code, answer := send(t, mallory, http.MethodPost, roles, role("wide", `"apiGroups":["g"],"resources":["r"],"verbs":["v","w"]`)); code != http.StatusForbidden ||
		!strings.Contains(answer, `not currently held:\n{APIGroups:[\"g\"], Resources:[\"r\"], Verbs:[\"v\" \"w\"]}`) {
		t.Errorf("%d %s", code, fmt.Sprintf("%.500s", answer))
	}
	c.remembers(t, before)
}
