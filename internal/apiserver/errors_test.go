package apiserver_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
)

// call sends one request and returns the code, the body and the headers.
func call(t *testing.T, s *apiservertest.Server, method, path, body string, headers ...string) (int, []byte, http.Header) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, data, response.Header
}

const (
	mapsPath = "/api/v1/namespaces/default/configmaps"
	podsPath = "/api/v1/namespaces/default/pods"
	podBody  = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"main","image":"example/web:1"}]}}`
)

func configMap(name, more string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"` + more + `}`
}

// refusal is a request that the server refuses with a Status. message is the
// start of the status' message.
type refusal struct {
	name         string
	method, path string
	body         string
	headers      []string
	code         int
	reason       metav1.StatusReason
	message      string
}

// testRefusals sends requests to a server with the config map "there", and
// compares the answers with upstream's code, reason and message.
func testRefusals(t *testing.T, refusals []refusal) {
	t.Helper()
	s := apiservertest.Start(t)
	if code, body, _ := call(t, s, "POST", mapsPath, configMap("there", "}")); code != http.StatusCreated {
		t.Fatalf("%d %s", code, body)
	}
	for _, test := range refusals {
		t.Run(test.name, func(t *testing.T) {
			code, body, header := call(t, s, test.method, test.path, test.body, test.headers...)
			var status metav1.Status
			if err := json.Unmarshal(body, &status); err != nil {
				t.Fatalf("%d, not a Status: %s", code, body)
			}
			if code != test.code || status.Code != int32(test.code) || status.Reason != test.reason || status.Kind != "Status" || status.APIVersion != "v1" {
				t.Errorf("got %d %s %s", code, status.Reason, body)
			}
			if !strings.HasPrefix(status.Message, test.message) {
				t.Errorf("got  %s\nwant %s", status.Message, test.message)
			}
			if header.Get("Audit-Id") == "" || header.Get("Cache-Control") != "no-cache, private" {
				t.Errorf("headers: %v", header)
			}
		})
	}
}

func TestRefusedPaths(t *testing.T) {
	testRefusals(t, []refusal{
		{
			name: "not found", method: "GET", path: mapsPath + "/missing",
			code: 404, reason: metav1.StatusReasonNotFound, message: `configmaps "missing" not found`,
		}, {
			name: "unknown resource", method: "GET", path: "/api/v1/nothings",
			code: 404, reason: metav1.StatusReasonNotFound, message: "the server could not find the requested resource",
		}, {
			name: "a node in a namespace", method: "GET", path: "/api/v1/namespaces/default/nodes",
			code: 404, reason: metav1.StatusReasonNotFound, message: "the server could not find the requested resource",
		}, {
			name: "a node's status in a namespace", method: "GET", path: "/api/v1/namespaces/default/nodes/one/status",
			code: 404, reason: metav1.StatusReasonNotFound, message: "the server could not find the requested resource",
		}, {
			name: "a namespace in a namespace", method: "GET", path: "/api/v1/namespaces/default/namespaces/kube-system",
			code: 404, reason: metav1.StatusReasonNotFound, message: "the server could not find the requested resource",
		}, {
			name: "wrong method", method: "POST", path: mapsPath + "/there", body: configMap("there", "}"),
			code: 405, reason: metav1.StatusReasonMethodNotAllowed, message: "the server does not allow this method on the requested resource",
		}, {
			name: "update without a name", method: "PUT", path: mapsPath, body: configMap("there", "}"),
			code: 405, reason: metav1.StatusReasonMethodNotAllowed, message: "the server does not allow this method on the requested resource",
		}, {
			name: "patch without a name", method: "PATCH", path: mapsPath, body: "{}", headers: []string{"Content-Type", "application/merge-patch+json"},
			code: 405, reason: metav1.StatusReasonMethodNotAllowed, message: "the server does not allow this method on the requested resource",
		}, {
			name: "a watch that is posted", method: "POST", path: "/api/v1/watch/namespaces/default/configmaps", body: configMap("new", "}"),
			code: 405, reason: metav1.StatusReasonMethodNotAllowed, message: "the server does not allow this method on the requested resource",
		}, {
			name: "a watch that is deleted", method: "DELETE", path: "/api/v1/watch/namespaces/default/configmaps/there",
			code: 405, reason: metav1.StatusReasonMethodNotAllowed, message: "the server does not allow this method on the requested resource",
		}, {
			name: "writing a document", method: "POST", path: "/apis/apps/v1", body: "{}",
			code: 405, reason: metav1.StatusReasonMethodNotAllowed, message: "the server does not allow this method on the requested resource",
		}, {
			name: "eviction of nobody", method: "POST", path: podsPath + "/web/eviction", body: `{"apiVersion":"policy/v1","kind":"Eviction"}`,
			code: 400, reason: metav1.StatusReasonBadRequest, message: "name in URL does not match name in Eviction object",
		}, {
			name: "binding of nobody", method: "POST", path: "/api/v1/namespaces/default/bindings",
			body: `{"apiVersion":"v1","kind":"Binding","target":{"name":"n"}}`,
			code: 400, reason: metav1.StatusReasonBadRequest, message: "Name parameter required.",
		}, {
			name: "review with a name", method: "POST", path: "/apis/authorization.k8s.io/v1/subjectaccessreviews/x", body: "{}",
			code: 404, reason: metav1.StatusReasonNotFound, message: "the server could not find the requested resource",
		},
	})
}

