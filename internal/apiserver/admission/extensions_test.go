package admission

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
	"github.com/coracle-io/coracle/internal/resource"
	definitions "github.com/coracle-io/coracle/internal/resource/admissionregistration"
)

var podResource = &resource.Resource{
	Names:      resource.Names{Kind: "Pod", Plural: "pods"},
	Namespaced: true,
	Versions: []resource.Version{{
		GroupVersion: corev1.SchemeGroupVersion, Hub: true,
		New:     func() resource.Object { return &corev1.Pod{} },
		ToHub:   func(o resource.Object) resource.Object { return o },
		FromHub: func(o resource.Object) resource.Object { return o },
	}},
}

// started counts the calls of connect.
type started struct{ times int }

func newExtensions(t *testing.T, m *objectstest.Memory, s *started, stored ...resource.Object) map[string]admission.Interface {
	t.Helper()
	return configuredExtensions(t, m, s, nil, stored...)
}

func configuredExtensions(t *testing.T, m *objectstest.Memory, s *started, configured map[string]Configuration, stored ...resource.Object) map[string]admission.Interface {
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
	return Extensions(ctx, m, nil, configured, func() (*Access, error) {
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

func TestPolicyPluginStartsWithFirstBinding(t *testing.T) {
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
	m, s := objectstest.NewMemory(), &started{}
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

// TestReviewsAreNotIntercepted checks that neither policies nor webhooks see the
// reviews by which servers authenticate and authorize.
func TestReviewsAreNotIntercepted(t *testing.T) {
	everything := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"CREATE"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}, Scope: ptr.To(admissionregistrationv1.AllScopes)}}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "nothing"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				MatchPolicy: ptr.To(admissionregistrationv1.Exact), NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: everything}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "false"}},
		}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "nothing"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "nothing",
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}}
	hook := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "w"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "w.example.com", Rules: []admissionregistrationv1.RuleWithOperations{everything},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")}, // nobody answers
			SideEffects:  ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			FailurePolicy: ptr.To(admissionregistrationv1.Fail), MatchPolicy: ptr.To(admissionregistrationv1.Exact),
			NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}, TimeoutSeconds: new(int32(5)),
		}}}
	m := objectstest.NewMemory()
	plugins := newExtensions(t, m, &started{}, policy, binding, hook)
	m.Put(objects.ValidatingPolicies, policy).Put(objects.ValidatingPolicyBindings, binding).Put(objects.ValidatingWebhooks, hook)
	o := newObjectInterfaces(scheme.Scheme, []*resource.Resource{podResource})
	for _, name := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook"} {
		p := plugins[name].(admission.ValidationInterface)
		if err := p.Validate(t.Context(), createPod("p"), o); err == nil {
			t.Errorf("%s admits a pod", name)
		}
		for _, r := range definitions.Excluded() {
			w := write{kind: "Review", resource: r.Group + "/" + r.Resource, obj: &authorizationv1.SubjectAccessReview{}, user: &user.DefaultInfo{Name: "alice"}}
			if err := p.Validate(t.Context(), w.attributes(), o); err != nil {
				t.Errorf("%s: %s: %v", name, r.Resource, err)
			}
		}
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
	m := objectstest.NewMemory().Put(objects.MutatingWebhooks, hook)
	p := newExtensions(t, m, &started{}, hook)["MutatingAdmissionWebhook"].(admission.MutationInterface)
	a := createPod("p")
	if err := p.Admit(t.Context(), a, newObjectInterfaces(scheme.Scheme, []*resource.Resource{podResource})); err != nil {
		t.Fatal(err)
	}
	if got := a.GetObject().(*corev1.Pod); got.Labels["seen"] != "yes" || !strings.HasPrefix(got.Spec.Containers[0].Name, "c") {
		t.Errorf("%+v", got)
	}
}

// aborting is a plugin that aborts the request.
type aborting struct{ always }

func (aborting) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	panic(http.ErrAbortHandler)
}

// A plugin that aborts the request does not admit the write.
func TestAbortedRequestIsNotAdmitted(t *testing.T) {
	e := mutatingExtension{&extension{name: "aborting"}}
	var plugin admission.Interface = aborting{}
	e.plugin.Store(&plugin)
	defer func() {
		if reason := recover(); reason != http.ErrAbortHandler { //nolint:errorlint // the sentinel of net/http
			t.Errorf("panic: %v", reason)
		}
	}()
	err := e.Admit(t.Context(), createPod("p"), nil)
	t.Errorf("the write was admitted: %v", err)
}

// withoutSchema is a plugin that has not read the schemas before a time.
type withoutSchema struct {
	always
	read  time.Time
	err   error
	calls *int
}

func (p withoutSchema) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	*p.calls++
	if time.Now().Before(p.read) {
		return p.err
	}
	return nil
}

// A write waits for the schema of its kind, and for nothing else.
func TestMutatingPolicyWaitsForSchemas(t *testing.T) {
	unavailable := apierrors.NewServiceUnavailable("Resource kind /v1, Kind=Pod not found.")
	for _, tt := range []struct {
		name    string
		read    time.Duration // when the schemas are read
		err     error
		timeout time.Duration // of the request
		connect bool
		admit   bool
		within  time.Duration
		calls   int // at most
	}{
		{name: "read just after", read: time.Millisecond, err: unavailable, admit: true, within: 20 * time.Millisecond, calls: 2},
		{name: "read with the next list", read: 5 * time.Second, err: unavailable, admit: true, within: 6 * time.Second, calls: 20},
		{name: "never read", read: time.Hour, err: unavailable, within: 6 * time.Second, calls: 20},
		{name: "request ends", read: time.Hour, err: unavailable, timeout: time.Second, within: time.Second, calls: 10},
		{name: "connection", read: time.Hour, err: unavailable, connect: true, calls: 1},
		{name: "other error", read: time.Hour, err: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", nil), calls: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tt.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.timeout)
					defer cancel()
				}
				calls := 0
				e := mutatingPolicyExtension{mutatingExtension{&extension{name: "schemas"}}}
				var plugin admission.Interface = withoutSchema{read: time.Now().Add(tt.read), err: tt.err, calls: &calls}
				e.plugin.Store(&plugin)
				begun := time.Now()
				attributes := createPod("p")
				if tt.connect {
					attributes = admission.NewAttributesRecord(&corev1.PodExecOptions{}, nil, corev1.SchemeGroupVersion.WithKind("PodExecOptions"), "web", "p",
						corev1.SchemeGroupVersion.WithResource("pods"), "exec", admission.Connect, nil, false, nil)
				}
				err := e.Admit(ctx, attributes, nil)
				if tt.admit && err != nil || !tt.admit && !errors.Is(err, tt.err) {
					t.Errorf("admission ended with %v", err)
				}
				if took := time.Since(begun); took > tt.within {
					t.Errorf("admission took %v, more than %v", took, tt.within)
				}
				if calls > tt.calls {
					t.Errorf("the plugin was asked %d times, more than %d", calls, tt.calls)
				}
			})
		})
	}
}
