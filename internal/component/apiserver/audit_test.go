package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"github.com/coracle-io/coracle/internal/component/apiserver"
)

const policy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- level: None
  nonResourceURLs: ["/metrics", "/readyz*"]
- level: None
  users: ["system:apiserver"]
- level: Metadata
  resources: [{group: "", resources: ["secrets"]}]
- level: Request
  omitStages: ["RequestReceived"]
  resources: [{group: "", resources: ["configmaps"]}]
  omitManagedFields: false
- level: RequestResponse
  omitStages: ["RequestReceived"]
  namespaces: ["default"]
- level: Metadata
  omitStages: ["RequestReceived"]
`

// summary returns an event in one line.
func summary(e auditv1.Event) string {
	parts := []string{string(e.Level), string(e.Stage), e.Verb}
	if o := e.ObjectRef; o != nil {
		resource := o.Resource
		if o.Subresource != "" {
			resource += "/" + o.Subresource
		}
		parts = append(parts, fmt.Sprintf("%s %s/%s", resource, o.Namespace, o.Name))
	} else {
		parts = append(parts, e.RequestURI)
	}
	if e.ResponseStatus != nil {
		parts = append(parts, fmt.Sprint(e.ResponseStatus.Code))
	}
	if e.ImpersonatedUser != nil {
		parts = append(parts, "as "+e.ImpersonatedUser.Username)
	}
	if e.RequestObject != nil {
		parts = append(parts, "request")
	}
	if e.ResponseObject != nil {
		parts = append(parts, "response")
	}
	return strings.Join(parts, " ")
}

// audited is an API server with the audit policy, and the events of its log.
type audited struct {
	*whole
	log    string
	events []auditv1.Event
}

func startAudited(t *testing.T) *audited {
	t.Helper()
	log := filepath.Join(t.TempDir(), "logs", "audit.log")
	return &audited{whole: startWhole(t, "--audit-policy-file="+file(t, "policy.yaml", policy), "--audit-log-path="+log), log: log}
}

// waitFor waits for as many events as there are summaries and fails unless they
// are the same, in any order.
func (s *audited) waitFor(want ...string) {
	s.t.Helper()
	var got []string
	eventually(s.t, "all events in the audit log", func() bool {
		s.events, got = lines[auditv1.Event](s.t, s.log), nil
		for _, e := range s.events {
			got = append(got, summary(e))
		}
		return len(got) >= len(want)
	})
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Errorf("the log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// find returns the event with a summary.
func (s *audited) find(want string) auditv1.Event {
	s.t.Helper()
	for _, e := range s.events {
		if summary(e) == want {
			return e
		}
	}
	s.t.Fatalf("no event %q", want)
	return auditv1.Event{}
}

func TestAuditLogOfWrites(t *testing.T) {
	s := startAudited(t)
	admin := s.clientset(s.admin())
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Data: map[string]string{"a": "b"}}
	if _, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), configMap, metav1.CreateOptions{FieldManager: "test"}); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "one"}, StringData: map[string]string{"a": "hidden"}}
	if _, err := admin.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if code, body := s.do(s.admin(), "PATCH", "/api/v1/namespaces/default/configmaps/one", `{"data":{"c":"d"}}`, "Content-Type", "application/merge-patch+json", "Audit-ID", "mine"); code != http.StatusOK {
		t.Fatalf("patch: %d %s", code, body)
	}
	if code, body := s.do(s.admin(), "DELETE", "/api/v1/namespaces/default/configmaps/one", `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`); code != http.StatusOK {
		t.Fatalf("delete: %d %s", code, body)
	}
	s.metrics() // not audited

	const ended = "Request ResponseComplete "
	s.waitFor(
		ended+"create configmaps default/one 201 request",
		"Metadata RequestReceived create secrets default/",
		"Metadata ResponseComplete create secrets default/one 201",
		ended+"patch configmaps default/one 200 request",
		ended+"delete configmaps default/one 200 request",
	)
	created := s.find(ended + "create configmaps default/one 201 request")
	if created.Kind != "Event" || created.APIVersion != "audit.k8s.io/v1" || len(created.AuditID) != 36 || created.User.Username != "kubernetes-admin" ||
		!slices.Contains(created.User.Groups, "system:masters") || !slices.Equal(created.SourceIPs, []string{"127.0.0.1"}) || created.UserAgent != "test" ||
		created.RequestURI != "/api/v1/namespaces/default/configmaps?fieldManager=test" || created.Annotations["authorization.k8s.io/decision"] != "allow" ||
		created.StageTimestamp.Before(&created.RequestReceivedTimestamp) {
		t.Errorf("event of the creation: %+v", created)
	}
	var sent corev1.ConfigMap
	if err := json.Unmarshal(created.RequestObject.Raw, &sent); err != nil || sent.Kind != "ConfigMap" || !maps.Equal(sent.Data, configMap.Data) {
		t.Errorf("request object: %s (%v)", created.RequestObject.Raw, err)
	}
	if patched := s.find(ended + "patch configmaps default/one 200 request"); patched.AuditID != "mine" || string(patched.RequestObject.Raw) != `{"data":{"c":"d"}}` {
		t.Errorf("event of the patch: %+v", patched)
	}
	text := s.metrics()
	for _, name := range []string{"apiserver_audit_event_total ", `apiserver_audit_level_total{level="Metadata"} `, "apiserver_audit_requests_rejected_total "} {
		if !strings.Contains(text, "\n"+name) {
			t.Errorf("/metrics lacks %s", name)
		}
	}
}

func TestAuditLogOfReads(t *testing.T) {
	s := startAudited(t)
	services := s.clientset(s.admin()).CoreV1().Services("default")
	eventually(t, "the Service of the API server", func() bool {
		_, err := s.store.Get(t.Context(), "/registry/services/specs/default/kubernetes")
		return err == nil
	})
	if _, err := services.Get(t.Context(), "kubernetes", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	watching, err := services.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watching.Stop()
	end()
	s.waitFor(
		"RequestResponse ResponseComplete get services default/kubernetes 200 response",
		"RequestResponse ResponseStarted watch services default/ 200",
		"RequestResponse ResponseComplete watch services default/ 200",
	)
	got := s.find("RequestResponse ResponseComplete get services default/kubernetes 200 response")
	if raw := string(got.ResponseObject.Raw); !strings.Contains(raw, `"kind":"Service"`) || strings.Contains(raw, "managedFields") {
		t.Errorf("response object: %s", raw)
	}
}

func TestAuditLogOfRefusals(t *testing.T) {
	s := startAudited(t)
	impersonating := s.admin()
	impersonating.Impersonate = rest.ImpersonationConfig{UserName: "jane", Groups: []string{"dev"}}
	const pods = "/api/v1/namespaces/default/pods"
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"bare"},"spec":{"serviceAccountName":"nobody","containers":[{"name":"c","image":"i"}]}}`
	for _, r := range []struct {
		config             *rest.Config
		method, path, body string
		code               int
	}{
		{impersonating, "POST", pods + "/web/exec?command=sh&stdout=true", "", http.StatusForbidden},
		{s.admin(), "POST", pods, pod, http.StatusForbidden},
		{s.withToken("nonsense"), "GET", "/api/v1/nodes", "", http.StatusUnauthorized},
		{s.admin(), "GET", "/api/v1/nodes?timeout=soon", "", http.StatusBadRequest},
	} {
		if code, body := s.do(r.config, r.method, r.path, r.body); code != r.code {
			t.Fatalf("%s %s: %d %s", r.method, r.path, code, body)
		}
	}
	s.waitFor(
		"RequestResponse ResponseStarted create pods/exec default/web 403 as jane response",
		"RequestResponse ResponseComplete create pods/exec default/web 403 as jane response",
		"RequestResponse ResponseComplete create pods default/bare 403 request response",
		"Metadata ResponseStarted list nodes / 401",
		"Metadata ResponseStarted list nodes / 400",
	)
	refused := s.find("RequestResponse ResponseComplete create pods/exec default/web 403 as jane response")
	if refused.Annotations["authorization.k8s.io/decision"] != "forbid" || refused.ResponseStatus.Reason != metav1.StatusReasonForbidden ||
		refused.User.Username != "kubernetes-admin" || !slices.Equal(refused.ImpersonatedUser.Groups, []string{"dev", "system:authenticated"}) {
		t.Errorf("event of the refusal: %+v", refused)
	}
	if e := s.find("RequestResponse ResponseComplete create pods default/bare 403 request response"); !strings.Contains(e.ResponseStatus.Message, "nobody") {
		t.Errorf("event of refused admission: %+v", e)
	}
}

