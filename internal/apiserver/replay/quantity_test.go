package replay

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	quotasPath = "/api/v1/namespaces/" + namespace + "/resourcequotas"
	outOfRange = "is out of range"
)

// quota returns a quota that a webhook or policy may change. An annotation, which
// may be any text, is a quantity that would take hours to compute with.
func quota(mode string) []byte {
	return []byte(`{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "it", "labels": {"mode": "` + mode + `"}, "annotations": {"memory": "1e900000000"}}, "spec": {"hard": {"memory": "1Gi"}}}`)
}

// TestQuantitiesOfWebhooks has webhooks write quantities out of range. They are
// refused before they are decoded, whatever the failurePolicy.
func TestQuantitiesOfWebhooks(t *testing.T) {
	h := startWebhookServer(t)
	for patch, refused := range map[string]bool{
		`[{"op": "replace", "path": "/spec/hard/memory", "value": "1e900000000"}]`:                                                                                               true,
		`[{"op": "add", "path": "/spec/hard/cpu", "value": "1e-900000000"}]`:                                                                                                     true,
		`[{"op": "replace", "path": "/spec", "value": {"hard": {"memory": 1e900000000}}}]`:                                                                                       true,
		`[{"op": "copy", "from": "/metadata/annotations/memory", "path": "/spec/hard/memory"}]`:                                                                                  true,
		`[{"op": "move", "from": "/metadata/annotations", "path": "/spec/hard"}]`:                                                                                                true,
		`[{"op": "replace", "path": "/kind", "value": "LimitRange"}, {"op": "replace", "path": "/spec", "value": {"limits": [{"type": "Pod", "max": {"cpu": "1e900000000"}}]}}]`: true,
		`[{"op": "add", "path": "/metadata/annotations/cpu", "value": "1e900000000"}, {"op": "replace", "path": "/spec/hard/memory", "value": "2Gi"}]`:                           false,
		`[{"op": "copy", "from": "/metadata/annotations/memory", "path": "/metadata/annotations/copy"}, {"op": "copy", "from": "/spec/hard/memory", "path": "/spec/hard/pods"}]`: false,
	} {
		h.patchWith(patch)
		for _, mode := range []string{"fail", "ignore"} {
			got := h.do(http.MethodPost, quotasPath+"?dryRun=All", "application/json", quota(mode))
			if refused && (got.Code != http.StatusBadRequest || !strings.Contains(got.Status.Message, "denied the request: the webhook's patch is refused") || !strings.Contains(got.Status.Message, outOfRange)) ||
				!refused && got.Code != http.StatusCreated {
				t.Errorf("%s with %s: %d %s", patch, mode, got.Code, got.Status.Message)
			}
		}
	}
}

// TestQuantitiesOfPolicies has policies write quantities out of range, as JSON
// patches and as applied configurations.
func TestQuantitiesOfPolicies(t *testing.T) {
	s := start(t)
	const registration = "/apis/" + admissionregistrationv1.GroupName + "/v1/"
	mutations := map[string]string{
		"value": `{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: \"replace\", path: \"/spec/hard/memory\", value: object.metadata.annotations.memory}]"}}`,
		"copy":  `{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: \"copy\", from: \"/metadata/annotations/memory\", path: \"/spec/hard/memory\"}]"}}`,
		"apply": `{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{spec: Object.spec{hard: {\"memory\": object.metadata.annotations.memory}}}"}}`,
		"kept":  `{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: \"copy\", from: \"/metadata/name\", path: \"/metadata/annotations/copy\"}]"}}`,
		"usual": `{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: \"replace\", path: \"/spec/hard/memory\", value: \"2Gi\"}]"}}`,
	}
	for name, mutation := range mutations {
		made := strings.Replace(policy(name, mutation), `"matchConditions": [`, fmt.Sprintf(`"matchConditions": [{"name": "chosen", "expression": "has(object.metadata) && has(object.metadata.labels) && \"mode\" in object.metadata.labels && object.metadata.labels.mode == '%s'"}, `, name), 1)
		s.post(registration+"mutatingadmissionpolicies", made)
		s.post(registration+"mutatingadmissionpolicybindings", binding(name))
	}
	for name := range mutations {
		if name == "usual" || name == "kept" {
			continue
		}
		s.await("the policy "+name+" refuses", func() bool {
			got := s.do(http.MethodPost, quotasPath+"?dryRun=All", "application/json", quota(name))
			return got.Code >= http.StatusBadRequest && strings.Contains(got.Status.Message, outOfRange)
		})
	}
	changes := func(name, field, key, want string) {
		s.await("the policy "+name+" changes the quota", func() bool {
			got := s.do(http.MethodPost, quotasPath+"?dryRun=All", "application/json", quota(name))
			made, _ := got.Object.(map[string]any)
			text, _, _ := unstructured.NestedString(made, append(strings.Split(field, "."), key)...)
			return text == want
		})
	}
	changes("usual", "spec.hard", "memory", "2Gi")
	changes("kept", "metadata.annotations", "copy", "it")
}
