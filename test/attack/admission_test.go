package attack

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const registration = "/apis/admissionregistration.k8s.io/v1/"

// register creates an object of the group admissionregistration.k8s.io until
// the test ends.
func (c *cluster) register(t *testing.T, plural, name, spec string) {
	t.Helper()
	kind := map[string]string{
		"mutatingwebhookconfigurations": "MutatingWebhookConfiguration", "validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
		"mutatingadmissionpolicies": "MutatingAdmissionPolicy", "mutatingadmissionpolicybindings": "MutatingAdmissionPolicyBinding",
	}[plural]
	body := fmt.Sprintf(`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": %q, "metadata": {"name": %q}, %s}`, kind, name, spec)
	if code, answer := send(t, c.admin, "POST", registration+plural, body); code != http.StatusCreated {
		t.Fatalf("%s %s: %d %s", plural, name, code, answer)
	}
	t.Cleanup(func() {
		if code, answer := send(t, c.admin, "DELETE", registration+plural+"/"+name, ""); code != http.StatusOK {
			t.Errorf("delete %s %s: %d %s", plural, name, code, answer)
		}
	})
}

// registerWebhooks registers mutating and validating webhooks for the writes in
// a namespace. They call the handler that the caller stores.
func (c *cluster) registerWebhooks(t *testing.T, namespace, failurePolicy string) *atomic.Pointer[http.HandlerFunc] {
	t.Helper()
	answer := &atomic.Pointer[http.HandlerFunc]{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*answer.Load())(w, r) }))
	t.Cleanup(server.Close)
	bundle, err := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	if err != nil {
		t.Fatal(err)
	}
	webhooks := fmt.Sprintf(`"webhooks": [{"name": "%s.example.com", "clientConfig": {"url": %q, "caBundle": %s}, "failurePolicy": %q, "sideEffects": "None",
		"admissionReviewVersions": ["v1"], "timeoutSeconds": 1, "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": %q}},
		"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}]}]`, namespace, server.URL, bundle, failurePolicy, namespace)
	patches := answerPatch(`[]`)
	answer.Store(&patches)
	c.register(t, "mutatingwebhookconfigurations", namespace, webhooks)
	c.register(t, "validatingwebhookconfigurations", namespace, webhooks)
	return answer
}

// answerPatch answers each review with a patch.
func answerPatch(patch string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		kind := admissionv1.PatchTypeJSONPatch
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, Patch: []byte(patch), PatchType: &kind}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}
}

// reject rejects each review, with a message that the test recognizes.
func reject(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "asked"}}
	review.Request = nil
	_ = json.NewEncoder(w).Encode(review)
}

// TestWebhooksThatAnswerGarbage checks that a webhook can reject or delay the
// requests it gets, and nothing else.
func TestWebhooksThatAnswerGarbage(t *testing.T) {
	c := controlPlane(t)
	_, namespace := c.tenant(t, "")
	answer := c.registerWebhooks(t, namespace, "Fail")
	maps := "/api/v1/namespaces/" + namespace + "/configmaps"
	set := func(h http.HandlerFunc) { answer.Store(&h) }
	set(reject)
	eventually(t, "the webhooks are called", func() error {
		if code, body := send(t, c.admin, "POST", maps+"?dryRun=All", `{"metadata":{"name":"probe"}}`); !strings.Contains(body, "asked") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the server followed a redirect to %s", r.Host) }))
	defer elsewhere.Close()
	before := largestHeap(t, c)
	var slowest longest
	c.checkLatencyDuring(t, func(ctx context.Context) {
		for name, h := range map[string]http.HandlerFunc{
			"nothing": func(http.ResponseWriter, *http.Request) {},
			"null":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("null")) },
			"endless": func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					if _, err := w.Write(make([]byte, 1<<20)); err != nil {
						return
					}
				}
			},
			"never": func(_ http.ResponseWriter, r *http.Request) {
				select {
				case <-stop:
				case <-r.Context().Done():
				}
			},
			"deep": func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(strings.Repeat(`{"a":`, 1_000_000)))
			},
			"elsewhere": func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
			},
			"link-local": func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
			},
			"around": func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "/again", http.StatusTemporaryRedirect)
			},
			"another namespace": answerPatch(`[{"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}]`),
			"no name":           answerPatch(`[{"op": "remove", "path": "/metadata/name"}]`),
			"no metadata":       answerPatch(`[{"op": "replace", "path": "/metadata", "value": 7}]`),
			"no object":         answerPatch(`[{"op": "replace", "path": "", "value": null}]`),
			"no value":          answerPatch(`[{"op": "replace", "path": ""}]`),
			"another kind":      answerPatch(`[{"op": "replace", "path": "/kind", "value": "Secret"}]`),
			"a large object":    answerPatch(`[{"op": "add", "path": "/data", "value": {"a": "` + strings.Repeat("x", 5<<20) + `"}}]`),
			"copies": answerPatch(`[{"op": "add", "path": "/data", "value": {"a": "` + strings.Repeat("x", 1<<16) + `"}}` +
				strings.Repeat(`, {"op": "copy", "from": "/data", "path": "/data/b"}, {"op": "move", "from": "/data/b", "path": "/metadata/b"}, {"op": "copy", "from": "/metadata", "path": "/data/c"}`, 20) + `]`),
		} {
			set(h)
			begun := time.Now()
			code, body := send(t, c.admin, "POST", maps, `{"metadata":{"name":"garbage"}}`)
			if code < 400 || strings.Contains(body, "panic") {
				t.Errorf("%s: %d %.300s", name, code, body)
			}
			slowest.note(name, begun)
			if ctx.Err() != nil {
				return
			}
		}
	})
	slowest.check(t)
	if after := largestHeap(t, c); after > before+300<<20 {
		t.Errorf("the largest heap of the API server has %d MB after the answers, %d MB before", after>>20, before>>20)
	}
	if code, body := send(t, c.admin, "GET", "/api/v1/namespaces/kube-system/configmaps/garbage", ""); code != http.StatusNotFound {
		t.Errorf("a webhook moved an object into kube-system: %d %s", code, body)
	}
}

