package apiserver_test

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/apiserver/apply"
	"github.com/coracle-io/coracle/internal/apiserver/openapi"
)

// The revision in the annotation of the former field spec.rollbackTo is checked as a field is: one
// that is no number cannot be decoded, and a negative one is invalid. Writes of the status do not
// change it.
func TestRollbackAnnotation(t *testing.T) {
	const (
		path      = "/apis/apps/v1/namespaces/default/deployments"
		unparsed  = `failed to parse annotation[deprecated.deployment.rollback.to]=x as int64: strconv.ParseInt: parsing "x": invalid syntax`
		undecoded = `Deployment in version "v1" cannot be handled as a Deployment: ` + unparsed
		invalid   = `Deployment.apps "web" is invalid: spec.rollback.version: Invalid value: -1: must be greater than or equal to 0`
	)
	annotated := func(revision string) string {
		return `{"metadata":{"annotations":{"deprecated.deployment.rollback.to":"` + revision + `"}}}`
	}
	deployment := func(revision string) string {
		return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","annotations":{"deprecated.deployment.rollback.to":"` + revision + `"}},` +
			`"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"main","image":"example/web:1"}]}}}}`
	}
	s := applying(t)
	send := func(method, path, body string, code int, message, contentType string) {
		t.Helper()
		answered(t, s, method, path, body, code, message, contentType)
	}
	const plain, patch = "application/json", "application/merge-patch+json"
	send("POST", path, deployment("x"), 400, undecoded, plain)
	send("POST", path, deployment("-1"), 422, invalid, plain)
	send("POST", path, deployment(""), 201, "", plain)
	send("PUT", path+"/web", deployment("x"), 400, undecoded, plain)
	send("PUT", path+"/web", deployment("-1"), 422, invalid, plain)
	for _, kind := range []string{patch, "application/strategic-merge-patch+json"} {
		send("PATCH", path+"/web", annotated("x"), 422, unparsed, kind)
		send("PATCH", path+"/web", annotated("-1"), 422, invalid, kind)
	}
	send("PATCH", path+"/web", `[{"op":"add","path":"/metadata/annotations","value":{"deprecated.deployment.rollback.to":"x"}}]`, 422, unparsed, "application/json-patch+json")
	send("PATCH", path+"/web?fieldManager=test&force=true", deployment("x"), 400, unparsed, "application/apply-patch+yaml")

	revision := func(want string) {
		t.Helper()
		annotation(t, s, path+"/web", "deprecated.deployment.rollback.to", want)
	}
	send("PATCH", path+"/web/status", annotated("1"), 200, "", patch)
	revision("")
	send("PATCH", path+"/web", annotated("2"), 200, "", patch)
	revision("2")
	send("PATCH", path+"/web/status", annotated("1"), 200, "", patch)
	send("PATCH", path+"/web/status", `{"metadata":{"annotations":null}}`, 200, "", patch)
	revision("2")
}

// The annotation of the former field spec.templateGeneration is decoded as a number, and only
// changes of the template change it.
func TestTemplateGenerationAnnotation(t *testing.T) {
	const (
		path      = "/apis/apps/v1/namespaces/default/daemonsets"
		name      = "deprecated.daemonset.template.generation"
		unparsed  = `strconv.ParseInt: parsing "x": invalid syntax`
		undecoded = `DaemonSet in version "v1" cannot be handled as a DaemonSet: `
		plain     = "application/json"
		merge     = "application/merge-patch+json"
	)
	annotated := func(generation string) string {
		return `{"metadata":{"annotations":{"` + name + `":"` + generation + `"}}}`
	}
	set := func(generation, image string) string {
		return `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"agent","annotations":{"` + name + `":"` + generation + `"}},` +
			`"spec":{"selector":{"matchLabels":{"app":"agent"}},"template":{"metadata":{"labels":{"app":"agent"}},"spec":{"containers":[{"name":"main","image":"` + image + `"}]}}}}`
	}
	s := applying(t)
	const one, two = "example/agent:1", "example/agent:2"
	for _, step := range []struct {
		method, path, body, contentType string
		code                            int
		message                         string // of an error
		want                            string // the annotation after it, "" without a DaemonSet
	}{
		{"POST", "", set("x", one), plain, 400, undecoded + unparsed, ""},
		{"POST", "", set("", one), plain, 400, undecoded + `strconv.ParseInt: parsing "": invalid syntax`, ""},
		{"POST", "", set("9223372036854775808", one), plain, 400, undecoded + `strconv.ParseInt: parsing "9223372036854775808": value out of range`, ""},
		{"POST", "", set("7", one), plain, 201, "", "1"},
		{"PUT", "/agent", set("x", one), plain, 400, undecoded + unparsed, "1"},
		{"PUT", "/agent", set("-7", one), plain, 200, "", "1"},
		{"PUT", "/agent", set("7", two), plain, 200, "", "2"},
		{"PUT", "/agent/status", set("x", two), plain, 400, undecoded + unparsed, "2"},
		{"PUT", "/agent/status", set("7", two), plain, 200, "", "2"},
		{"PATCH", "/agent/status", `{"metadata":{"annotations":null}}`, merge, 200, "", "2"},
		{"PATCH", "/agent", annotated("x"), merge, 422, unparsed, "2"},
		{"PATCH", "/agent", annotated("x"), "application/strategic-merge-patch+json", 422, unparsed, "2"},
		{"PATCH", "/agent", annotated("7"), merge, 200, "", "2"},
		{"PATCH", "/agent?fieldManager=test&force=true", set("x", two), "application/apply-patch+yaml", 400, unparsed, "2"},
	} {
		answered(t, s, step.method, path+step.path, step.body, step.code, step.message, step.contentType)
		if step.want != "" {
			annotation(t, s, path+"/agent", name, step.want)
		}
	}
}

// applying starts a server with field managers.
func applying(t *testing.T) *apiservertest.Server {
	t.Helper()
	documents, err := openapi.New()
	if err != nil {
		t.Fatal(err)
	}
	return apiservertest.Start(t, func(c *apiserver.Config) { c.Registry.Managers = apply.New(documents.Schemas) })
}

// answered checks the code of an answer, and what the message of an error contains.
func answered(t *testing.T, s *apiservertest.Server, method, path, body string, code int, message, contentType string) {
	t.Helper()
	got, answer, _ := call(t, s, method, path, body, "Content-Type", contentType)
	var status struct{ Message string }
	if err := json.Unmarshal(answer, &status); err != nil {
		t.Fatal(err)
	}
	if got != code || code >= 400 && !strings.Contains(status.Message, message) {
		t.Errorf("%s of %s as %s: %d %s, want %d %s", method, body, contentType, got, status.Message, code, message)
	}
}

// annotation checks an annotation of the object at a path.
func annotation(t *testing.T, s *apiservertest.Server, path, name, want string) {
	t.Helper()
	_, answer, _ := call(t, s, "GET", path, "")
	var obj metav1.PartialObjectMetadata
	if err := json.Unmarshal(answer, &obj); err != nil {
		t.Fatal(err)
	}
	if got := obj.Annotations[name]; got != want {
		t.Errorf("the annotation is %q, want %q", got, want)
	}
}
