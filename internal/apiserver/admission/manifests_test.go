package admission

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
	"github.com/coracle-io/coracle/internal/resource"
)

const (
	staticPolicy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: names.static.k8s.io}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "object.metadata.name.startsWith('good')", message: bad name}]
`
	staticBinding = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: names.static.k8s.io}
spec: {policyName: names.static.k8s.io, validationActions: [Deny]}
`
)

// configurationOf returns a configuration of a kind that names a directory with the
// file objects.yaml.
func configurationOf(t *testing.T, kind, content string) []byte {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Appendf(nil, `{"apiVersion": "apiserver.config.k8s.io/v1", "kind": %q, "staticManifestsDir": %q}`, kind, dir)
}

// Policies in files hold from the first write, with the defaults of the API.
func TestStaticPolicy(t *testing.T) {
	const plugin = "ValidatingAdmissionPolicy"
	configured, err := Configure(plugin, configurationOf(t, "ValidatingAdmissionPolicyConfiguration", staticPolicy+"---\n"+staticBinding))
	if err != nil {
		t.Fatal(err)
	}
	p := configuredExtensions(t, objectstest.NewMemory(), &started{}, map[string]Configuration{plugin: configured})[plugin].(admission.ValidationInterface)
	o := newObjectInterfaces(scheme.Scheme, []*resource.Resource{podResource})
	err = p.Validate(t.Context(), createPod("bad"), o)
	if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'names.static.k8s.io' with binding 'names.static.k8s.io' denied request: bad name") {
		t.Error(err)
	}
	if err := p.Validate(t.Context(), createPod("good"), o); err != nil {
		t.Error(err)
	}
}

// What a directory must not have is told when the server starts.
func TestManifestsAreValidated(t *testing.T) {
	const policies, hooks = "ValidatingAdmissionPolicyConfiguration", "WebhookAdmissionConfiguration"
	hook := func(name, client string) string {
		return "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: " + name + "}\n" +
			"webhooks: [{name: a.example.com, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {" + client + "}}]\n"
	}
	for name, test := range map[string]struct{ plugin, kind, content, want string }{
		"policies":               {"ValidatingAdmissionPolicy", policies, staticPolicy + "---\n" + staticBinding, ""},
		"a webhook":              {"MutatingAdmissionWebhook", hooks, hook("a.static.k8s.io", "url: 'https://a.example.com'"), ""},
		"a list":                 {"MutatingAdmissionWebhook", hooks, `{"apiVersion": "v1", "kind": "List", "items": []}`, ""},
		"another name":           {"ValidatingAdmissionPolicy", policies, strings.ReplaceAll(staticPolicy, ".static.k8s.io", ""), `must have a name ending with ".static.k8s.io"`},
		"a binding alone":        {"ValidatingAdmissionPolicy", policies, staticBinding, "does not exist in the manifest directory"},
		"against the API":        {"ValidatingAdmissionPolicy", policies, strings.ReplaceAll(staticPolicy, "object.metadata", "nothing"), "spec.validations[0].expression"},
		"an unknown field":       {"ValidatingAdmissionPolicy", policies, staticPolicy + "  colour: red\n", "colour"},
		"another kind":           {"ValidatingAdmissionPolicy", policies, hook("a.static.k8s.io", "url: 'https://a.example.com'"), "unsupported resource type"},
		"a service":              {"MutatingAdmissionWebhook", hooks, hook("a.static.k8s.io", "service: {namespace: a, name: b}"), "a.static.k8s.io"},
		"another configuration":  {"MutatingAdmissionPolicy", policies, "", "unexpected type"},
		"a plugin without files": {"LimitRanger", policies, "", "takes no configuration here"},
	} {
		_, err := Configure(test.plugin, configurationOf(t, test.kind, test.content))
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