// What admission notes: levels of pod security, the annotations of policies
// and of webhooks, and webhooks that could not be asked.
func TestAuditAnnotations(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.log")
	s := startWhole(t, "--audit-policy-file="+file(t, "policy.yaml", policy), "--audit-log-path="+log)
	namespace := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"guarded","labels":{"pod-security.kubernetes.io/audit":"restricted"}}}`
	if code, body := s.do(s.admin(), "POST", "/api/v1/namespaces", namespace); code != http.StatusCreated {
		t.Fatalf("%d %s", code, body)
	}
	account := `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`
	if code, body := s.do(s.admin(), "POST", "/api/v1/namespaces/guarded/serviceaccounts", account); code != http.StatusCreated {
		t.Fatalf("%d %s", code, body)
	}
	hook := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"gone"},"webhooks":[
		{"name":"gone.example.com","failurePolicy":"Ignore","sideEffects":"None","admissionReviewVersions":["v1"],
		 "clientConfig":{"url":"https://127.0.0.1:1/"},"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]}]}`
	if code, body := s.do(s.admin(), "POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", hook); code != http.StatusCreated {
		t.Fatalf("%d %s", code, body)
	}
	vap := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"owner.example.com"},"spec":{
		"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]},
		"auditAnnotations":[{"key":"image","valueExpression":"'uses ' + object.spec.containers[0].image"}]}}`
	if code, body := s.do(s.admin(), "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", vap); code != http.StatusCreated {
		t.Fatalf("%d %s", code, body)
	}
	binding := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"b"},"spec":{"policyName":"owner.example.com","validationActions":["Deny"]}}`
	if code, body := s.do(s.admin(), "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", binding); code != http.StatusCreated {
		t.Fatalf("%d %s", code, body)
	}
	want := []string{"owner.example.com/image", "pod-security.kubernetes.io/audit-violations", "pod-security.kubernetes.io/enforce-policy", "failed-open.validating.webhook.admission.k8s.io/round_0_index_0"}
	var noted map[string]string
	eventually(t, "annotations of everything that guards pods", func() bool {
		pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
		if code, body := s.do(s.admin(), "POST", "/api/v1/namespaces/guarded/pods", pod); code != http.StatusCreated {
			t.Fatalf("%d %s", code, body)
		}
		events := lines[auditv1.Event](t, log)
		noted = events[len(events)-1].Annotations
		for _, key := range want {
			if noted[key] == "" {
				return false
			}
		}
		return true
	})
	if noted["owner.example.com/image"] != "uses i" || noted["pod-security.kubernetes.io/enforce-policy"] != "privileged:latest" {
		t.Errorf("noted: %v", noted)
	}
}