// TestPolicyThatPanicsOnEveryWrite checks policies whose ApplyConfiguration
// and JSONPatch panic: they apply to every kind and only fail the requests.
func TestPolicyThatPanicsOnEveryWrite(t *testing.T) {
	c := controlPlane(t)
	_, namespace := c.tenant(t, "")
	policy := func(name, mutation string) {
		c.register(t, "mutatingadmissionpolicies", name, fmt.Sprintf(`"spec": {"failurePolicy": "Fail", "reinvocationPolicy": "Never",
			"matchConstraints": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": %q}}, "resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["CREATE", "UPDATE"]}]},
			"mutations": [%s]}`, namespace, mutation))
		c.register(t, "mutatingadmissionpolicybindings", name, fmt.Sprintf(`"spec": {"policyName": %q}`, name))
	}
	policy(namespace+"-apply", `{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {\"applied\": \"yes\"}}}"}}`)
	policy(namespace+"-patch", `{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: \"add\", path: \"/metadata/annotations\", value: {\"patched\": \"yes\"}}]"}}`)
	pod := `{"spec":{"containers":[{"name":"c","image":"i"}]}`
	template := pod + `,"metadata":{"labels":{"a":"b"}}}`
	selector := `"selector":{"matchLabels":{"a":"b"}}`
	for _, o := range []struct{ path, body string }{
		{"/api/v1/%s/configmaps", `{}`}, {"/api/v1/%s/secrets", `{}`}, {"/api/v1/%s/serviceaccounts", `{}`}, {"/api/v1/%s/pods", pod + `}`},
		{"/api/v1/%s/services", `{"spec":{"ports":[{"port":80}]}}`}, {"/apis/apps/v1/%s/deployments", `{"spec":{` + selector + `,"template":` + template + `}}`},
		{"/apis/apps/v1/%s/daemonsets", `{"spec":{` + selector + `,"template":` + template + `}}`}, {"/apis/batch/v1/%s/jobs", `{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`},
		{"/apis/networking.k8s.io/v1/%s/networkpolicies", `{"spec":{"podSelector":{}}}`}, {"/apis/coordination.k8s.io/v1/%s/leases", `{}`},
		{"/apis/autoscaling/v1/%s/horizontalpodautoscalers", `{"spec":{"maxReplicas":2,"scaleTargetRef":{"kind":"Deployment","name":"x","apiVersion":"apps/v1"}}}`},
	} {
		body := `{"metadata":{"name":"it"}` + strings.TrimSuffix(","+strings.TrimPrefix(o.body, "{"), ",}")
		if o.body == `{}` {
			body = `{"metadata":{"name":"it"}}`
		}
		path := fmt.Sprintf(o.path, "namespaces/"+namespace) + "?dryRun=All"
		eventually(t, "both policies at work on "+o.path, func() error {
			code, answer := send(t, c.admin, "POST", path, body)
			if code != http.StatusCreated || !strings.Contains(answer, `"applied":"yes"`) || !strings.Contains(answer, `"patched":"yes"`) {
				if code >= 500 {
					t.Fatalf("%s: %d %s", o.path, code, answer)
				}
				return fmt.Errorf("%d %s", code, answer)
			}
			return nil
		})
	}
	c.checkNotRestarted(t)
}

// TestTenantRegistersWebhooksAndPolicies checks that an administrator of one
// namespace cannot register webhooks or policies for all others.
func TestTenantRegistersWebhooksAndPolicies(t *testing.T) {
	c := controlPlane(t)
	config, _ := c.tenant(t, "admin")
	for _, plural := range []string{
		"mutatingwebhookconfigurations", "validatingwebhookconfigurations", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
		"validatingadmissionpolicies", "validatingadmissionpolicybindings",
	} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			if code, body := send(t, config, method, registration+plural, `{"metadata":{"name":"mine"}}`); code != http.StatusForbidden {
				t.Errorf("%s %s: %d %s", method, plural, code, body)
			}
		}
	}
}
