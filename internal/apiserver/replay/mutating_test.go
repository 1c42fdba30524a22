package replay

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// The marks that policies and the webhook set on each object that they see.
// Each is a label.
const (
	marks         = "marks.example.com"
	byApply       = "apply." + marks
	byPatch       = "patch." + marks
	byWebhook     = "webhook." + marks
	everyResource = `{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["CREATE", "UPDATE", "CONNECT"]}`
)

// policy sets a mark on every object that has metadata.
func policy(name, mutation string) string {
	return fmt.Sprintf(`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": %q}, "spec": {
		"failurePolicy": "Fail", "reinvocationPolicy": "IfNeeded",
		"matchConstraints": {"resourceRules": [%s]},
		"matchConditions": [{"name": "metadata", "expression": "has(object.metadata) && (!has(object.metadata.labels) || !(\"off.`+marks+`\" in object.metadata.labels))"}],
		"mutations": [%s]}}`, name, everyResource, mutation)
}

func binding(name string) string {
	return fmt.Sprintf(`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": %q}, "spec": {"policyName": %q}}`, name, name)
}

func applyMark() string {
	return `{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {\"` + byApply + `\": \"yes\"}}}"}}`
}

func patchMark() string {
	return `{"patchType": "JSONPatch", "jsonPatch": {"expression": "(has(object.metadata.labels) ? [] : [JSONPatch{op: \"add\", path: \"/metadata/labels\", value: {\"none\": \"\"}}]) + [JSONPatch{op: \"add\", path: \"/metadata/labels/` + byPatch + `\", value: \"yes\"}]"}}`
}

// markObjects is a webhook that sets a mark on every object that has metadata.
func markObjects(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	var object struct {
		Metadata *struct{ Labels map[string]string }
	}
	if json.Unmarshal(review.Request.Object.Raw, &object) == nil && object.Metadata != nil {
		patch := []map[string]any{{"op": "add", "path": "/metadata/labels/" + byWebhook, "value": "yes"}}
		if object.Metadata.Labels == nil {
			patch = slices.Insert(patch, 0, map[string]any{"op": "add", "path": "/metadata/labels", "value": map[string]any{}})
		}
		answer.Patch, _ = json.Marshal(patch)
		answer.PatchType = ptr.To(admissionv1.PatchTypeJSONPatch)
	}
	review.Request, review.Response = nil, answer
	_ = json.NewEncoder(w).Encode(review)
}

func webhookOf(server *httptest.Server, name, rule, more string) string {
	bundle, _ := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return fmt.Sprintf(`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": %q}, "webhooks": [{
		"name": "%s.example.com", "clientConfig": {"url": %q, "caBundle": %s}, "rules": [%s],
		"sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 30 %s}]}`, name, name, server.URL, bundle, rule, more)
}

