package attack

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/coracle-io/coracle/internal/pki"
)

// jsonList returns a JSON list of n elements. format is an element, with a verb
// for its number.
func jsonList(n int, format string) string {
	var text strings.Builder
	for i := range n {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(strings.ReplaceAll(format, "%d", strconv.Itoa(i)))
	}
	return "[" + text.String() + "]"
}

// TestObjectAmplification tries long lists whose elements are compared with
// each other, and objects with many errors.
func TestObjectAmplification(t *testing.T) {
	c := controlPlane(t)
	mallory, namespace := c.tenant(t, "edit")
	pods := "/api/v1/namespaces/" + namespace + "/pods?dryRun=All"
	pod := func(container, rest string) string {
		return `{"metadata":{"name":"wide"},"spec":{"containers":[{"name":"c","image":"i"` + container + `}]` + rest + `}}`
	}
	allow(t, c, mallory, namespace)
	before := c.memory(t)
	c.checkLatencyDuring(t, func(context.Context) {
		for what, body := range map[string]string{
			"files with the same path":            pod("", `,"volumes":[{"name":"v","configMap":{"name":"m","items":`+jsonList(80_000, `{"key":"k","path":"p"}`)+`}}]`),
			"duplicate ports":                     pod(`,"ports":`+jsonList(80_000, `{"containerPort":1}`), ""),
			"duplicate variables":                 pod(`,"env":`+jsonList(80_000, `{"name":"A%d"},{"name":"A%d"}`), ""),
			"containers that name missing claims": pod(`,"resources":{"claims":`+jsonList(40_000, `{"name":"x%d"}`)+`}`, `,"resourceClaims":`+jsonList(40_000, `{"name":"y%d"}`)),
			"mounts of missing volumes":           pod(`,"volumeMounts":`+jsonList(40_000, `{"name":"x%d","mountPath":"/%d"}`), ""),
			"invalid tolerations":                 pod("", `,"tolerations":`+jsonList(100_000, `{"operator":"%d"}`)),
			"empty constraints":                   pod("", `,"topologySpreadConstraints":`+jsonList(500_000, `{}`)),
			"empty affinity terms":                pod("", `,"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":`+jsonList(500_000, `{}`)+`}}`),
			"empty containers":                    `{"metadata":{"name":"wide"},"spec":{"containers":` + jsonList(900_000, `{}`) + `}}`,
			"unknown fields":                      pod("", ","+strings.Trim(jsonList(100_000, `"x%d":1`), "[]")),
			"invalid name servers":                pod("", `,"dnsConfig":{"nameservers":`+jsonList(100_000, `"n%d"`)+`}`),
		} {
			code, answer := send(t, mallory, http.MethodPost, pods, body)
			if code >= http.StatusInternalServerError || len(answer) > 8<<20 {
				t.Errorf("%s: %d with %d bytes, %.300s", what, code, len(answer), answer)
			}
		}
	})
	c.recordMemory(t, before)
}

// TestReviewAmplification sends access reviews, which all users may create, with
// many thousands of errors.
func TestReviewAmplification(t *testing.T) {
	c := controlPlane(t)
	mallory := first(c.tenant(t, ""))
	before := c.memory(t)
	c.checkLatencyDuring(t, func(context.Context) {
		for _, selector := range []string{"fieldSelector", "labelSelector"} {
			body := `{"spec":{"resourceAttributes":{"verb":"list","resource":"pods","` + selector + `":{"requirements":` + jsonList(60_000, `{"key":"k%d","operator":"In"}`) + `}}}}`
			if code, answer := send(t, mallory, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body); code != http.StatusUnprocessableEntity || len(answer) > 4<<20 {
				t.Errorf("%s: %d with %d bytes, %.300s", selector, code, len(answer), answer)
			}
		}
	})
	c.recordMemory(t, before)
}

// TestManagedFieldsAmplification sends objects with many managed fields, in the
// order that takes longest to sort.
func TestManagedFieldsAmplification(t *testing.T) {
	c := controlPlane(t)
	mallory, namespace := c.tenant(t, "edit")
	maps, pods := "/api/v1/namespaces/"+namespace+"/configmaps", "/api/v1/namespaces/"+namespace+"/pods"
	allow(t, c, mallory, namespace)
	keys := strings.Trim(jsonList(100_000, `"k%d":""`), "[]")
	var owned strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&owned, `"f:%06d":{},`, 999_999-i)
	}
	before := c.memory(t)
	c.checkLatencyDuring(t, func(context.Context) {
		checkAnswer(t, "keys", mallory, http.MethodPost, maps+"?dryRun=All", `{"metadata":{"name":"wide"},"data":{`+keys+`}}`, "application/json", http.StatusCreated)
		checkAnswer(t, "applied keys", mallory, http.MethodPatch, maps+"/wide?fieldManager=me&dryRun=All", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"wide"},"data":{`+keys+`}}`, applyPatch, http.StatusCreated)
		checkAnswer(t, "claimed keys", mallory, http.MethodPost, maps+"?dryRun=All",
			`{"metadata":{"name":"wide","managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{`+strings.TrimSuffix(owned.String(), ",")+`}}}]}}`, "application/json", http.StatusCreated)
		var finalizers []string
		for i := range 60_000 {
			finalizers = append(finalizers, fmt.Sprintf(`"example.com/%06d"`, 60_000-i))
		}
		checkAnswer(t, "finalizers in reverse order", mallory, http.MethodPost, pods+"?dryRun=All",
			`{"metadata":{"name":"wide","finalizers":[`+strings.Join(finalizers, ",")+`]},"spec":{"containers":[{"name":"c","image":"i"}]}}`, "application/json", http.StatusRequestEntityTooLarge)
	})
	c.recordMemory(t, before)
}