func TestRefusedUsers(t *testing.T) {
	testRefusals(t, []refusal{
		{
			name: "unknown user", method: "GET", path: mapsPath, headers: []string{"X-Test-User", "unknown"},
			code: 401, reason: metav1.StatusReasonUnauthorized, message: "Unauthorized",
		}, {
			name: "forbidden", method: "GET", path: mapsPath, headers: []string{"X-Test-User", "nobody"},
			code: 403, reason: metav1.StatusReasonForbidden, message: `configmaps is forbidden: User "nobody" cannot list resource "configmaps" in API group "" in the namespace "default"`,
		}, {
			name: "forbidden name", method: "GET", path: "/apis/apps/v1/namespaces/x/deployments/web/scale", headers: []string{"X-Test-User", "nobody"},
			code: 403, reason: metav1.StatusReasonForbidden, message: `deployments.apps "web" is forbidden: User "nobody" cannot get resource "deployments/scale" in API group "apps" in the namespace "x"`,
		}, {
			name: "forbidden path", method: "GET", path: "/metrics", headers: []string{"X-Test-User", "nobody"},
			code: 403, reason: metav1.StatusReasonForbidden, message: `forbidden: User "nobody" cannot get path "/metrics"`,
		}, {
			name: "impersonation", method: "GET", path: mapsPath, headers: []string{"X-Test-User", "nobody", "Impersonate-User", "admin"},
			code: 403, reason: metav1.StatusReasonForbidden, message: `configmaps is forbidden: User "nobody" cannot impersonate-on:user-info:list resource "configmaps" in API group "" in the namespace "default"`,
		},
	})
}

func TestRefusedMediaTypes(t *testing.T) {
	testRefusals(t, []refusal{
		{
			name: "content type", method: "POST", path: mapsPath, body: "x", headers: []string{"Content-Type", "text/plain"},
			code: 415, reason: metav1.StatusReasonUnsupportedMediaType,
			message: "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
		}, {
			name: "patch type", method: "PATCH", path: mapsPath + "/there", body: "{}", headers: []string{"Content-Type", "application/json"},
			code: 415, reason: metav1.StatusReasonUnsupportedMediaType,
			message: "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml",
		}, {
			name: "accept", method: "GET", path: mapsPath, headers: []string{"Accept", "text/html"},
			code: 406, reason: metav1.StatusReasonNotAcceptable,
			message: "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
		}, {
			name: "table in protobuf", method: "GET", path: mapsPath, headers: []string{"Accept", "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io"},
			code: 406, reason: metav1.StatusReasonNotAcceptable, message: "only the following media types are accepted",
		},
	})
}

