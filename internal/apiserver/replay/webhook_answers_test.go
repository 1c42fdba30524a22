package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// sails is a custom resource definition with pruning, defaults and validation.
const sails = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "sails.example.com"}, "spec": {
	"group": "example.com", "scope": "Namespaced", "names": {"plural": "sails", "singular": "sail", "kind": "Sail", "listKind": "SailList"},
	"versions": [
		{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
			"spec": {"type": "object", "properties": {"area": {"type": "integer", "maximum": 100}, "replicas": {"type": "integer"}, "cloth": {"type": "object", "properties": {"colour": {"type": "string", "default": "white"}, "weight": {"type": "integer"}}}}},
			"status": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}}}},
		{"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}`

const (
	sailsPath = "/apis/example.com/v1/namespaces/" + namespace + "/sails"
	mapsPath  = "/api/v1/namespaces/" + namespace + "/configmaps"
)

// webhookServer is a server with two webhooks whose answers a test sets. One
// has failurePolicy Fail and sees objects with the label mode=fail, the other
// has failurePolicy Ignore and sees those with mode=ignore.
type webhookServer struct {
	*server
	answer *atomic.Pointer[http.HandlerFunc]
}

func startWebhookServer(t testing.TB) *webhookServer {
	t.Helper()
	h := &webhookServer{server: start(t), answer: &atomic.Pointer[http.HandlerFunc]{}}
	listener := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*h.answer.Load())(w, r) }))
	t.Cleanup(listener.Close)
	for _, policy := range []string{"Fail", "Ignore"} {
		mode := strings.ToLower(policy)
		h.post("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", webhookOf(listener, mode, everyResource,
			fmt.Sprintf(`, "failurePolicy": %q, "objectSelector": {"matchLabels": {"mode": %q}}`, policy, mode)))
	}
	h.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", sails)
	h.patchWith(`[{"op": "add", "path": "/metadata/labels/seen", "value": "yes"}]`)
	h.await("sails are served", func() bool { return h.raw(http.MethodGet, sailsPath, "") == http.StatusOK })
	h.await("the webhooks are called", func() bool {
		for _, mode := range []string{"fail", "ignore"} {
			made := h.do(http.MethodPost, mapsPath+"?dryRun=All", "application/json", h.object(mapsPath, mode))
			metadata, _ := made.Object.(map[string]any)["metadata"].(map[string]any)
			if labels, _ := metadata["labels"].(map[string]any); labels["seen"] != "yes" {
				return false
			}
		}
		return true
	})
	return h
}