// allow waits until the tenant's permission to write takes effect.
func allow(t *testing.T, c *cluster, config *rest.Config, namespace string) {
	t.Helper()
	eventually(t, "the tenant's permissions", func() error {
		if code, body := send(t, config, http.MethodPost, "/api/v1/namespaces/"+namespace+"/configmaps?dryRun=All", `{"metadata":{"name":"it"}}`); code != http.StatusCreated {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	c.checkNotRestarted(t)
}

// TestProxiedRequestsOfATenant requests endless logs, hundreds on each HTTP/2
// connection. Each needs a connection to a node.
func TestProxiedRequestsOfATenant(t *testing.T) {
	c := controlPlane(t)
	const node = "attack-onward"
	mallory, namespace := c.tenant(t, "view")
	served := fakeKubelet(t, c, node)
	podOn(t, c.client, namespace, "p", node)
	logs := "/api/v1/namespaces/" + namespace + "/pods/p/log?follow=true"
	eventually(t, "the tenant's permissions", func() error {
		if code, body := send(t, mallory, http.MethodGet, "/api/v1/namespaces/"+namespace+"/pods", ""); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	client, err := rest.HTTPClientFor(mallory)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var refused, begun atomic.Int64
	var asked sync.WaitGroup
	for range 1200 {
		answered := make(chan struct{})
		asked.Go(func() {
			defer close(answered)
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.admin.Host+logs, nil)
			if err != nil {
				t.Error(err)
				return
			}
			response, err := client.Do(request)
			if err != nil {
				t.Error(err)
				return
			}
			if response.StatusCode == http.StatusTooManyRequests && response.Header.Get("Retry-After") != "" {
				refused.Add(1)
			} else if response.StatusCode == http.StatusOK {
				begun.Add(1)
			}
			asked.Go(func() {
				_, _ = io.Copy(io.Discard, response.Body) // until cancel is called
				_ = response.Body.Close()
			})
		})
		<-answered
	}
	if begun.Load() < 900 || refused.Load() < 100 || served.Load() > 1000 {
		t.Errorf("of 1,200 endless logs %d were started and %d refused, and the node serves %d", begun.Load(), refused.Load(), served.Load())
	}
	if code, body := send(t, c.admin, http.MethodGet, "/api/v1/nodes/"+node+"/proxy/healthz", ""); code != http.StatusOK {
		t.Errorf("another user during the attack: %d %s", code, body)
	}
	cancel()
	asked.Wait()
	c.checkNotRestarted(t)
}

// serveAsKubelet starts a server on loopback with the certificate of a node's kubelet. It
// runs until the test ends.
func serveAsKubelet(t *testing.T, c *cluster, node string, handler http.HandlerFunc) (port int64) {
	t.Helper()
	serving, err := c.keys.Issue(pki.Kubelet(node, nil, []net.IP{net.IPv4(127, 0, 0, 1)}))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{GetCertificate: serving.GetCertificate, ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	return int64(server.Listener.Addr().(*net.TCPAddr).Port)
}

// fakeKubelet registers a node whose kubelet sends endless logs. served is the
// number of logs in progress.
func fakeKubelet(t *testing.T, c *cluster, name string) (served *atomic.Int64) {
	t.Helper()
	served = new(atomic.Int64)
	port := serveAsKubelet(t, c, name, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/containerLogs/") {
			return
		}
		served.Add(1)
		defer served.Add(-1)
		_, err := io.WriteString(w, "begun\n")
		if err == nil {
			err = http.NewResponseController(w).Flush()
		}
		if err == nil {
			<-r.Context().Done()
		}
	})
	if _, err := c.client.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	remove(t, c, "/api/v1/nodes/"+name)
	status := fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, port)
	if code, body := send(t, c.admin, http.MethodPatch, "/api/v1/nodes/"+name+"/status", status, "Content-Type", mergePatch); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	return served
}

// TestTokenAmplification requests tokens whose audiences take a megabyte, which the
// server must not keep in its token cache.
func TestTokenAmplification(t *testing.T) {
	c := controlPlane(t)
	mallory, namespace := c.tenant(t, "edit")
	allow(t, c, mallory, namespace)
	before := c.memory(t)
	c.checkLatencyDuring(t, func(context.Context) {
		for i := range 150 {
			body := `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":["https://kubernetes.default.svc.cluster.local","` +
				strconv.Itoa(i) + strings.Repeat("x", 700_000) + `"]}}`
			code, answer := send(t, mallory, http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts/tenant/token", body)
			var made authenticationv1.TokenRequest
			if err := json.Unmarshal([]byte(answer), &made); code != http.StatusCreated || err != nil {
				t.Errorf("%d %.300s, %v", code, answer, err)
				return
			}
			if code, answer := send(t, c.bearer(made.Status.Token), http.MethodGet, "/api/v1/namespaces/"+namespace+"/configmaps", ""); code != http.StatusOK {
				t.Errorf("%d %.300s", code, answer)
			}
		}
	})
	c.recordMemory(t, before)
}
