package openapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/resource/runtimeconfig"
)

// TurnOn adds the documents of each optional version.
func TestTurnOn(t *testing.T) {
	features, err := feature.Parse([]string{"AllAlpha=true", "AllBeta=true"})
	if err != nil {
		t.Fatal(err)
	}
	usual := all.All()
	resources, err := runtimeconfig.Serve(usual, []string{"api/all=true"}, features)
	if err != nil {
		t.Fatal(err)
	}
	on, _ := runtimeconfig.Changed(usual, resources)
	h, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for _, gv := range on {
		if schemas, err := h.Schemas(gv); err != nil || schemas != nil {
			t.Errorf("%v is documented before it is on: %v", gv, err)
		}
	}
	if err := h.TurnOn(on); err != nil {
		t.Fatal(err)
	}
	for _, r := range resources {
		for i := range r.Versions {
			v := &r.Versions[i]
			schemas, err := h.Schemas(v.GroupVersion)
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for name := range schemas {
				found = found || strings.HasSuffix(name, "."+v.Version+"."+r.Kind)
			}
			if !found && !r.Virtual() {
				t.Errorf("%v has no schema", v.WithKind(r.Kind))
			}
		}
	}
	paths := v2Paths(t, h)
	for _, path := range []string{"/apis/scheduling.k8s.io/v1beta1/namespaces/{namespace}/workloads", "/apis/lifecycle.k8s.io/", "/apis/apps/v1/deployments"} {
		if !paths[path] {
			t.Errorf("version 2 has no path %s", path)
		}
	}
}

// The version 2 document has the enabled versions only.
func TestTurnOnSome(t *testing.T) {
	h, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.TurnOn([]schema.GroupVersion{{Group: "resource.k8s.io", Version: "v1beta2"}}); err != nil {
		t.Fatal(err)
	}
	paths := v2Paths(t, h)
	if !paths["/apis/resource.k8s.io/v1beta2/deviceclasses"] || paths["/apis/resource.k8s.io/v1beta1/deviceclasses"] {
		t.Error("version 2 does not hold v1beta2 alone")
	}
}

func v2Paths(t *testing.T, h *Handler) map[string]bool {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/openapi/v2", nil)
	r.Header.Set("Accept", typeJSON)
	h.ServeHTTP(w, r)
	var document struct {
		Paths map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
		t.Fatalf("%d: %v", w.Code, err)
	}
	paths := map[string]bool{}
	for path := range document.Paths {
		paths[path] = true
	}
	return paths
}
