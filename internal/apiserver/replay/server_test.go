package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
	"github.com/coracle-io/coracle/internal/resource/runtimeconfig"
	"github.com/coracle-io/coracle/internal/store/mem"
)

const namespace = "diffapi"

// server is a whole API server without controllers.
type server struct {
	t       testing.TB
	handler http.Handler
	// resources are the served resources, without custom ones.
	resources []*resource.Resource
	// collections are the paths of the collections, by version and kind, such
	// as "apps/v1 Deployment".
	collections map[string]string
}

// TestMain sets the process-wide limits that an API server's process has.
func TestMain(m *testing.M) {
	if err := apiserver.SetProcess(nil); err != nil {
		panic(err)
	}
	m.Run()
}

// start runs a server with a --runtime-config. HorizontalPodAutoscalers had no
// generation in the recorded version.
func start(t testing.TB, runtimeConfig ...string) *server {
	t.Helper()
	flags := apiserver.NewOptions()
	flags.Serving.BindAddress = net.IPv4(127, 0, 0, 1)
	flags.Serving.AdvertiseAddress = net.IPv4(10, 1, 2, 3)
	flags.Services.ClusterIPRange = "10.96.0.0/16"
	flags.APIs.RuntimeConfig = runtimeConfig
	flags.APIs.FeatureGates = []string{"HPAGeneration=false"}
	keys, err := pki.Open(t.TempDir(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	api, err := apiserver.New(ctx, flags, mem.New(), keys)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- api.Run(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("API server: %v", err)
		}
	})
	select {
	case <-api.Ready():
	case err := <-done:
		done <- err
		t.Fatal("the API server ended before it was ready")
	}
	s := &server{t: t, handler: api.Handler(), collections: map[string]string{}}
	if s.resources, err = runtimeconfig.Serve(all.All(), runtimeConfig, nil); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.resources {
		for _, v := range r.Versions {
			path := "/apis/" + v.Group + "/" + v.Version + "/"
			if v.Group == "" {
				path = "/api/" + v.Version + "/"
			}
			if r.Namespaced {
				path += "namespaces/" + namespace + "/"
			}
			s.collections[v.GroupVersion.String()+" "+r.Kind] = path + r.Plural
		}
	}
	s.must(http.MethodPost, "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": namespace}})
	s.must(http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts", map[string]any{"metadata": map[string]any{"name": "default"}})
	return s
}

// do sends a request as cluster admin.
func (s *server) do(method, uri, contentType string, body []byte) resourcetest.Outcome {
	s.t.Helper()
	r := httptest.NewRequest(method, uri, bytes.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	admin := &user.DefaultInfo{Name: "kubernetes-admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	r = r.WithContext(apirequest.WithUser(context.Background(), admin))
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	o := resourcetest.Outcome{Code: w.Code}
	if w.Code >= http.StatusBadRequest {
		if err := json.Unmarshal(w.Body.Bytes(), &o.Status); err != nil {
			s.t.Errorf("%s %s: %d %s: %v", method, uri, w.Code, w.Body, err)
		}
		return o
	}
	var object map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &object); err != nil {
		s.t.Errorf("%s %s: %d %s: %v", method, uri, w.Code, w.Body, err)
	}
	o.Object = object
	return o
}

// must sends a request that must succeed, and returns the object in the
// response.
func (s *server) must(method, uri string, object any) map[string]any {
	s.t.Helper()
	o := s.do(method, uri, "application/json", encode(s.t, object))
	if o.Code >= http.StatusBadRequest {
		s.t.Fatalf("%s %s: %d %s", method, uri, o.Code, o.Status.Message)
	}
	return o.Object.(map[string]any)
}

// remove deletes an object at once, in spite of its finalizers.
func (s *server) remove(uri string) {
	s.t.Helper()
	s.must(http.MethodDelete, uri, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	o := s.do(http.MethodPatch, uri, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if o.Code != http.StatusOK && o.Code != http.StatusNotFound {
		s.t.Errorf("removing the finalizers of %s: %d %s", uri, o.Code, o.Status.Message)
	}
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	encoded, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}