// raw sends a request and returns the status code.
func (s *server) raw(method, uri, body string) int {
	r := httptest.NewRequest(method, uri, strings.NewReader(body))
	admin := &user.DefaultInfo{Name: "kubernetes-admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r.WithContext(apirequest.WithUser(context.Background(), admin)))
	return w.Code
}

func apiVersionOf(path string) string {
	if path == sailsPath {
		return "example.com/v1"
	}
	return "v1"
}

func kindOf(path string) string {
	if path == sailsPath {
		return "Sail"
	}
	return "ConfigMap"
}

// answerWith sets the handler of both webhooks.
func (h *webhookServer) answerWith(answer http.HandlerFunc) { h.answer.Store(&answer) }

// respondWith makes the webhooks answer with a response for the request's UID.
func (h *webhookServer) respondWith(response func(uid types.UID) string) {
	h.answerWith(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = fmt.Fprintf(w, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": %s}`, response(review.Request.UID))
	})
}

// patchWith makes the webhooks answer with a patch.
func (h *webhookServer) patchWith(patch string) {
	encoded, _ := json.Marshal([]byte(patch))
	h.respondWith(func(uid types.UID) string {
		return fmt.Sprintf(`{"uid": %q, "allowed": true, "patchType": "JSONPatch", "patch": %s}`, uid, encoded)
	})
}

func (h *webhookServer) object(path, mode string) []byte {
	return []byte(`{"apiVersion": "` + apiVersionOf(path) + `", "kind": "` + kindOf(path) + `", "metadata": {"name": "it", "labels": {"mode": "` + mode + `"}}}`)
}

// TestInvalidWebhookAnswers calls webhooks with invalid answers. A webhook that
// fails rejects the write or, with failurePolicy Ignore, leaves the object
// unchanged. No answer makes the server fail.
func TestInvalidWebhookAnswers(t *testing.T) {
	h := startWebhookServer(t)
	plain := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); _, _ = w.Write([]byte(body)) }
	}
	response := func(format string) func() {
		return func() {
			h.respondWith(func(uid types.UID) string { return strings.ReplaceAll(format, "UID", string(uid)) })
		}
	}
	with := func(answer http.HandlerFunc) func() { return func() { h.answerWith(answer) } }
	for _, c := range []struct {
		name    string
		set     func()
		message string // of the refusal with failurePolicy Fail
	}{
		{"nothing", with(plain(200, "")), "failed calling webhook"},
		{"not JSON", with(plain(200, "<html>")), "failed calling webhook"},
		{"null", with(plain(200, "null")), "failed calling webhook"},
		{"an array", with(plain(200, "[]")), "failed calling webhook"},
		{"another kind", with(plain(200, `{"apiVersion": "v1", "kind": "Pod"}`)), "failed calling webhook"},
		{"another version", with(plain(200, `{"apiVersion": "admission.k8s.io/v9", "kind": "AdmissionReview"}`)), "failed calling webhook"},
		{"no response", with(plain(200, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}`)), "webhook response was absent"},
		{"null response", with(plain(200, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": null}`)), "webhook response was absent"},
		{"a deep answer", with(plain(200, strings.Repeat(`{"a":`, 20000)+strings.Repeat(`}`, 20000))), "failed calling webhook"},
		{"an error", with(plain(500, "broken")), "failed calling webhook"},
		{"an unusual code", with(plain(418, `{"kind": "Status", "code": 418}`)), "failed calling webhook"},
		{"a closed connection", with(func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }), "failed calling webhook"},
		{"another uid", response(`{"uid": "other", "allowed": true}`), "expected response.uid"},
		{"no uid", response(`{"allowed": true}`), "expected response.uid"},
		{"a patch without a type", response(`{"uid": "UID", "allowed": true, "patch": "W10="}`), "webhook returned response.patch but not response.patchType"},
		{"an unknown type of patch", response(`{"uid": "UID", "allowed": true, "patch": "W3sib3AiOiAicmVtb3ZlIiwgInBhdGgiOiAiL2tpbmQifV0=", "patchType": "Merge"}`), "unsupported patch type"},
		{"an invalid patch", response(`{"uid": "UID", "allowed": true, "patch": "e30=", "patchType": "JSONPatch"}`), "received undecodable patch"},
		{"a null patch", response(`{"uid": "UID", "allowed": true, "patch": "bnVsbA==", "patchType": "JSONPatch"}`), ""},
		{"a refusal", response(`{"uid": "UID", "allowed": false}`), "denied the request without explanation"},
	} {
		for _, path := range []string{mapsPath, sailsPath} {
			t.Run(c.name+" for "+kindOf(path), func(t *testing.T) {
				c.set()
				got := h.do(http.MethodPost, path+"?dryRun=All", "application/json", h.object(path, "fail"))
				if c.message == "" != (got.Code == http.StatusCreated) || !strings.Contains(got.Status.Message, c.message) || strings.Contains(got.Status.Message, "panic") {
					t.Errorf("Fail: %d %s, want %q", got.Code, got.Status.Message, c.message)
				}
				got = h.do(http.MethodPost, path+"?dryRun=All", "application/json", h.object(path, "ignore"))
				if refused := strings.Contains(c.message, "denied"); refused == (got.Code == http.StatusCreated) {
					t.Errorf("Ignore: %d %s", got.Code, got.Status.Message)
				}
			})
		}
	}
}

// invalidPatch is a patch that webhooks should not send, with its results for a
// ConfigMap and for a custom resource: the status code and a part of the
// message.
type invalidPatch struct {
	name, patch            string
	configMap, custom      int
	message, customMessage string
}