func TestRefusedBodies(t *testing.T) {
	testRefusals(t, []refusal{
		{
			name: "no JSON", method: "POST", path: mapsPath, body: `{"kind`,
			code: 400, reason: metav1.StatusReasonBadRequest,
			message: `the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input ({"kind)`,
		}, {
			name: "no protobuf", method: "POST", path: mapsPath, body: "nonsense", headers: []string{"Content-Type", "application/vnd.kubernetes.protobuf"},
			code: 400, reason: metav1.StatusReasonBadRequest,
			message: `the object provided is unrecognized (must be of type ConfigMap): provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (6e6f6e73656e7365)`,
		}, {
			name: "wrong kind", method: "POST", path: mapsPath, body: `{"apiVersion":"v1","kind":"Nothing"}`,
			code: 400, reason: metav1.StatusReasonBadRequest,
			message: `Nothing in version "v1" cannot be handled as a ConfigMap: no kind "Nothing" is registered for version "v1" in scheme "pkg/api/legacyscheme/scheme.go:30"`,
		}, {
			name: "no version", method: "POST", path: mapsPath, body: `{"kind":"ConfigMap","apiVersion":"a/b/c"}`,
			code: 400, reason: metav1.StatusReasonBadRequest,
			message: `the object provided is unrecognized (must be of type ConfigMap): unexpected GroupVersion string: a/b/c ({"kind":"ConfigMap","apiVersio ...)`,
		}, {
			name: "wrong version", method: "POST", path: "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
			body: `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"x"}}`,
			code: 400, reason: metav1.StatusReasonBadRequest,
			message: `the API version in the data (autoscaling/v1) does not match the expected API version (autoscaling/v2)`,
		}, {
			name: "wrong type", method: "POST", path: mapsPath, body: configMap("x", `},"data":{"a":7}`),
			code: 400, reason: metav1.StatusReasonBadRequest,
			message: `ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string`,
		}, {
			name: "unknown field", method: "POST", path: mapsPath + "?fieldValidation=Strict", body: configMap("x", `},"foo":{"a":7}`),
			code: 400, reason: metav1.StatusReasonBadRequest,
			message: `ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "foo"`,
		}, {
			name: "duplicate field", method: "POST", path: mapsPath + "?fieldValidation=Strict", body: configMap("x", `},"data":{"a":"1"},"data":{"b":"2"}`),
			code: 400, reason: metav1.StatusReasonBadRequest,
			message: `ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: duplicate field "data"`,
		}, {
			name: "too large", method: "POST", path: mapsPath, body: configMap("x", `},"data":{"a":"`+strings.Repeat("x", 3<<20)+`"}`),
			code: 413, reason: metav1.StatusReasonRequestEntityTooLarge, message: "Request entity too large: limit is 3145728",
		},
	})
}

func TestRefusedQueries(t *testing.T) {
	t.Parallel()
	testRefusals(t, []refusal{
		{
			name: "label selector", method: "GET", path: mapsPath + "?labelSelector=%3D%3D",
			code: 400, reason: metav1.StatusReasonBadRequest,
			message: "found '==', expected: !, identifier, or 'end of string'",
		}, {
			name: "field selector", method: "GET", path: mapsPath + "?fieldSelector=spec.x%3Dy",
			code: 400, reason: metav1.StatusReasonBadRequest,
			message: `"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"`,
		}, {
			name: "pod field selector", method: "GET", path: podsPath + "?fieldSelector=spec.x%3Dy",
			code: 400, reason: metav1.StatusReasonBadRequest, message: "field label not supported: spec.x",
		}, {
			name: "resource version", method: "GET", path: mapsPath + "?resourceVersion=abc",
			code: 400, reason: metav1.StatusReasonBadRequest,
			message: `invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax`,
		}, {
			name: "limit", method: "GET", path: mapsPath + "?limit=many",
			code: 400, reason: metav1.StatusReasonBadRequest, message: `strconv.ParseInt: parsing "many": invalid syntax`,
		}, {
			name: "match without version", method: "GET", path: mapsPath + "?resourceVersionMatch=Exact",
			code: 422, reason: metav1.StatusReasonInvalid,
			message: `ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided`,
		}, {
			name: "continue", method: "GET", path: mapsPath + "?continue=nonsense",
			code: 400, reason: metav1.StatusReasonBadRequest, message: "invalid continue token: continue key is not valid: invalid character '\\u009e' looking for beginning of value",
		}, {
			name: "dry run", method: "POST", path: mapsPath + "?dryRun=Some", body: configMap("x", "}"),
			code: 422, reason: metav1.StatusReasonInvalid, message: `CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All"`,
		}, {
			name: "delete options", method: "DELETE", path: mapsPath + "/there?propagationPolicy=Foo",
			code: 422, reason: metav1.StatusReasonInvalid, message: `DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Foo": supported values: "Foreground", "Background", "Orphan", "nil"`,
		}, {
			name: "future", method: "GET", path: mapsPath + "?resourceVersion=1000000",
			code: 504, reason: metav1.StatusReasonTimeout, message: "Timeout: Too large resource version: 1000000, current: ",
		},
	})
}

