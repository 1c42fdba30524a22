package aggregator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/aggregator"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/apiserver/openapi"
	"github.com/coracle-io/coracle/internal/leaktest"
)

const (
	name     = "v1.orchard.example.com"
	path     = "/apis/orchard.example.com/v1"
	patience = 3 * time.Minute
)

// extension is the server of an APIService.
type extension struct {
	*testing.T
	*httptest.Server
	mux       *http.ServeMux
	front     *apiservertest.Server
	services  aggregatorclient.APIServiceInterface
	documents *openapi.Handler
}

// start runs an API server with an aggregator, and a server with discovery and
// the handlers of a test.
func start(t *testing.T) *extension {
	t.Helper()
	x := &extension{T: t, mux: http.NewServeMux()}
	x.Server = httptest.NewUnstartedServer(x.mux)
	x.EnableHTTP2 = true
	x.StartTLS()
	t.Cleanup(x.Server.Close)
	x.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, metav1.APIResourceList{GroupVersion: "orchard.example.com/v1", APIResources: []metav1.APIResource{
			{Name: "apples", SingularName: "apple", Namespaced: true, Kind: "Apple", Verbs: metav1.Verbs{"get", "list", "watch"}},
		}})
	})
	x.mux.HandleFunc("GET /openapi/v2", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"swagger":"2.0","info":{"title":"orchard","version":"1"},"paths":{"/apis/orchard.example.com/v1/apples":
			{"get":{"operationId":"listApples","responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/com.example.Apple"}}}}}},
			"definitions":{"com.example.Apple":{"type":"object","properties":{"metadata":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}}},
			"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta":{"type":"object","description":"of another age"}}}`)
	})

	var err error
	if x.documents, err = openapi.New(); err != nil {
		t.Fatal(err)
	}
	var a *aggregator.Server
	x.front = apiservertest.Start(t, func(c *apiserver.Config) {
		a = aggregator.New(aggregator.Config{
			Cache: c.Registry.Cache, BuiltIn: c.Resources, Documents: x.documents, Clock: clock.RealClock{},
			Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, x.Listener.Addr().String())
			},
		})
		c.Handlers.Aggregated = a
		c.Handlers.Paths = map[string]http.Handler{"/openapi/v2": x.documents, "/openapi/v3": x.documents, "/openapi/v3/": x.documents}
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx, x.front.Server, func() {}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	x.services = aggregatorclient.NewForConfigOrDie(x.front.Config).APIServices()
	return x
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (x *extension) must(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

// register creates the APIService, its Service and its EndpointSlice.
func (x *extension) register() {
	x.Helper()
	client := kubernetes.NewForConfigOrDie(x.front.Config)
	_, err := client.CoreV1().Namespaces().Create(x.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "orchard"}}, metav1.CreateOptions{})
	x.must(err)
	_, err = x.services.Create(x.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "orchard.example.com", Version: "v1", GroupPriorityMinimum: 19000, VersionPriority: 1, InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{Namespace: "orchard", Name: "api"},
		},
	}, metav1.CreateOptions{})
	x.must(err)
	x.await("ServiceNotFound")
	_, err = client.CoreV1().Services("orchard").Create(x.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "api"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
	}, metav1.CreateOptions{})
	x.must(err)
	x.await("EndpointsNotFound")
	_, err = client.DiscoveryV1().EndpointSlices("orchard").Create(x.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "api", Labels: map[string]string{discoveryv1.LabelServiceName: "api"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To(int32(8443))}},
	}, metav1.CreateOptions{})
	x.must(err)
	x.await("Passed")
}

// eventually polls until the condition holds.
func (x *extension) eventually(what string, ask func() bool) {
	x.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ask() {
		select {
		case <-deadline:
			x.Fatalf("%s: not within %s", what, patience)
		case <-tick.C:
		}
	}
}

// await waits for a reason of the condition Available.
func (x *extension) await(reason string) {
	x.Helper()
	x.eventually(reason, func() bool {
		s, err := x.services.Get(x.Context(), name, metav1.GetOptions{})
		return err == nil && len(s.Status.Conditions) == 1 && s.Status.Conditions[0].Reason == reason
	})
	if reason == "Passed" { // what is routed follows the stored condition
		x.eventually("routed", func() bool { code, _ := x.get(path); return code == http.StatusOK })
	}
}

func (x *extension) request(ctx context.Context, path string) *http.Response {
	x.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, x.front.URL+path, http.NoBody)
	x.must(err)
	r.Header.Set("X-Remote-User", "liar")
	response, err := http.DefaultTransport.RoundTrip(r)
	x.must(err)
	return response
}

func (x *extension) get(path string) (code int, body string) {
	x.Helper()
	response := x.request(x.Context(), path)
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	x.must(err)
	return response.StatusCode, string(raw)
}

// A request reaches the server with its user, and its response comes back
// unchanged.
func TestProxy(t *testing.T) {
	x := start(t)
	x.mux.HandleFunc("GET "+path+"/namespaces/n/apples", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Audit-Id", r.Header.Get("Audit-Id"))
		w.WriteHeader(http.StatusTeapot)
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Header["X-Remote-User"], r.Header["X-Remote-Group"], r.URL.RawQuery)
	})
	x.mux.HandleFunc("GET "+path+"/elsewhere", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://192.0.2.1/", http.StatusFound)
	})
	x.mux.HandleFunc("GET "+path+"/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	x.register()

	response := x.request(t.Context(), path+"/namespaces/n/apples?limit=5")
	body, err := io.ReadAll(response.Body)
	x.must(err)
	x.must(response.Body.Close())
	if want := "[admin] [system:authenticated system:masters] limit=5"; response.StatusCode != http.StatusTeapot || string(body) != want {
		t.Errorf("%d %s, want %s", response.StatusCode, body, want)
	}
	if ids := response.Header["Audit-Id"]; len(ids) != 1 || ids[0] == "" {
		t.Errorf("Audit-Id: %v", ids)
	}
	if code, body := x.get(path + "/elsewhere"); code != http.StatusBadGateway || !strings.Contains(body, "the backend attempted to redirect this request") {
		t.Errorf("redirected: %d %s", code, body)
	}
	if code, body := x.get(path + "/slow?timeout=50ms"); code != http.StatusGatewayTimeout || !strings.Contains(body, `"reason":"Timeout"`) {
		t.Errorf("too slow: %d %s", code, body)
	}
}

// A watch lasts until either side ends it, and leaves nothing behind.
func TestStreamsEnd(t *testing.T) {
	defer leaktest.Check(t, goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
	t.Run("streams", func(t *testing.T) {
		x := start(t)
		ended := make(chan struct{}, 1)
		x.mux.HandleFunc("GET "+path+"/apples", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "first\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			ended <- struct{}{}
		})
		x.register()

		ctx, cancel := context.WithCancel(t.Context())
		response := x.request(ctx, path+"/apples?watch=true")
		if n, err := response.Body.Read(make([]byte, 6)); n != 6 || err != nil {
			t.Fatal(n, err)
		}
		cancel()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatal("the server did not notice that the client disconnected")
		}
		_ = response.Body.Close()

		response = x.request(t.Context(), path+"/apples?watch=true")
		if n, err := response.Body.Read(make([]byte, 6)); n != 6 || err != nil {
			t.Fatal(n, err)
		}
		x.CloseClientConnections()
		if _, err := io.ReadAll(response.Body); err == nil {
			t.Error("the client did not notice that the server disconnected")
		}
		_ = response.Body.Close()
	})
}

// A connection can be upgraded through the proxy.
func TestUpgrade(t *testing.T) {
	x := start(t)
	x.mux.HandleFunc("GET "+path+"/apples", func(w http.ResponseWriter, r *http.Request) {
		conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		for {
			kind, message, err := conn.ReadMessage()
			if err != nil {
				return
			}
			_ = conn.WriteMessage(kind, append([]byte(r.Header.Get("X-Remote-User")+" says "), message...))
		}
	})
	x.register()
	conn, response, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(x.front.URL, "http")+path+"/apples?watch=1", nil)
	x.must(err)
	defer func() { _ = response.Body.Close() }()
	x.must(conn.WriteMessage(websocket.TextMessage, []byte("hello")))
	_, message, err := conn.ReadMessage()
	if err != nil || string(message) != "admin says hello" {
		t.Errorf("%s %v", message, err)
	}
	x.must(conn.Close())
}

// Discovery and OpenAPI have the server's documents while it is registered, and
// discovery is stale while it does not respond.
func TestDocuments(t *testing.T) {
	x := start(t)
	x.register()
	aggregated := func() string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, x.front.URL+"/apis", http.NoBody)
		x.must(err)
		r.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		response, err := http.DefaultClient.Do(r)
		x.must(err)
		defer func() { _ = response.Body.Close() }()
		raw, err := io.ReadAll(response.Body)
		x.must(err)
		return string(raw)
	}
	x.eventually("discovery", func() bool { return strings.Contains(aggregated(), `"resource":"apples"`) })
	var groups metav1.APIGroupList
	_, body := x.get("/apis")
	x.must(json.Unmarshal([]byte(body), &groups))
	if first, second := groups.Groups[0].Name, groups.Groups[1].Name; first != "apiregistration.k8s.io" || second != "orchard.example.com" {
		t.Errorf("the highest priority comes after %s: %s", first, second)
	}
	if code, _ := x.get("/apis/orchard.example.com"); code != http.StatusOK {
		t.Errorf("the group: %d", code)
	}
	x.eventually("OpenAPI v2", func() bool {
		_, body := x.get("/openapi/v2")
		return strings.Contains(body, `"com.example.Apple"`) &&
			strings.Contains(body, `"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta_v2"`)
	})
	x.eventually("OpenAPI v3, converted", func() bool {
		code, body := x.get("/openapi/v3/apis/orchard.example.com/v1")
		return code == http.StatusOK && strings.Contains(body, `"schemas":{"com.example.Apple"`)
	})

	x.Server.Close()
	if code, _ := x.get(path + "/apples"); code != http.StatusServiceUnavailable {
		t.Errorf("a dead server: %d", code)
	}
	x.await("FailedDiscoveryCheck")
	x.eventually("refused", func() bool {
		code, body := x.get(path + "/apples")
		return code == http.StatusServiceUnavailable && body == "service unavailable\n"
	})
	x.eventually("stale", func() bool { return strings.Contains(aggregated(), `{"version":"v1","freshness":"Stale"}`) })

	x.must(x.services.Delete(t.Context(), name, metav1.DeleteOptions{}))
	x.eventually("forgotten", func() bool {
		code, _ := x.get("/apis/orchard.example.com")
		_, body := x.get("/openapi/v2")
		return code == http.StatusNotFound && !strings.Contains(body, "com.example.Apple")
	})
	if code, _ := x.get(path); code != http.StatusNotFound {
		t.Errorf("after its removal: %d", code)
	}
}
