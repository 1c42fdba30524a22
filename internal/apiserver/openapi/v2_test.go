package openapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// rendered returns a part given as JSON.
func rendered(t *testing.T, text string) func() (*spec.Swagger, error) {
	t.Helper()
	return func() (*spec.Swagger, error) {
		s := &spec.Swagger{}
		return s, s.UnmarshalJSON([]byte(text))
	}
}

func ask(t *testing.T, h http.Handler, path, accept string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	r.Header.Set("Accept", accept)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

type plainDocument struct {
	Swagger     string                     `json:"swagger"`
	Info        json.RawMessage            `json:"info"`
	Paths       map[string]json.RawMessage `json:"paths"`
	Definitions map[string]json.RawMessage `json:"definitions"`
}

func plain(t *testing.T, h http.Handler) plainDocument {
	t.Helper()
	var d plainDocument
	if err := json.Unmarshal(ask(t, h, "/openapi/v2", typeJSON).Body.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

const (
	objectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
	apples     = `{"swagger":"2.0","info":{"title":"apples","version":"1"},
		"paths":{"/apis/a/v1/apples":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/a.Apple"}}}}},
			"/api/":{"get":{"description":"not theirs","responses":{"200":{"description":"OK"}}}}},
		"definitions":{"a.Apple":{"type":"object","properties":{"metadata":{"$ref":"#/definitions/` + objectMeta + `"}}},
			"` + objectMeta + `":{"type":"object","description":"older"}}}`
	pears = `{"swagger":"2.0","info":{"title":"pears","version":"1"},
		"paths":{"/apis/b/v1/pears":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/a.Apple"}}}}}},
		"definitions":{"a.Apple":{"type":"string","description":"what others call a pear"}}}`
)

// Parts are added to both media types, give way to existing members, and can
// be removed.
func TestPartsOfV2(t *testing.T) {
	h, err := New()
	if err != nil {
		t.Fatal(err)
	}
	own := plain(t, h)
	h.SetV2("apples", rendered(t, apples))
	h.SetV2("pears", rendered(t, pears))
	h.SetV2("broken", func() (*spec.Swagger, error) { return nil, errors.New("nothing to say") })
	d := plain(t, h)
	if d.Swagger != own.Swagger || string(d.Info) != string(own.Info) {
		t.Errorf("%s %s", d.Swagger, d.Info)
	}
	if len(d.Paths) != len(own.Paths)+2 || len(d.Definitions) != len(own.Definitions)+3 {
		t.Errorf("%d paths and %d definitions more", len(d.Paths)-len(own.Paths), len(d.Definitions)-len(own.Definitions))
	}
	if string(d.Paths["/api/"]) != string(own.Paths["/api/"]) || string(d.Definitions[objectMeta]) != string(own.Definitions[objectMeta]) {
		t.Error("a part has changed what was there")
	}
	for name, want := range map[string]string{
		"a.Apple": `"#/definitions/` + objectMeta + `_v2"`, objectMeta + "_v2": "older", "a.Apple_v2": "what others call a pear",
	} {
		if !strings.Contains(string(d.Definitions[name]), want) {
			t.Errorf("%s is %s, without %s", name, d.Definitions[name], want)
		}
	}
	if got := string(d.Paths["/apis/b/v1/pears"]); !strings.Contains(got, `"#/definitions/a.Apple_v2"`) {
		t.Errorf("pears refer to %s", got)
	}

	w := ask(t, h, "/openapi/v2", typeV2Old)
	parsed := &openapi_v2.Document{}
	if err := proto.Unmarshal(w.Body.Bytes(), parsed); err != nil {
		t.Fatal(err)
	}
	var paths, definitions []string
	for _, p := range parsed.GetPaths().GetPath() {
		paths = append(paths, p.GetName())
	}
	for _, p := range parsed.GetDefinitions().GetAdditionalProperties() {
		definitions = append(definitions, p.GetName())
	}
	if len(paths) != len(d.Paths) || len(definitions) != len(d.Definitions) || !slices.Contains(definitions, "a.Apple_v2") {
		t.Errorf("as protobuf: %d paths, %d definitions", len(paths), len(definitions))
	}
	if parsed.GetInfo().GetTitle() != "Kubernetes" || parsed.GetSwagger() != "2.0" {
		t.Errorf("as protobuf: %s %s", parsed.GetInfo(), parsed.GetSwagger())
	}

	before := ask(t, h, "/openapi/v2", typeJSON).Header().Get("Etag")
	for _, name := range []string{"apples", "pears", "broken"} {
		h.SetV2(name, nil)
	}
	after := ask(t, h, "/openapi/v2", typeJSON)
	if before == after.Header().Get("Etag") || len(plain(t, h).Paths) != len(own.Paths) {
		t.Error("the parts are still there")
	}
	if w := ask(t, h, "/openapi/v2", typeJSON, "If-None-Match", after.Header().Get("Etag")); w.Code != http.StatusNotModified {
		t.Errorf("unchanged: %d", w.Code)
	}
}

// The index of version 3 needs no documents, and each document can be cached
// forever under its hash.
func TestV3IsMadeWhenAskedFor(t *testing.T) {
	h, err := New()
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	set := func(tag string) {
		h.SetV3("apis/a/v1", tag, func() ([]byte, error) {
			made++
			return []byte(`{"openapi":"3.0.0","info":{"title":"a","version":"1"},"paths":{}}`), nil
		})
	}
	address := func() string {
		var index struct {
			Paths map[string]struct{ ServerRelativeURL string }
		}
		if err := json.Unmarshal(ask(t, h, "/openapi/v3", typeJSON).Body.Bytes(), &index); err != nil {
			t.Fatal(err)
		}
		return index.Paths["apis/a/v1"].ServerRelativeURL
	}
	set("1")
	first := address()
	if made != 0 {
		t.Error("the index made a document")
	}
	w := ask(t, h, first, typeJSON)
	if w.Code != http.StatusOK || made != 1 || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
		t.Errorf("%d, made %d times, %v", w.Code, made, w.Header())
	}
	if w := ask(t, h, first, typeJSON, "If-None-Match", w.Header().Get("Etag")); w.Code != http.StatusNotModified || made != 1 {
		t.Errorf("unchanged: %d", w.Code)
	}
	set("2")
	if w := ask(t, h, first, typeJSON); w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != address() {
		t.Errorf("changed: %d %s", w.Code, w.Header().Get("Location"))
	}

	h.SetV3Remote("far", map[string]string{"apis/b/v1": "/openapi/v3/apis/b/v1?hash=theirs"}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}))
	if w := ask(t, h, "/openapi/v3/apis/b/v1?hash=theirs", typeJSON); w.Code != http.StatusTeapot {
		t.Errorf("of another server: %d", w.Code)
	}
}