func TestRefusedWrites(t *testing.T) {
	testRefusals(t, []refusal{
		{
			name: "exists", method: "POST", path: mapsPath, body: configMap("there", "}"),
			code: 409, reason: metav1.StatusReasonAlreadyExists, message: `configmaps "there" already exists`,
		}, {
			name: "exists dry", method: "POST", path: mapsPath + "?dryRun=All", body: configMap("there", "}"),
			code: 409, reason: metav1.StatusReasonAlreadyExists, message: `configmaps "there" already exists`,
		}, {
			name: "namespace", method: "POST", path: mapsPath, body: configMap("x", `,"namespace":"other"}`),
			code: 400, reason: metav1.StatusReasonBadRequest, message: "the namespace of the provided object does not match the namespace sent on the request",
		}, {
			name: "name", method: "PUT", path: mapsPath + "/there", body: configMap("other", "}"),
			code: 400, reason: metav1.StatusReasonBadRequest, message: "the name of the object (other) does not match the name on the URL (there)",
		}, {
			name: "conflict", method: "PUT", path: mapsPath + "/there", body: configMap("there", `,"resourceVersion":"1"}`),
			code: 409, reason: metav1.StatusReasonConflict,
			message: `Operation cannot be fulfilled on configmaps "there": the object has been modified; please apply your changes to the latest version and try again`,
		}, {
			name: "uid", method: "PUT", path: mapsPath + "/there", body: configMap("there", `,"uid":"7"}`),
			code: 409, reason: metav1.StatusReasonConflict,
			message: "Operation cannot be fulfilled on configmaps \"there\": StorageError: invalid object, Code: 4, Key: /registry/configmaps/default/there, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: 7, UID in object meta: ",
		}, {
			name: "uid of none", method: "PUT", path: mapsPath + "/gone", body: configMap("gone", `,"uid":"7"}`),
			code: 404, reason: metav1.StatusReasonNotFound, message: `configmaps "gone" not found`,
		}, {
			name: "uid of none, which a PUT may create", method: "PUT", path: "/apis/coordination.k8s.io/v1/namespaces/default/leases/gone",
			body: `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"gone","uid":"7"}}`,
			code: 409, reason: metav1.StatusReasonConflict, message: "Operation cannot be fulfilled on leases.coordination.k8s.io \"gone\": StorageError: invalid object, Code: 4, Key: /registry/leases/default/gone, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: 7, UID in object meta: ",
		}, {
			name: "invalid", method: "POST", path: mapsPath, body: configMap("UPPER", "}"),
			code: 422, reason: metav1.StatusReasonInvalid, message: `ConfigMap "UPPER" is invalid: metadata.name: Invalid value: "UPPER": a lowercase RFC 1123 subdomain`,
		}, {
			name: "delete precondition", method: "DELETE", path: mapsPath + "/there", body: `{"preconditions":{"uid":"7"}}`,
			code: 409, reason: metav1.StatusReasonConflict, message: `Operation cannot be fulfilled on ConfigMap "there": the UID in the precondition (7) does not match the UID in record`,
		},
	})
}

