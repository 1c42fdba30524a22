package attack

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNodeReaderRunsCommandsInContainers checks that the permission to get
// nodes/proxy and pods/exec, which monitoring often has, does not allow
// commands in containers, although kubelets see the API server's identity.
func TestNodeReaderRunsCommandsInContainers(t *testing.T) {
	c := controlPlane(t)
	ctx := context.Background()
	const name = "attack-reader"
	reader := c.user(t, name)
	if _, err := c.client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/proxy", "pods/exec"}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.client.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{}) })
	if _, err := c.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.client.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{}) })
	const proxy = "/api/v1/nodes/none/proxy"
	eventually(t, "the reader's permissions", func() error { // the node does not exist, which is checked after authorization
		if code, body := send(t, reader, http.MethodGet, proxy+"/metrics", ""); code != http.StatusNotFound {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	upgrade := func(protocol string) []string {
		return []string{"Connection", "Upgrade", "Upgrade", protocol, "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	}
	reader.NextProtos = []string{"http/1.1"} // connections are not upgraded over HTTP/2
	for _, test := range []struct {
		path    string
		headers []string
	}{
		{proxy + "/exec/kube-system/x/x?command=id&output=1", upgrade("websocket")},
		{proxy + "/exec/kube-system/x/x?command=id&output=1", nil},
		{proxy + "/metrics/%2e%2e/exec/kube-system/x/x?command=id", upgrade("websocket")},
		{proxy + "/attach/kube-system/x/x", upgrade("SPDY/3.1")},
		{proxy + "/run/kube-system/x/x?cmd=id", nil},
		{proxy + "/whatever", upgrade("websocket")},
		{"/api/v1/namespaces/kube-system/pods/x/exec?command=id", upgrade("websocket")},
		{"/api/v1/namespaces/kube-system/pods/x/exec?command=id", upgrade("SPDY/3.1")},
	} {
		if code, body := send(t, reader, http.MethodGet, test.path, "", test.headers...); code != http.StatusForbidden || !strings.Contains(body, "cannot create") {
			t.Errorf("GET %s with %v: %d %s, want 403", test.path, test.headers, code, body)
		}
	}
}

// TestExpensiveSelectors lists many objects by selectors with as many values as
// fit into the headers.
func TestExpensiveSelectors(t *testing.T) {
	c := controlPlane(t)
	mallory, namespace := c.tenant(t, "edit")
	maps := "/api/v1/namespaces/" + namespace + "/configmaps"
	for i := range 300 {
		checkAnswer(t, "an object", c.admin, http.MethodPost, maps, fmt.Sprintf(`{"metadata":{"name":"o%d","labels":{"a":"b"}}}`, i), "application/json", http.StatusCreated)
	}
	values := strings.Repeat("x,", 200<<10) + "x"
	c.checkLatencyDuring(t, func(context.Context) {
		for _, operator := range []string{"in", "notin"} {
			if code, body := send(t, mallory, http.MethodGet, maps+"?limit=1&labelSelector=a+"+operator+"+("+values+")", ""); code != http.StatusOK {
				t.Errorf("%s: %d %.200s", operator, code, body)
			}
		}
	})
}
