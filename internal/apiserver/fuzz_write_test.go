package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/apiserver/apply"
	"github.com/coracle-io/coracle/internal/apiserver/openapi"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
)

// fuzzed are objects of kinds that differ in how their lists are merged.
var fuzzed = []struct{ collection, name, body string }{
	{"/api/v1/namespaces/default/configmaps", "it", `{"metadata":{"name":"it","labels":{"a":"b"},"finalizers":["example.com/f"]},"data":{"a":"1"}}`},
	{"/api/v1/namespaces/default/pods", "it", `{"metadata":{"name":"it"},"spec":{"containers":[{"name":"main","image":"a","ports":[{"containerPort":80,"protocol":"TCP"}],"env":[{"name":"A","value":"1"}]},{"name":"side","image":"b"}],"volumes":[{"name":"v","emptyDir":{}}],"tolerations":[{"operator":"Exists"}]}}`},
	{"/apis/apps/v1/namespaces/default/deployments", "it", `{"metadata":{"name":"it"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"main","image":"a"}]}}}}`},
	{"/api/v1/namespaces/default/services", "it", `{"metadata":{"name":"it"},"spec":{"clusterIP":"None","ports":[{"name":"a","port":80},{"name":"b","port":81,"protocol":"UDP"}]}}`},
	{"/apis/rbac.authorization.k8s.io/v1/clusterroles", "it", `{"metadata":{"name":"it"},"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}`},
	{"/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", "it", `{"metadata":{"name":"it"},"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"it"},"maxReplicas":3}}`},
}

func startFuzzed(f *testing.F) http.Handler {
	documents, err := openapi.New()
	if err != nil {
		f.Fatal(err)
	}
	h := apiservertest.Start(f, func(c *apiserver.Config) { c.Registry.Managers = apply.New(documents.Schemas) }).Handler()
	for _, o := range fuzzed {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, o.collection+"?fieldManager=first", strings.NewReader(o.body)))
		if w.Code != http.StatusCreated {
			f.Fatalf("%s: %d %s", o.collection, w.Code, w.Body)
		}
	}
	return h
}

// blameless sends a request and fails if the answer puts the blame on the server.
func blameless(t *testing.T, h http.Handler, method, target, contentType string, body []byte) {
	t.Helper()
	timeout := fuzzTimeout
	if strings.Contains(target, "watch=true") {
		timeout = 5 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(method, "/", strings.NewReader(string(body))).WithContext(ctx)
	r.URL = u
	r.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if serversOwn(w.Body.String()) {
		return
	}
	if w.Code >= http.StatusInternalServerError && w.Code != http.StatusGatewayTimeout && w.Code != http.StatusServiceUnavailable {
		t.Errorf("%s %s %q: %d %s", method, target, body, w.Code, w.Body)
	}
}

// serversOwn says of an answer that upstream, too, takes what the client did for
// an error of its own: a configuration that does not fit its schema, and a
// resourceVersion for a new object.
func serversOwn(answer string) bool {
	return strings.Contains(answer, `"message":"failed to create typed patch object`) ||
		strings.Contains(answer, `"message":"resourceVersion should not be set on objects to be created`)
}

// FuzzPatch applies JSON patches, merge patches and strategic merge patches.
func FuzzPatch(f *testing.F) {
	h := startFuzzed(f)
	kinds := []string{"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"}
	f.Fuzz(func(t *testing.T, object, kind uint8, body []byte) {
		o := fuzzed[int(object)%len(fuzzed)]
		path := o.collection + "/" + o.name + "?dryRun=All"
		blameless(t, h, http.MethodPatch, path+"&fieldValidation=Strict", kinds[int(kind)%len(kinds)], body)
		blameless(t, h, http.MethodPatch, path+"&fieldValidation=Ignore", kinds[int(kind)%len(kinds)], body)
	})
}

// FuzzApply applies configurations over what another manager has written.
func FuzzApply(f *testing.F) {
	h := startFuzzed(f)
	f.Fuzz(func(t *testing.T, object uint8, force bool, body []byte) {
		o := fuzzed[int(object)%len(fuzzed)]
		query := fmt.Sprintf("?dryRun=All&fieldManager=second&force=%v", force)
		for _, name := range []string{o.name, "new"} {
			blameless(t, h, http.MethodPatch, o.collection+"/"+name+query, "application/apply-patch+yaml", body)
		}
	})
}

// FuzzSelectors lists and watches with any selectors.
func FuzzSelectors(f *testing.F) {
	h := startFuzzed(f)
	f.Fuzz(func(t *testing.T, object uint8, labels, fields string) {
		o := fuzzed[int(object)%len(fuzzed)]
		query := url.Values{"labelSelector": {labels}, "fieldSelector": {fields}, "limit": {"1"}}
		blameless(t, h, http.MethodGet, o.collection+"?"+query.Encode(), "", nil)
		query.Set("dryRun", "All")
		blameless(t, h, http.MethodDelete, o.collection+"?"+query.Encode(), "", nil)
		query.Del("limit")
		query.Set("watch", "true")
		query.Set("timeoutSeconds", "1")
		query.Set("resourceVersion", "1")
		blameless(t, h, http.MethodGet, o.collection+"?"+query.Encode(), "", nil)
	})
}

// FuzzCreate creates objects of every kind in every version that is served:
// decoding, defaults, conversion, validation and the answer's encoding.
func FuzzCreate(f *testing.F) {
	h := startFuzzed(f)
	var collections []string
	for _, r := range all.All() {
		for i := range r.Versions {
			collections = append(collections, collectionOf(r, &r.Versions[i]))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint16, body []byte) {
		path := collections[int(kind)%len(collections)] + "?dryRun=All&fieldValidation="
		blameless(t, h, http.MethodPost, path+"Ignore", "application/json", body)
		blameless(t, h, http.MethodPost, path+"Strict", "application/yaml", body)
	})
}

func collectionOf(r *resource.Resource, v *resource.Version) string {
	path := "/apis/" + v.GroupVersion.String()
	if v.Group == "" {
		path = "/api/" + v.Version
	}
	if r.Namespaced {
		path += "/namespaces/default"
	}
	return path + "/" + r.Plural
}
