package measured

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/metrics"
)

// A resource whose definition is deleted leaves nothing behind.
func TestForget(t *testing.T) {
	s := New(nil, metrics.NewAPIServer(nil).Store, "/registry/", map[string]schema.GroupResource{})
	for _, operation := range []string{"list", "create"} {
		s.observe(operation, "/registry/example.com/widgets/", time.Time{}, nil)
		s.observe(operation, "/registry/example.com/gadgets/", time.Time{}, nil)
	}
	s.Forget(schema.GroupResource{Group: "example.com", Resource: "widgets"}, func() {})
	for key := range s.operations.Range {
		if path := key.(measurement).path; path != "example.com/gadgets" {
			t.Errorf("operations of %s are kept", path)
		}
	}
}

// An operation that ends while its resource is forgotten does not hide later ones.
func TestForgetWhileMeasuring(t *testing.T) {
	m := metrics.NewAPIServer(nil)
	s := New(nil, m.Store, "/registry/", map[string]schema.GroupResource{})
	list := func() { s.observe("list", "/registry/example.com/widgets/", time.Time{}, nil) }
	shown := func() bool {
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return strings.Contains(w.Body.String(), `resource="widgets"`)
	}
	for range 200 {
		begun, stop := make(chan struct{}), make(chan struct{})
		var measuring sync.WaitGroup
		measuring.Go(func() {
			list()
			close(begun)
			for {
				select {
				case <-stop:
					return
				default:
					list()
				}
			}
		})
		<-begun
		widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
		s.Forget(widgets, func() { m.Forget(widgets) })
		close(stop)
		measuring.Wait()
		if list(); !shown() {
			t.Fatal("an operation is not shown")
		}
	}
}

func TestResourceOfKey(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	s := New(nil, nil, "/registry/", map[string]schema.GroupResource{"pods": pods})
	for key, want := range map[string]schema.GroupResource{
		"/registry/pods/default/web":                  pods,
		"/registry/pods/":                             pods,
		"/registry/example.com/widgets/default/first": {Group: "example.com", Resource: "widgets"},
		"/registry/":                                  {},
		"compact_rev_key":                             {},
	} {
		if got := s.resource(s.path(key)); got != want {
			t.Errorf("%s belongs to %v, want %v", key, got, want)
		}
	}
}