// startMutating runs a server in which policies of both patch types and a
// webhook mark every object. It returns once they are in effect.
func startMutating(t testing.TB) *server {
	t.Helper()
	s := start(t, "api/all=true")
	hook := httptest.NewTLSServer(http.HandlerFunc(markObjects))
	t.Cleanup(hook.Close)
	const registration = "/apis/admissionregistration.k8s.io/v1/"
	s.post(registration+"mutatingwebhookconfigurations", webhookOf(hook, "marker", everyResource, `, "reinvocationPolicy": "IfNeeded"`))
	for name, mutation := range map[string]string{"apply": applyMark(), "patch": patchMark()} {
		s.post(registration+"mutatingadmissionpolicies", policy(name, mutation))
		s.post(registration+"mutatingadmissionpolicybindings", binding(name))
	}
	s.await("the policies and the webhook are in effect", func() bool {
		o := s.do(http.MethodPost, "/api/v1/namespaces/"+namespace+"/configmaps?dryRun=All", "application/json", []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}}`))
		if o.Code == http.StatusServiceUnavailable { // the schemas of the policies' types are not ready yet
			return false
		}
		if o.Code >= http.StatusBadRequest {
			s.t.Fatalf("probe: %d %s", o.Code, o.Status.Message)
		}
		probe := o.Object.(map[string]any)
		return hasMark(probe, byApply) && hasMark(probe, byPatch) && hasMark(probe, byWebhook)
	})
	return s
}

func (s *server) post(uri, body string) map[string]any {
	s.t.Helper()
	return s.must(http.MethodPost, uri, json.RawMessage(body))
}

// await waits until condition returns true.
func (s *server) await(what string, condition func() bool) {
	s.t.Helper()
	const timeout, pace = 2 * time.Minute, 20 * time.Millisecond
	deadline, again := time.NewTimer(timeout), time.NewTicker(pace)
	defer deadline.Stop()
	defer again.Stop()
	for !condition() {
		select {
		case <-deadline.C:
			s.t.Fatalf("%s: not within %v", what, timeout)
		case <-again.C:
		}
	}
}

func hasMark(object map[string]any, mark string) bool {
	metadata, _ := object["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	return labels[mark] == "yes"
}

// TestPoliciesAndWebhooksChangeEveryKind writes objects of every kind in every
// version, and their subresources, while policies and a webhook change all
// objects.
func TestPoliciesAndWebhooksChangeEveryKind(t *testing.T) {
	s := startMutating(t)
	resources := map[string]*resource.Resource{}
	wanted := map[string]bool{}
	for _, r := range s.resources {
		for i := range r.Versions {
			resources[r.Versions[i].GroupVersion.String()+" "+r.Kind] = r
		}
		wanted[r.Plural] = !r.Virtual() && slices.Contains(r.Verbs, "create")
	}
	for _, a := range validObjects(t) {
		r := resources[a.Kind]
		if r == nil || !wanted[r.Plural] {
			continue
		}
		wanted[r.Plural] = false
		collection := s.collection(&a)
		o := s.do(http.MethodPost, collection, "application/json", a.Request)
		s.checkMarks(r, a.Kind+" POST", o)
		if o.Code != http.StatusCreated {
			continue
		}
		stored := o.Object.(map[string]any)
		s.changeInEveryVersion(r, name(stored))
		s.remove(collection + "/" + name(stored))
	}
	for plural, missing := range wanted {
		if missing {
			t.Errorf("there is no valid object of %s", plural)
		}
	}
}

// validObjects returns the recorded objects that upstream accepted, those with
// the most fields first.
func validObjects(t testing.TB) []resourcetest.Answer {
	var valid []resourcetest.Answer
	for _, a := range answers(t, "update") {
		if a.Case == "base" {
			valid = append(valid, a)
		}
	}
	for _, a := range answers(t, "create") {
		if a.Code == http.StatusCreated {
			valid = append(valid, a)
		}
	}
	return append(valid, handwritten(t)...)
}

// handwritten returns valid objects of the kinds that have no recorded ones.
func handwritten(t testing.TB) []resourcetest.Answer {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, authority, authority, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	bundle := map[string]any{"metadata": map[string]any{"name": "b"}, "spec": map[string]any{"trustBundle": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}}
	if der, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key); err != nil {
		t.Fatal(err)
	}
	request := map[string]any{"metadata": map[string]any{"name": "r"}, "spec": map[string]any{
		"signerName": "example.com/s", "podName": "p", "podUID": "1", "serviceAccountName": "default", "serviceAccountUID": "2",
		"nodeName": "n", "nodeUID": "3", "maxExpirationSeconds": 3600, "stubPKCS10Request": der,
	}}
	return []resourcetest.Answer{
		{Kind: "storagemigration.k8s.io/v1 StorageVersionMigration", Request: []byte(`{"metadata": {"name": "m"}, "spec": {"resource": {"group": "apps", "resource": "deployments"}}}`)},
		{Kind: "certificates.k8s.io/v1 ClusterTrustBundle", Request: encode(t, bundle)},
		{Kind: "certificates.k8s.io/v1 PodCertificateRequest", Request: encode(t, request)},
		{Kind: "resource.k8s.io/v1 ResourceClaimTemplate", Request: []byte(`{"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}}}`)},
		{Kind: "resource.k8s.io/v1 ResourceSlice", Request: []byte(`{"metadata": {"name": "s"}, "spec": {"driver": "d.example.com", "nodeName": "n", "pool": {"name": "p", "resourceSliceCount": 1}, "devices": [{"name": "d"}]}}`)},
		{Kind: "resource.k8s.io/v1 DeviceTaintRule", Request: []byte(`{"metadata": {"name": "r"}, "spec": {"deviceSelector": {"driver": "d.example.com"}, "taint": {"key": "example.com/k", "effect": "NoSchedule"}}}`)},
		{Kind: "coordination.k8s.io/v1beta1 LeaseCandidate", Request: []byte(`{"metadata": {"name": "c"}, "spec": {"leaseName": "l", "binaryVersion": "1.37.0", "emulationVersion": "1.37.0", "strategy": "OldestEmulationVersion"}}`)},
		{Kind: "admissionregistration.k8s.io/v1 MutatingAdmissionPolicy", Request: []byte(policy("more", applyMark()))},
		{Kind: "admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding", Request: []byte(binding("more"))},
	}
}

// changeInEveryVersion changes an object by each verb in each version of its
// kind.
func (s *server) changeInEveryVersion(r *resource.Resource, name string) {
	const dryRun = "?dryRun=All&fieldManager=test&force=true"
	for i := range r.Versions {
		v := &r.Versions[i]
		if v.Unserved || s.collections[v.GroupVersion.String()+" "+r.Kind] == "" {
			continue
		}
		uri := s.collections[v.GroupVersion.String()+" "+r.Kind] + "/" + name
		what := v.GroupVersion.String() + " " + r.Kind
		s.checkMarks(r, what+" PUT", s.putUnchanged(uri))
		for _, kind := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType} {
			s.checkMarks(r, what+" "+string(kind), s.do(http.MethodPatch, uri+"?dryRun=All", string(kind), []byte(`{"metadata": {"labels": {"new": "label"}}}`)))
		}
		s.checkMarks(r, what+" JSON patch", s.do(http.MethodPatch, uri+"?dryRun=All", string(types.JSONPatchType), []byte(`[{"op": "replace", "path": "/metadata/labels", "value": {"new": "label"}}]`)))
		applied := fmt.Sprintf(`{"apiVersion": %q, "kind": %q, "metadata": {"name": %q, "labels": {"new": "label"}}}`, v.GroupVersion, r.Kind, name)
		s.checkMarks(r, what+" apply", s.do(http.MethodPatch, uri+dryRun, string(types.ApplyYAMLPatchType), []byte(applied)))
		for _, sub := range r.Subresources {
			s.changeSubresource(what, uri, &sub)
		}
	}
}