func invalidPatches() []invalidPatch {
	return []invalidPatch{
		{"another name", `[{"op": "replace", "path": "/metadata/name", "value": "else"}]`, 201, 201, "", ""},
		{"no name", `[{"op": "remove", "path": "/metadata/name"}]`, 422, 422, "metadata.name: Required value", "metadata.name: Required value"},
		{"a name that is a path", `[{"op": "replace", "path": "/metadata/name", "value": "../../x"}]`, 422, 422, "metadata.name: Invalid value", "metadata.name: Invalid value"},
		{"another namespace", `[{"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}]`, 400, 400, "the namespace of the provided object does not match the namespace sent on the request", "the namespace of the provided object does not match the namespace sent on the request"},
		{"no metadata", `[{"op": "remove", "path": "/metadata"}]`, 422, 422, "metadata.name: Required value", "metadata.name: Required value"},
		{"null metadata", `[{"op": "replace", "path": "/metadata", "value": null}]`, 422, 422, "metadata.name: Required value", ""},
		{"metadata of another type", `[{"op": "replace", "path": "/metadata", "value": "x"}]`, 500, 500, "cannot unmarshal", ""},
		{"another uid", `[{"op": "add", "path": "/metadata/uid", "value": "x"}]`, 201, 201, "", ""},
		{"a resourceVersion", `[{"op": "add", "path": "/metadata/resourceVersion", "value": "7"}]`, 201, 201, "", ""},
		{"invalid managedFields", `[{"op": "add", "path": "/metadata/managedFields", "value": [{"fieldsV1": {"f:": 3}}]}]`, 422, 422, "", ""},
		{"another kind", `[{"op": "replace", "path": "/kind", "value": "Secret"}]`, 500, 422, "unknown conversion", "must be Sail"},
		{"an unknown kind", `[{"op": "replace", "path": "/kind", "value": "Nothing"}]`, 500, 422, "", "must be Sail"},
		{"a kind of another group", `[{"op": "replace", "path": "/kind", "value": "Pod"}, {"op": "replace", "path": "/apiVersion", "value": "v1"}]`, 500, 500, "", ""},
		{"no kind", `[{"op": "remove", "path": "/kind"}]`, 201, 500, "", ""},
		{"another version", `[{"op": "replace", "path": "/apiVersion", "value": "example.com/v2"}]`, 500, 201, "", ""},
		{"an unknown version", `[{"op": "replace", "path": "/apiVersion", "value": "example.com/v3"}]`, 500, 500, "", ""},
		{"an empty path", `[{"op": "replace", "path": "", "value": null}]`, 500, 500, "", ""},
		{"no value", `[{"op": "replace", "path": ""}]`, 500, 500, "", ""},
		{"an array in place of the object", `[{"op": "replace", "path": "", "value": []}]`, 500, 500, "", ""},
		{"an unknown operation", `[{"op": "turn", "path": "/metadata"}]`, 500, 500, "", ""},
		{"no operation", `[{}]`, 500, 500, "", ""},
		{"a number in place of a string", `[{"op": "add", "path": "/data", "value": {"a": 1}}, {"op": "add", "path": "/spec", "value": 5}]`, 500, 422, "", "spec"},
		{"a negative index", `[{"op": "add", "path": "/metadata/finalizers", "value": ["a/b"]}, {"op": "add", "path": "/metadata/finalizers/-9", "value": "x"}]`, 500, 500, "", ""},
		{"an index out of range", `[{"op": "add", "path": "/metadata/finalizers", "value": ["a/b"]}, {"op": "replace", "path": "/metadata/finalizers/999999999999", "value": "x"}]`, 500, 500, "", ""},
		{"being deleted", `[{"op": "add", "path": "/metadata/deletionTimestamp", "value": "2020-01-01T00:00:00Z"}]`, 201, 201, "", ""},
		{"copies of copies", copies(), 500, 500, "", ""},
		{"null labels", `[{"op": "replace", "path": "/metadata/labels", "value": {"a": null}}]`, 201, 201, "", ""},
		{"fields that are not in the schema", `[{"op": "add", "path": "/spec", "value": {"area": 7, "mast": "oak", "cloth": {"weight": 3, "stain": true}}}]`, 201, 201, "", ""},
		{"an invalid object", `[{"op": "add", "path": "/spec", "value": {"area": 700}}, {"op": "add", "path": "/data", "value": {"a b": "x"}}]`, 422, 422, "data[a b]", "spec.area"},
	}
}

// copies returns a patch of 3 kB that expands an object to a gigabyte.
func copies() string {
	patch := `[{"op": "add", "path": "/metadata/annotations", "value": {"a": "` + strings.Repeat("x", 1000) + `"}}, {"op": "add", "path": "/data", "value": {"0": {}}}`
	for i := range 20 {
		patch += fmt.Sprintf(`, {"op": "add", "path": "/data/%d", "value": {}}, {"op": "copy", "from": "/metadata", "path": "/data/%d/m"}, {"op": "copy", "from": "/data", "path": "/metadata/%d"}`, i+1, i+1, i)
	}
	return patch + "]"
}