func TestRefusedPatches(t *testing.T) {
	testRefusals(t, []refusal{
		{
			name: "JSON patch", method: "PATCH", path: mapsPath + "/there", body: `{"not":"a list"}`, headers: []string{"Content-Type", "application/json-patch+json"},
			code: 400, reason: metav1.StatusReasonBadRequest, message: "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
		}, {
			name: "JSON patch path", method: "PATCH", path: mapsPath + "/there", body: `[{"op":"remove","path":"/data/x"}]`, headers: []string{"Content-Type", "application/json-patch+json"},
			code: 422, reason: metav1.StatusReasonInvalid, message: "the server rejected our request due to an error in our request",
		}, {
			name: "patch unknown field", method: "PATCH", path: mapsPath + "/there?fieldValidation=Strict", body: `{"foo":1}`, headers: []string{"Content-Type", "application/merge-patch+json"},
			code: 422, reason: metav1.StatusReasonInvalid, message: ` "" is invalid: patch: Invalid value:`,
		},
	})
}

// A patch cannot change the kind of an object: a strategic merge patch has no
// effect on it, and other patches are refused.
func TestPatchOfTheKind(t *testing.T) {
	s := apiservertest.Start(t)
	call(t, s, "POST", mapsPath, configMap("there", "}"))
	for _, test := range []struct{ way, patch, message string }{
		{"merge", `{"kind":"Pod"}`, `: converting (v1.Pod) to (core.ConfigMap): unknown conversion`},
		{"merge", `{"apiVersion":"v9"}`, `: no kind "ConfigMap" is registered for version "v9" in scheme "pkg/api/legacyscheme/scheme.go:30"`},
		{"merge", `{"kind":null}`, ""},
		{"json", `[{"op":"replace","path":"/kind","value":"Secret"}]`, `: converting (v1.Secret) to (core.ConfigMap): unknown conversion`},
		{"strategic-merge", `{"kind":"Pod"}`, ""},
	} {
		code, body, _ := call(t, s, "PATCH", mapsPath+"/there", test.patch, "Content-Type", "application/"+test.way+"-patch+json")
		var answer metav1.Status
		if err := json.Unmarshal(body, &answer); err != nil {
			t.Fatal(err)
		}
		want := http.StatusOK
		if test.message != "" {
			want = http.StatusUnprocessableEntity
		}
		if code != want || !strings.HasSuffix(answer.Message, test.message) {
			t.Errorf("%s %s: %d %s", test.way, test.patch, code, body)
		}
	}
}

func TestUnknownPath(t *testing.T) {
	s := apiservertest.Start(t)
	for _, path := range []string{"/nothing", "/apis/no.such.group", "/apis/no.such.group/v1", "/apis/no.such.group/v1/things"} {
		if code, body, _ := call(t, s, "GET", path, ""); code != http.StatusNotFound || string(body) != "404 page not found\n" {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

// Unknown and duplicate fields are warned of unless the client says otherwise.
func TestWarnings(t *testing.T) {
	s := apiservertest.Start(t)
	body := configMap("x", `},"foo":1,"bar":2`)
	_, _, header := call(t, s, "POST", mapsPath+"?dryRun=All", body)
	if got := header["Warning"]; len(got) != 2 || got[0] != `299 - "unknown field \"foo\""` || got[1] != `299 - "unknown field \"bar\""` {
		t.Errorf("warnings: %q", got)
	}
	if _, _, header = call(t, s, "POST", mapsPath+"?dryRun=All&fieldValidation=Ignore", body); header["Warning"] != nil {
		t.Errorf("warnings with Ignore: %q", header["Warning"])
	}
	yaml := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\ndata: {a: b}\ndata: {c: d}\n"
	_, _, header = call(t, s, "POST", mapsPath+"?dryRun=All", yaml, "Content-Type", "application/yaml")
	if got := header["Warning"]; len(got) != 1 || got[0] != `299 - "line 6: key \"data\" already set in map"` {
		t.Errorf("YAML warnings: %q", got)
	}
}
