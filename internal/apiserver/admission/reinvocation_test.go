package admission

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
	"github.com/coracle-io/coracle/internal/resource"
)

// patching serves a webhook that responds with a JSON patch, and counts its
// calls.
func patching(t *testing.T, patch string, calls *atomic.Int32) admissionregistrationv1.WebhookClientConfig {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if patch != "" {
			review.Response.PatchType, review.Response.Patch = ptr.To(admissionv1.PatchTypeJSONPatch), []byte(patch)
		}
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return admissionregistrationv1.WebhookClientConfig{URL: ptr.To(server.URL),
		CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
}

// Changes by a later webhook are shown to earlier ones with reinvocationPolicy
// IfNeeded, and to the plugins before. A container that is added gets its
// token.
func TestReinvocation(t *testing.T) {
	var never, again, injects atomic.Int32
	hook := func(name string, policy admissionregistrationv1.ReinvocationPolicyType, client admissionregistrationv1.WebhookClientConfig) admissionregistrationv1.MutatingWebhook {
		return admissionregistrationv1.MutatingWebhook{
			Name: name, Rules: []admissionregistrationv1.RuleWithOperations{podRule()}, ClientConfig: client, ReinvocationPolicy: &policy,
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			FailurePolicy: ptr.To(admissionregistrationv1.Fail), MatchPolicy: ptr.To(admissionregistrationv1.Equivalent),
			NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}, TimeoutSeconds: ptr.To[int32](5),
		}
	}
	hooks := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "w"}, Webhooks: []admissionregistrationv1.MutatingWebhook{
		hook("never.example.com", admissionregistrationv1.NeverReinvocationPolicy, patching(t, "", &never)),
		hook("again.example.com", admissionregistrationv1.IfNeededReinvocationPolicy, patching(t, "", &again)),
		hook("injects.example.com", admissionregistrationv1.NeverReinvocationPolicy,
			patching(t, `[{"op":"add","path":"/spec/initContainers","value":[{"name":"sidecar","image":"example/sidecar"}]}]`, &injects)),
	}}
	m := objectstest.NewMemory().Put(objects.MutatingWebhooks, hooks).
		Put(objects.Namespaces, namespace("web", corev1.NamespaceActive, nil)).
		Put(objects.ServiceAccounts, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "default"}})
	c := config(m)
	c.Extensions = map[string]admission.Interface{"MutatingAdmissionWebhook": newExtensions(t, m, &started{}, hooks)["MutatingAdmissionWebhook"]}
	chain, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	a := createPod("p")
	if err := chain.Admit(t.Context(), a, newObjectInterfaces(scheme.Scheme, []*resource.Resource{podResource})); err != nil {
		t.Fatal(err)
	}
	if never.Load() != 1 || again.Load() != 2 || injects.Load() != 1 {
		t.Errorf("the webhooks were called %d, %d and %d times, not 1, 2 and 1", never.Load(), again.Load(), injects.Load())
	}
	got := a.GetObject().(*corev1.Pod)
	if len(got.Spec.InitContainers) != 1 || !mountsAt(&got.Spec.InitContainers[0], tokenMountPath) {
		t.Errorf("the container that was put in has no token: %+v", got.Spec)
	}
	if len(got.Spec.Volumes) != 1 {
		t.Errorf("%d volumes, not one", len(got.Spec.Volumes))
	}
}