// TestInvalidWebhookPatches has webhooks change fields that they should not
// change.
func TestInvalidWebhookPatches(t *testing.T) {
	h := startWebhookServer(t)
	for _, path := range []string{mapsPath, sailsPath} {
		stored := h.post(path, string(h.object(path, "none")))
		for _, c := range invalidPatches() {
			t.Run(c.name+" for "+kindOf(path), func(t *testing.T) {
				code, message := c.configMap, c.message
				if path == sailsPath {
					code, message = c.custom, c.customMessage
				}
				h.patchWith(c.patch)
				made := h.do(http.MethodPost, path+"?dryRun=All", "application/json", []byte(strings.Replace(string(h.object(path, "fail")), `"it"`, `"new"`, 1)))
				if made.Code != code || !strings.Contains(made.Status.Message, message) || strings.Contains(made.Status.Message, "panic") {
					t.Errorf("create: %d %s, want %d %s", made.Code, made.Status.Message, code, message)
				}
				for _, uri := range []string{path + "/it", path + "/it/status", path + "/it/scale"} {
					changed := h.do(http.MethodPatch, uri+"?dryRun=All", "application/merge-patch+json", []byte(`{"metadata": {"labels": {"mode": "fail"}}}`))
					if strings.Contains(changed.Status.Message, "panic") {
						t.Errorf("PATCH %s: %d %s", uri, changed.Code, changed.Status.Message)
					}
					object, _ := changed.Object.(map[string]any)
					if changed.Code == http.StatusOK && (name(object) != "it" || object["metadata"].(map[string]any)["uid"] != stored["metadata"].(map[string]any)["uid"]) {
						t.Errorf("PATCH %s: it became %v", uri, object["metadata"])
					}
				}
			})
		}
	}
}

// TestCustomResourcesArePrunedAfterWebhooks checks that the schema is applied
// to what a webhook adds as to what clients send.
func TestCustomResourcesArePrunedAfterWebhooks(t *testing.T) {
	h := startWebhookServer(t)
	h.patchWith(`[{"op": "add", "path": "/spec", "value": {"area": 7, "mast": "oak", "cloth": {"weight": 3, "stain": true}}}, {"op": "add", "path": "/crew", "value": 3}, {"op": "add", "path": "/metadata/rank", "value": "admiral"}]`)
	check := func(what string, object map[string]any) {
		t.Helper()
		spec := encode(t, object["spec"])
		metadata := object["metadata"].(map[string]any)
		if string(spec) != `{"area":7,"cloth":{"colour":"white","weight":3}}` || object["crew"] != nil || metadata["rank"] != nil {
			t.Errorf("%s: %s, %v, %v", what, spec, object["crew"], metadata)
		}
	}
	check("create", h.post(sailsPath, string(h.object(sailsPath, "fail"))))
	check("get", h.must(http.MethodGet, sailsPath+"/it", nil))
	check("update", h.must(http.MethodPut, sailsPath+"/it", h.must(http.MethodGet, sailsPath+"/it", nil)))
	check("patch", h.do(http.MethodPatch, sailsPath+"/it", "application/merge-patch+json", []byte(`{"spec": null}`)).Object.(map[string]any))
	v2 := strings.Replace(sailsPath, "v1", "v2", 1)
	if changed := h.do(http.MethodPatch, v2+"/it", "application/merge-patch+json", []byte(`{"metadata": {"labels": {"through": "v2"}}}`)); changed.Code != http.StatusOK {
		t.Errorf("patch of v2: %d %s", changed.Code, changed.Status.Message)
	}
}

// FuzzWebhookAnswer has the webhooks answer, or patch with, arbitrary bytes.
func FuzzWebhookAnswer(f *testing.F) {
	h := startWebhookServer(f)
	for _, c := range invalidPatches() {
		f.Add([]byte(c.patch), true)
	}
	f.Add([]byte(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"allowed": true, "status": {"code": -1, "details": {"causes": [null]}}}}`), false)
	f.Add([]byte(`{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "response": {"uid": null, "auditAnnotations": {"": ""}, "warnings": [""]}}`), false)
	f.Fuzz(func(t *testing.T, answer []byte, patch bool) {
		if patch {
			h.patchWith(string(answer))
		} else {
			h.answerWith(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answer) })
		}
		h.t = t
		for _, path := range []string{mapsPath, sailsPath} {
			o := h.do(http.MethodPost, path+"?dryRun=All", "application/json", h.object(path, "fail"))
			if strings.Contains(o.Status.Message, "caused apiserver to panic") {
				t.Errorf("%s: %d %s", answer, o.Code, o.Status.Message)
			}
			made, _ := o.Object.(map[string]any)
			if metadata, ok := made["metadata"].(map[string]any); ok && metadata["namespace"] != namespace {
				t.Errorf("%s: moved to %v", answer, metadata["namespace"])
			}
		}
	})
}
