package attack

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// marker is a text in secrets that only the administrator may read.
const marker = "bm90LWZvci15b3U="

// createMarkedSecret creates a secret with the marker in a namespace.
func (c *cluster) createMarkedSecret(t *testing.T, namespace, name string) {
	t.Helper()
	ctx := context.Background()
	secrets := c.client.CoreV1().Secrets(namespace)
	if _, err := secrets.Create(ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"m": []byte("not-for-you")}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := secrets.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// sendRaw sends raw bytes over a new connection. It returns the responses until
// the server closes the connection or sends nothing more.
func (c *cluster) sendRaw(t *testing.T, request string) (codes []int, bodies string) {
	t.Helper()
	connection, err := tls.Dial("tcp", c.address(), c.trust(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(waitTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(connection, request); err != nil {
		return nil, ""
	}
	reader := bufio.NewReader(connection)
	for {
		answer, err := http.ReadResponse(reader, nil)
		if err != nil {
			return codes, bodies
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		codes, bodies = append(codes, answer.StatusCode), bodies+string(body)
		if err != nil || answer.Close {
			return codes, bodies
		}
	}
}

// TestTenantReadsOthersSecretsByPathTricks checks that for any spelling of a path,
// the authorizer and the handler use the same resource.
func TestTenantReadsOthersSecretsByPathTricks(t *testing.T) {
	c := controlPlane(t)
	config, namespace := c.tenant(t, "admin")
	c.createMarkedSecret(t, "kube-system", "path-tricks")
	const target = "kube-system/secrets/path-tricks"
	own := "/api/v1/namespaces/" + namespace
	var paths []string
	for _, dots := range []string{"..", "%2e%2e", "%2E.", ".%2e", "..%00", "%c0%ae%c0%ae", "..;", "..%3b", "..%20", "%252e%252e"} {
		for _, slash := range []string{"/", "//", "%2f", "%5c", `\`} {
			paths = append(paths,
				own+slash+dots+slash+strings.ReplaceAll(target, "/", slash),
				own+"/configmaps"+slash+dots+slash+dots+slash+target,
				"/healthz"+slash+dots+"/api/v1/namespaces/"+target,
				"/version"+slash+dots+slash+"api/v1/namespaces/"+target,
				"/openapi/v3"+slash+dots+slash+dots+"/api/v1/namespaces/"+target,
				"/apis/apps"+slash+dots+slash+dots+"/api/v1/namespaces/"+target)
		}
	}
	paths = append(paths,
		"/api/v1/namespaces/"+target, "//api/v1/namespaces/"+target, "/./api/v1/namespaces/"+target, "/api//v1/namespaces//"+target,
		"/api/v1/namespaces/kube-system/secrets;/path-tricks", "/api/v1/namespaces/kube-system/secrets/path-tricks/", "/api/v1/namespaces/kube-system/secrets/path-tricks/status",
		"/api/v1/namespaces/kube-system%2fsecrets/path-tricks", "/api/v1/namespaces/"+namespace+"%2f..%2fkube-system/secrets", "/api/v1/Namespaces/"+target, "/API/v1/namespaces/"+target,
		"/api/v1/namespaces/kube-system/secrets%00/path-tricks", "/api/v1/namespaces/kube-system%00/secrets/path-tricks", "/api/v1/namespaces/kube-system/secrets?watch=1&timeoutSeconds=1",
		"/api/v1/watch/namespaces/"+target, "/api/v1/proxy/namespaces/"+target, "/api/v1/secrets?fieldSelector=metadata.namespace="+namespace, "/api/v1/secrets?namespace="+namespace,
		"/api/v1/namespaces//secrets", "/api/v1/namespaces/*/secrets", "/api/v1/namespaces/%2a/secrets", "/api/v1/secrets/", "/api/v1/watch/secrets?timeoutSeconds=1",
		"/metrics/../api/v1/secrets", "/api/v1/nodes/x/proxy/../../../namespaces/"+target, own+"/pods/x/proxy/../../../../"+target, own+"/services/x/proxy/..%2f..%2f..%2f..%2f"+target,
	)
	for _, path := range paths {
		codes, bodies := c.sendRaw(t, "GET "+path+" HTTP/1.1\r\nHost: kubernetes\r\nAuthorization: Bearer "+config.BearerToken+"\r\nConnection: close\r\n\r\n")
		if strings.Contains(bodies, marker) {
			t.Errorf("%s answers %d with the secret", path, codes)
		}
		if len(codes) > 0 && codes[0] < 300 && !strings.Contains(path, "version") && !strings.Contains(path, "healthz") && !strings.Contains(path, "openapi") {
			t.Errorf("%s answers %d: %.200s", path, codes, bodies)
		}
		if len(codes) > 0 && codes[0] >= 500 {
			t.Errorf("%s answers %d: %.200s", path, codes, bodies)
		}
	}
	c.checkNotRestarted(t)
}

// TestTenantBecomesAnotherBySmuggledHeaders checks that headers of proxies, of
// impersonation and of frameworks change neither the user nor the request.
func TestTenantBecomesAnotherBySmuggledHeaders(t *testing.T) {
	c := controlPlane(t)
	config, _ := c.tenant(t, "admin")
	c.createMarkedSecret(t, "kube-system", "smuggled-headers")
	token := "Authorization: Bearer " + config.BearerToken + "\r\n"
	for _, headers := range []string{
		token + "X-Remote-User: admin\r\nX-Remote-Group: system:masters\r\n",
		token + "x-remote-user: admin\r\nx-REMOTE-group: system:masters\r\nX-Remote-Uid: 0\r\nX-Remote-Extra-A: b\r\n",
		"X-Remote-User: admin\r\nX-Remote-Group: system:masters\r\n",
		token + "Impersonate-User: admin\r\n", token + "Impersonate-User: admin\r\nImpersonate-Group: system:masters\r\n", token + "Impersonate-Group: system:masters\r\n",
		token + "impersonate-user:admin\r\nIMPERSONATE-group:system:masters\r\n", token + "Impersonate-Uid: 0\r\n", token + "Impersonate-Extra-Scopes: all\r\n",
		token + "Impersonate_User: admin\r\n", token + "Impersonate-User: \r\nImpersonate-Group: system:masters\r\n",
		token + "X-Forwarded-User: admin\r\nX-Forwarded-For: 127.0.0.1\r\nForwarded: for=127.0.0.1\r\nX-Real-Ip: 127.0.0.1\r\nX-Forwarded-Client-Cert: By=admin\r\nX-Ssl-Client-Cert: x\r\n",
		token + "X-Http-Method-Override: OPTIONS\r\nX-Method-Override: OPTIONS\r\n", token + "X-Original-Url: /version\r\nX-Rewrite-Url: /version\r\n",
		token + "Authorization: Basic YWRtaW46YWRtaW4=\r\n", token + "Authorization: Bearer \r\n", "Authorization: Bearer " + config.BearerToken + "," + config.BearerToken + "\r\n",
		"Authorization: Bearer system:masters\r\n", "Authorization: bearer  \r\n", "Cookie: token=" + config.BearerToken + "\r\n", "Proxy-Authorization: Bearer " + config.BearerToken + "\r\n",
		token + "Connection: Authorization\r\n", token + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", token + "Content-Length: 5\r\nContent-Length: 6\r\n",
		token + "Transfer-Encoding: xchunked\r\n", token + " Impersonate-User: admin\r\n", token + "Impersonate-User : admin\r\n", token + "Host: elsewhere\r\n",
	} {
		for _, start := range []string{"GET /api/v1/namespaces/kube-system/secrets", "GET https://kubernetes/api/v1/namespaces/kube-system/secrets", "GET http://127.0.0.1@kubernetes/api/v1/namespaces/kube-system/secrets", "POST /api/v1/namespaces/kube-system/secrets"} {
			codes, bodies := c.sendRaw(t, start+" HTTP/1.1\r\nHost: kubernetes\r\n"+headers+"Connection: close\r\n\r\n0\r\n\r\n")
			if strings.Contains(bodies, marker) || len(codes) > 0 && (codes[0] < 400 || codes[0] >= 500 && codes[0] != http.StatusNotImplemented) {
				t.Errorf("%s with %q answers %d: %.200s", start, strings.ReplaceAll(headers, config.BearerToken, "TOKEN"), codes, bodies)
			}
		}
	}
	// A request in the body of another is not executed.
	inner := "GET /api/v1/namespaces/kube-system/secrets HTTP/1.1\r\nHost: kubernetes\r\nX-Remote-User: admin\r\nX-Remote-Group: system:masters\r\nConnection: close\r\n\r\n"
	for _, framing := range []string{fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n", len(inner)+5), "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "Transfer-Encoding:\vchunked\r\n"} {
		codes, bodies := c.sendRaw(t, "POST /version HTTP/1.1\r\nHost: kubernetes\r\n"+token+framing+"\r\n0\r\n\r\n"+inner)
		if strings.Contains(bodies, marker) || len(codes) > 1 && codes[1] < 400 {
			t.Errorf("%q: %d %.200s", framing, codes, bodies)
		}
	}
	c.checkNotRestarted(t)
}

// TestTenantWritesOutsideThePath checks that a body cannot name another object
// than the path, because the authorizer sees only the path.
func TestTenantWritesOutsideThePath(t *testing.T) {
	c := controlPlane(t)
	config, namespace := c.tenant(t, "admin")
	eventually(t, "the tenant's permissions", func() error {
		if code, body := send(t, config, "POST", "/api/v1/namespaces/"+namespace+"/configmaps", `{"metadata":{"name":"own"}}`); code != http.StatusCreated {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	maps := "/api/v1/namespaces/" + namespace + "/configmaps"
	long, huge := strings.Repeat("a", 254), strings.Repeat("a", 1<<20)
	for _, r := range []struct{ method, path, contentType, body string }{
		{"POST", maps, "application/json", `{"metadata":{"name":"x","namespace":"kube-system"}}`},
		{"POST", maps, "application/yaml", "metadata: {name: x, namespace: kube-system}\n"},
		{"POST", maps, "application/json", `{"metadata":{"name":"x","namespace":"` + namespace + `","namespace":"kube-system"}}`},
		{"POST", maps, "application/json", `{"kind":"List","apiVersion":"v1","items":[{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","namespace":"kube-system"}}]}`},
		{"POST", maps, "application/json", `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x"}}`},
		{"PUT", maps + "/own", "application/json", `{"metadata":{"name":"other"}}`},
		{"PUT", maps + "/own", "application/json", `{"metadata":{"name":"own","namespace":"kube-system"}}`},
		{"PUT", maps + "/own", "application/json", `{"metadata":{"name":"own","uid":"1"}}`},
		{"PATCH", maps + "/own", "application/merge-patch+json", `{"metadata":{"namespace":"kube-system"}}`},
		{"PATCH", maps + "/own", "application/merge-patch+json", `{"metadata":{"name":"other"}}`},
		{"PATCH", maps + "/own", "application/json-patch+json", `[{"op":"replace","path":"/metadata/namespace","value":"kube-system"}]`},
		{"PATCH", maps + "/own?fieldManager=x", "application/apply-patch+yaml", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"own","namespace":"kube-system"}}`},
		{"PATCH", maps + "/own?fieldManager=x", "application/apply-patch+yaml", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"own"}}`},
		{"POST", "/api/v1/namespaces/" + namespace + "/bindings", "application/json", `{"metadata":{"name":"x","namespace":"kube-system"},"target":{"name":"n"}}`},
		{"POST", "/api/v1/namespaces/" + namespace + "/pods/x/eviction", "application/json", `{"metadata":{"name":"y","namespace":"kube-system"}}`},
		{"POST", "/api/v1/namespaces/" + namespace + "/serviceaccounts/default/token", "application/json", `{"metadata":{"name":"x","namespace":"kube-system"},"spec":{}}`},
		{"POST", maps, "application/json", `{"metadata":{"name":"../../kube-system/configmaps/x"}}`},
		{"POST", maps, "application/json", `{"metadata":{"name":".."}}`},
		{"POST", maps, "application/json", `{"metadata":{"name":"a/b"}}`},
		{"POST", maps, "application/json", `{"metadata":{"name":"a%2fb"}}`},
		{"POST", maps, "application/json", `{"metadata":{"name":"a\u0000b"}}`},
		{"POST", maps, "application/json", `{"metadata":{"name":"` + long + `"}}`},
		{"POST", maps, "application/json", `{"metadata":{"name":"` + huge + `"}}`},
		{"POST", maps, "application/json", `{"metadata":{"generateName":"../"}}`},
		{"PUT", maps + "/" + long, "application/json", `{"metadata":{"name":"` + long + `"}}`},
		{"POST", maps + "/own", "application/json", `{"metadata":{"name":"own"}}`},
		{"DELETE", "/api/v1/configmaps", "application/json", ""},
		{"DELETE", "/api/v1/namespaces/kube-system/configmaps?fieldSelector=metadata.namespace=" + namespace, "application/json", ""},
	} {
		code, body := send(t, config, r.method, r.path, r.body, "Content-Type", r.contentType)
		if code < 400 || code >= 500 {
			t.Errorf("%s %.100s %.200s: %d %.300s", r.method, r.path, r.body, code, body)
		}
	}
	elsewhere, err := c.client.CoreV1().ConfigMaps("kube-system").List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=x"})
	if err != nil || len(elsewhere.Items) != 0 {
		t.Errorf("in kube-system: %v, %v", elsewhere.Items, err)
	}
	c.checkNotRestarted(t)
}

// TestWatchOfOneNameShowsAnother checks that a user who may read one object by
// name does not get others by a list or watch with that name in its selector.
func TestWatchOfOneNameShowsAnother(t *testing.T) {
	c := controlPlane(t)
	ctx := context.Background()
	config, namespace := c.tenant(t, "")
	c.createMarkedSecret(t, namespace, "hidden")
	if _, err := c.client.CoreV1().Secrets(namespace).Create(ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "allowed"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Rules: []rbacv1.PolicyRule{{
		Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"allowed"},
	}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "one"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "one"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "tenant", Namespace: namespace}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secrets := "/api/v1/namespaces/" + namespace + "/secrets"
	selected := "?fieldSelector=" + url.QueryEscape("metadata.name=allowed")
	eventually(t, "listing the allowed secret", func() error {
		if code, body := send(t, config, "GET", secrets+selected, ""); code != http.StatusOK || !strings.Contains(body, "allowed") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	for _, query := range []string{
		"", selected, selected + "&fieldSelector=", "?fieldSelector=&fieldSelector=metadata.name%3Dallowed", "?fieldSelector=metadata.name%3Dhidden&fieldSelector=metadata.name%3Dallowed",
		"?fieldSelector=metadata.name%3Dallowed&fieldSelector=metadata.name%3Dhidden", "?fieldSelector=metadata.name!%3Dallowed", "?fieldSelector=metadata.name%3Dallowed,metadata.name%3Dhidden",
		"?fieldSelector=metadata.name%3Dhidden,metadata.name%3Dallowed", "?fieldSelector=metadata.name%3D%3Dallowed,type%3DOpaque", "?fieldSelector=metadata.name%3Dallowed%5C,x", "?FieldSelector=metadata.name%3Dallowed",
		"?fieldSelector=metadata.name%3Dallowed;fieldSelector=", "?labelSelector=metadata.name%3Dallowed", "?resourceNames=allowed", "?name=allowed",
	} {
		for _, watch := range []string{"", "watch=true&timeoutSeconds=1"} {
			path := secrets + query
			switch {
			case watch != "" && query == "":
				path += "?" + watch
			case watch != "":
				path += "&" + watch
			}
			if code, body := send(t, config, "GET", path, ""); strings.Contains(body, marker) || strings.Contains(body, `"hidden"`) && code < 300 {
				t.Errorf("%s: %d %.300s", path, code, body)
			}
		}
	}
	for _, path := range []string{secrets + "/hidden", secrets + "/hidden?watch=true", "/api/v1/watch/namespaces/" + namespace + "/secrets/hidden", secrets + "/allowed/../hidden", secrets + "/hidden?fieldSelector=metadata.name%3Dallowed"} {
		if code, body := send(t, config, "GET", path, ""); code < 400 || strings.Contains(body, marker) {
			t.Errorf("%s: %d %.300s", path, code, body)
		}
	}
}

// TestYAMLBombs checks that YAML documents that expand while they are parsed are
// refused.
func TestYAMLBombs(t *testing.T) {
	c := controlPlane(t)
	config, namespace := c.tenant(t, "admin")
	maps := "/api/v1/namespaces/" + namespace + "/configmaps"
	laughs := "a0: &a0 [" + strings.Repeat("lol,", 10) + "]\n"
	for i := range 12 {
		laughs += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 10))
	}
	merges := "a0: &a0 {" + strings.Repeat("x", 1000) + ": y}\n"
	for i := range 24 {
		merges += fmt.Sprintf("a%d: &a%d {x: *a%d, y: *a%d, <<: *a%d}\n", i+1, i+1, i, i, i)
	}
	bombs := map[string]string{
		"a billion laughs": laughs, "merged keys": merges, "an alias of itself": "a: &a [*a]\n",
		"deep lists": "data: " + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000), "deep maps": strings.Repeat("a: {", 50_000) + strings.Repeat("}", 50_000),
		"deep indents": deepIndents(1500), "many documents": strings.Repeat("---\nkind: ConfigMap\n", 50_000), "tags": "data: !!binary " + strings.Repeat("A", 1<<20) + "\n",
		"a large number": "data: {a: " + strings.Repeat("9", 1<<20) + "}\n", "an exponent": "data: {a: 1e999999999}\n",
	}
	requests := []struct{ method, path, contentType, head string }{
		{"POST", maps, "application/yaml", "kind: ConfigMap\napiVersion: v1\nmetadata: {name: bomb}\n"},
		{"PATCH", maps + "/bomb?fieldManager=bomber", "application/apply-patch+yaml", "kind: ConfigMap\napiVersion: v1\nmetadata: {name: bomb}\n"},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "application/yaml", "kind: SelfSubjectAccessReview\napiVersion: authorization.k8s.io/v1\n"},
	}
	before := largestHeap(t, c)
	var slowest longest
	c.checkLatencyDuring(t, func(context.Context) {
		for name, bomb := range bombs {
			for _, r := range requests {
				begun := time.Now()
				code, body := send(t, config, r.method, r.path, r.head+bomb, "Content-Type", r.contentType)
				slowest.note(name+" in "+r.method+" "+r.path, begun)
				if code >= 500 && !strings.Contains(body, "failed to create typed patch object") {
					t.Errorf("%s in %s %s: %d after %v: %.200s", name, r.method, r.path, code, time.Since(begun), body)
				}
			}
		}
	})
	slowest.check(t)
	if after := largestHeap(t, c); after > before+200<<20 {
		t.Errorf("the largest heap of the API server has %d MB after the bombs, %d MB before", after>>20, before>>20)
	}
}

func deepIndents(depth int) string {
	var b strings.Builder
	for i := range depth {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}
