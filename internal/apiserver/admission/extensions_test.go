package admission

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/util/webhook"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/resource"
)

var podResource = &resource.Resource{Plural: "pods", Kind: "Pod", Namespaced: true, Versions: []resource.Version{{
	GroupVersion: corev1.SchemeGroupVersion, Hub: true,
	New:     func() resource.Object { return &corev1.Pod{} },
	ToHub:   func(o resource.Object) resource.Object { return o },
	FromHub: func(o resource.Object) resource.Object { return o },
}}}

// started counts how often the extensions asked for access to the server.
type started struct{ times int }

func newExtensions(t *testing.T, m *objects.Memory, s *started, stored ...resource.Object) map[string]admission.Interface {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
	for _, o := range stored {
		if err := client.Tracker().Add(o); err != nil {
			t.Fatal(err)
		}
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	return Extensions(ctx, m, nil, func() (*Access, error) {
		s.times++
		mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
		mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
		return &Access{Kubernetes: client, Dynamic: dynamicfake.NewSimpleDynamicClient(scheme.Scheme), Informers: factory, Mapper: mapper,
			Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(), Version: compatibility.DefaultBuildEffectiveVersion(),
			Services: webhook.NewDefaultServiceResolver()}, nil
	})
}

func createPod(name string) admission.Attributes {
	p := pod(func(p *corev1.Pod) { p.Name = name })
	p.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return write{kind: "Pod", resource: "pods", obj: p, user: &user.DefaultInfo{Name: "alice"}}.attributes()
}

func TestPolicyStartsWithItsFirstBinding(t *testing.T) {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "names"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				MatchPolicy: ptr.To(admissionregistrationv1.Equivalent), NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: podRule()}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "object.metadata.name.startsWith('good')", Message: "bad name"}},
		}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "names"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "names",
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}}
	m, s := objects.NewMemory(), &started{}
	p := newExtensions(t, m, s, policy, binding)["ValidatingAdmissionPolicy"].(admission.ValidationInterface)
	o := newObjectInterfaces(scheme.Scheme, []*resource.Resource{podResource})
	if err := p.Validate(t.Context(), createPod("bad"), o); err != nil || s.times != 0 {
		t.Fatalf("before there is a policy: %v, started %d times", err, s.times)
	}
	m.Put(objects.ValidatingPolicies, policy).Put(objects.ValidatingPolicyBindings, binding)
	err := p.Validate(t.Context(), createPod("bad"), o)
	if err == nil || err.Error() != `pods "bad" is forbidden: ValidatingAdmissionPolicy 'names' with binding 'names' denied request: bad name` {
		t.Error(err)
	}
	if err := p.Validate(t.Context(), createPod("good"), o); err != nil {
		t.Error(err)
	}
	if s.times != 1 {
		t.Errorf("started %d times", s.times)
	}
}

func podRule() admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"CREATE"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: ptr.To(admissionregistrationv1.AllScopes)}}
}

func TestWebhookChangesAPod(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		var p corev1.Pod
		if err := json.Unmarshal(review.Request.Object.Raw, &p); err != nil || p.Name != "p" {
			t.Errorf("%s: %v", review.Request.Object.Raw, err)
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, PatchType: ptr.To(admissionv1.PatchTypeJSONPatch),
			Patch: []byte(`[{"op":"add","path":"/metadata/labels","value":{"seen":"yes"}}]`)}
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	hook := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "w"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "w.example.com", Rules: []admissionregistrationv1.RuleWithOperations{podRule()},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To(server.URL),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			FailurePolicy: ptr.To(admissionregistrationv1.Fail), MatchPolicy: ptr.To(admissionregistrationv1.Equivalent),
			NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
			TimeoutSeconds: ptr.To[int32](5), ReinvocationPolicy: ptr.To(admissionregistrationv1.NeverReinvocationPolicy),
		}}}
	m := objects.NewMemory().Put(objects.MutatingWebhooks, hook)
	p := newExtensions(t, m, &started{}, hook)["MutatingAdmissionWebhook"].(admission.MutationInterface)
	a := createPod("p")
	if err := p.Admit(t.Context(), a, newObjectInterfaces(scheme.Scheme, []*resource.Resource{podResource})); err != nil {
		t.Fatal(err)
	}
	if got := a.GetObject().(*corev1.Pod); got.Labels["seen"] != "yes" || !strings.HasPrefix(got.Spec.Containers[0].Name, "c") {
		t.Errorf("%+v", got)
	}
}
