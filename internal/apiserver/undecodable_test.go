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
	documents, err := openapi.New()
	if err != nil {
		t.Fatal(err)
	}
	s := apiservertest.Start(t, func(c *apiserver.Config) { c.Registry.Managers = apply.New(documents.Schemas) })
	send := func(method, path, body string, code int, message, contentType string) {
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
		_, answer, _ := call(t, s, "GET", path+"/web", "")
		var web metav1.PartialObjectMetadata
		if err := json.Unmarshal(answer, &web); err != nil {
			t.Fatal(err)
		}
		if got := web.Annotations["deprecated.deployment.rollback.to"]; got != want {
			t.Errorf("the annotation is %q, want %q", got, want)
		}
	}
	send("PATCH", path+"/web/status", annotated("1"), 200, "", patch)
	revision("")
	send("PATCH", path+"/web", annotated("2"), 200, "", patch)
	revision("2")
	send("PATCH", path+"/web/status", annotated("1"), 200, "", patch)
	send("PATCH", path+"/web/status", `{"metadata":{"annotations":null}}`, 200, "", patch)
	revision("2")
}