// putUnchanged replaces an object by itself without its marks. It retries after
// a conflict with the server's own writes.
func (s *server) putUnchanged(uri string) (o resourcetest.Outcome) {
	s.await("a PUT without a conflict", func() bool {
		if o = s.do(http.MethodGet, uri, "", nil); o.Code == http.StatusOK {
			o = s.do(http.MethodPut, uri+"?dryRun=All", "application/json", encode(s.t, withoutMarks(o.Object)))
		}
		return o.Code != http.StatusConflict
	})
	return o
}

// changeSubresource sends a valid request for each verb of a subresource.
func (s *server) changeSubresource(what, uri string, sub *resource.Subresource) {
	uri += "/" + sub.Name
	metadata := `{"metadata": {"name": "` + uri[strings.LastIndex(strings.TrimSuffix(uri, "/"+sub.Name), "/")+1:len(uri)-len(sub.Name)-1] + `", "labels": {"new": "label"}}}`
	var o resourcetest.Outcome
	for _, verb := range sub.Verbs {
		switch verb {
		case "update":
			o = s.putUnchanged(uri)
		case "patch":
			o = s.do(http.MethodPatch, uri+"?dryRun=All", string(types.MergePatchType), []byte(metadata))
			s.noServerError(what+" PATCH "+sub.Name, o)
			o = s.do(http.MethodPatch, uri+"?dryRun=All", string(types.StrategicMergePatchType), []byte(metadata))
		case "create":
			body := metadata
			if sub.Name == "binding" {
				body = strings.TrimSuffix(metadata, "}") + `, "target": {"name": "node"}}`
			}
			if sub.Name == "token" {
				body = `{"spec": {"expirationSeconds": 3600}}`
			}
			o = s.do(http.MethodPost, uri+"?dryRun=All", "application/json", []byte(body))
		}
		s.noServerError(what+" "+verb+" "+sub.Name, o)
	}
}

// withoutMarks removes the marks from an object.
func withoutMarks(object any) any {
	if metadata, _ := object.(map[string]any)["metadata"].(map[string]any); metadata != nil {
		if labels, _ := metadata["labels"].(map[string]any); labels != nil {
			for _, mark := range []string{byApply, byPatch, byWebhook} {
				delete(labels, mark)
			}
		}
	}
	return object
}

// checkMarks fails the test unless the object was stored with all marks.
// Policies and webhooks do not apply to their own configuration objects, and
// tokens have no labels.
func (s *server) checkMarks(r *resource.Resource, what string, o resourcetest.Outcome) {
	s.t.Helper()
	s.noServerError(what, o)
	if o.Code >= http.StatusBadRequest {
		s.t.Errorf("%s: %d %s", what, o.Code, o.Status.Message)
		return
	}
	if strings.HasPrefix(r.Plural, "mutating") || strings.HasPrefix(r.Plural, "validating") || r.Virtual() {
		return
	}
	for _, mark := range []string{byApply, byPatch, byWebhook} {
		if !hasMark(o.Object.(map[string]any), mark) {
			s.t.Errorf("%s: the mark %s is missing", what, mark)
		}
	}
}

func (s *server) noServerError(what string, o resourcetest.Outcome) {
	s.t.Helper()
	if strings.Contains(o.Status.Message, "no preferred addresses found") { // nodes without kubelets
		return
	}
	if o.Code == http.StatusInternalServerError || strings.Contains(o.Status.Message, "panic") {
		s.t.Errorf("%s: %d %s", what, o.Code, o.Status.Message)
	}
}
