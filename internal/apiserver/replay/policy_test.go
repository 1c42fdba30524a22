package replay

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// expressions returns mutations that are invalid or whose values JSON cannot
// represent.
func expressions() map[string]string {
	apply := func(expression string) string {
		return fmt.Sprintf(`{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": %q}}`, expression)
	}
	patch := func(expression string) string {
		return fmt.Sprintf(`{"patchType": "JSONPatch", "jsonPatch": {"expression": %q}}`, expression)
	}
	all := map[string]string{}
	for i, value := range []string{`b"abc"`, `duration("1h")`, `timestamp("2020-01-01T00:00:00Z")`, `18446744073709551615u`, `0.0/0.0`, `1.0/0.0`, `null`, `[null]`, `{"a": null}`, `[]`, `type(1)`, `-9223372036854775808`, `object`, `optional.of("x")`, `optional.none()`, `{1: "x"}`, `quantity("1Ki")`, `ip("10.0.0.1")`} {
		all[fmt.Sprintf("label-%d", i)] = apply(`Object{metadata: Object.metadata{labels: {"x": ` + value + `}}}`)
		all[fmt.Sprintf("spec-%d", i)] = apply(`Object{spec: ` + value + `}`)
		all[fmt.Sprintf("patch-%d", i)] = patch(`[JSONPatch{op: "add", path: "/metadata/labels/x", value: ` + value + `}]`)
	}
	for i, operation := range []string{`op: "replace", path: ""`, `op: "replace", path: "", value: null`, `op: "remove", path: "/metadata"`, `op: "remove", path: "/kind"`, `op: "turn", path: "/"`, `op: "", path: ""`,
		`op: "move", from: "", path: "/metadata"`, `op: "copy", from: "/metadata", path: "/metadata/labels/x"`, `op: "test", path: "/nothing", value: 1`, `op: "replace", path: "/kind", value: "Pod"`,
		`op: "replace", path: "/metadata/namespace", value: "kube-system"`, `op: "add", path: "/metadata/finalizers/-1", value: "x"`, `op: "replace", path: "/apiVersion", value: "x/y/z"`} {
		all[fmt.Sprintf("operation-%d", i)] = patch(`[JSONPatch{` + operation + `}]`)
	}
	for i, expression := range []string{`Object{}`, `Object{kind: "Pod"}`, `Object{apiVersion: "v2"}`, `Object{metadata: Object.metadata{name: "else"}}`, `Object{metadata: Object.metadata{namespace: "kube-system"}}`,
		`Object{metadata: Object.metadata{finalizers: ["a/b"]}}`, `Object{metadata: Object.metadata{ownerReferences: [Object.metadata.ownerReferences{uid: "x"}]}}`, `Object{metadata: Object.metadata{managedFields: []}}`,
		`Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{}]}}}}`, `Object{unknown: Object.unknown{x: 1}}`,
		`Object{status: Object.status{replicas: 3}}`, `Object{metadata: Object.metadata{labels: {"y": object.nothing.at.all}}}`, `Object{metadata: Object.metadata{creationTimestamp: "x"}}`} {
		all[fmt.Sprintf("object-%d", i)] = apply(expression)
	}
	return all
}

// TestInvalidPolicies applies policies with invalid results to built-in kinds
// and to custom resources.
func TestInvalidPolicies(t *testing.T) {
	s := start(t)
	s.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", sails)
	const registration = "/apis/admissionregistration.k8s.io/v1/"
	policies := map[string]bool{}
	body := func(name, mutation string) []byte {
		text := strings.Replace(policy(name, mutation), `"matchConditions": [`, `"matchConditions": [{"name": "chosen", "expression": "has(object.metadata) && has(object.metadata.labels) && \"mode\" in object.metadata.labels && object.metadata.labels.mode == '`+name+`'"}, `, 1)
		return []byte(text)
	}
	for name, mutation := range expressions() {
		o := s.do(http.MethodPost, registration+"mutatingadmissionpolicies", "application/json", body(name, mutation))
		s.noServerError("policy "+name, o)
		if o.Code == http.StatusCreated { // the others do not compile
			policies[name] = true
			s.post(registration+"mutatingadmissionpolicybindings", binding(name))
		}
	}
	if len(policies) < 50 {
		t.Errorf("only %d policies were accepted", len(policies))
	}
	s.post(registration+"mutatingadmissionpolicies", string(body("last", applyMark())))
	s.post(registration+"mutatingadmissionpolicybindings", binding("last"))
	s.await("sails are served", func() bool { return s.raw(http.MethodGet, sailsPath, "") == http.StatusOK })
	kinds := map[string]string{
		mapsPath:  `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "it", "labels": {"mode": "MODE"}}}`,
		sailsPath: `{"apiVersion": "example.com/v1", "kind": "Sail", "metadata": {"name": "it", "labels": {"mode": "MODE"}}, "spec": {"area": 3}}`,
		"/apis/apps/v1/namespaces/" + namespace + "/deployments": `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "it", "labels": {"mode": "MODE"}}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}`,
	}
	for path, object := range kinds {
		s.await("policies are in effect for "+path, func() bool {
			o := s.do(http.MethodPost, path+"?dryRun=All", "application/json", []byte(strings.Replace(object, "MODE", "last", 1)))
			made, _ := o.Object.(map[string]any)
			return hasMark(made, byApply)
		})
		for name := range policies {
			o := s.do(http.MethodPost, path+"?dryRun=All", "application/json", []byte(strings.Replace(object, "MODE", name, 1)))
			refused := name == "operation-0" // this patch panics in the library
			if strings.Contains(o.Status.Message, "panic") || strings.Contains(o.Status.Message, "failed on this request") != refused {
				t.Errorf("%s on %s: %d %s", name, path, o.Code, o.Status.Message)
			}
			if made, ok := o.Object.(map[string]any); ok && made["metadata"].(map[string]any)["namespace"] != namespace {
				t.Errorf("%s moved %s: %v", name, path, made["metadata"])
			}
		}
	}
}