// receiver takes what an audit webhook is sent.
type receiver struct {
	mu     sync.Mutex // guards events
	events []auditv1.Event
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var list auditv1.EventList
	if err := json.NewDecoder(req.Body).Decode(&list); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, list.Items...)
}

// all returns what was received so far, by the names of the objects: batches are sent
// beside each other and arrive in any order.
func (r *receiver) all() []auditv1.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(slices.Values(r.events), func(a, b auditv1.Event) int {
		return strings.Compare(a.ObjectRef.Name, b.ObjectRef.Name)
	})
}

func TestAuditWebhook(t *testing.T) {
	r := &receiver{}
	_, webhook := startWebhook(t, r)
	s := startWhole(t, "--audit-policy-file="+file(t, "policy.yaml", policy), "--audit-webhook-config-file="+webhook,
		"--audit-webhook-batch-max-wait=10ms", "--audit-webhook-truncate-enabled", "--audit-webhook-truncate-max-event-size=3000")
	roles := s.clientset(s.admin()).RbacV1().Roles("default")
	if _, err := roles.Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "small"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	large := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "large", Annotations: map[string]string{"a": strings.Repeat("x", 4000)}}}
	if _, err := roles.Create(t.Context(), large, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both events", func() bool { return len(r.all()) == 2 })
	events := r.all()
	if got := summary(events[1]); got != "RequestResponse ResponseComplete create roles default/small 201 request response" {
		t.Errorf("the small one is sent as %s", got)
	}
	if got := events[0]; got.RequestObject != nil || got.Annotations["audit.k8s.io/truncated"] != "true" {
		t.Errorf("the large one is sent as %+v", got)
	}
}

// With the mode blocking-strict, a request whose event cannot be written is
// refused.
func TestAuditStrictly(t *testing.T) {
	_, webhook := startWebhook(t, http.NotFoundHandler())
	all := "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n  resources: [{group: \"\", resources: [configmaps]}]\n"
	s := startWhole(t, "--audit-policy-file="+file(t, "policy.yaml", all), "--audit-webhook-config-file="+webhook, "--audit-webhook-mode=blocking-strict",
		"--audit-webhook-initial-backoff=1ms")
	code, _ := s.do(s.admin(), "POST", "/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"unseen"}}`)
	if code != http.StatusInternalServerError {
		t.Errorf("an event that is lost: %d", code)
	}
	secrets := s.clientset(s.admin()).CoreV1().Secrets("default")
	if _, err := secrets.Get(t.Context(), "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what is not recorded: %v", err)
	}
}

func TestAuditFlags(t *testing.T) {
	f := apiserver.NewOptions()
	f.Audit.LogOptions.Path, f.Audit.LogOptions.Format, f.Audit.LogOptions.MaxAge, f.Audit.LogOptions.BatchOptions.Mode = "-", "xml", -1, "sometimes"
	err := fmt.Sprint(f.Validate())
	for _, want := range []string{"invalid audit log format xml", "--audit-log-maxage -1", "invalid audit log mode sometimes"} {
		if !strings.Contains(err, want) {
			t.Errorf("%s, want %s", err, want)
		}
	}
}

func TestAuditPolicyErrors(t *testing.T) {
	bad := `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["Later"],"rules":[{"level":"Loud"},{"level":"None","nonResourceURLs":["healthz"],"namespaces":["x"]}]}`
	f := apiserver.NewOptions()
	f.Audit.PolicyFile = file(t, "policy.yaml", bad)
	err := refusal(t, f)
	for _, field := range []string{"omitStages[0]", "rules[0].level", "rules[1].nonResourceURLs"} {
		if !strings.Contains(err, field) {
			t.Errorf("%s\nnames no %s", err, field)
		}
	}
}
