package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/component/apiserver"
)

const tokens = "a,alice,1,dev\nb,bob,2\nc,carol,3\n"

// judge is an authorization webhook that allows alice everything, denies bob
// everything, and has no opinion about others. asked is the last request.
type judge struct {
	mu    sync.Mutex // guards the following
	asked authorizationv1.SubjectAccessReviewSpec
	count int
}

func (j *judge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	j.mu.Lock()
	j.asked = review.Spec
	j.count++
	j.mu.Unlock()
	review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: review.Spec.User == "alice", Denied: review.Spec.User == "bob", Reason: "so says the judge"}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // a client that has gone needs no answer
}

func (j *judge) last() (authorizationv1.SubjectAccessReviewSpec, int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.asked, j.count
}

// list is the code with which listing secrets is answered to a token's user.
func (s *whole) list(token, query string) int {
	code, _ := s.do(s.withToken(token), "GET", "/api/v1/namespaces/default/secrets"+query, "")
	return code
}

func TestAuthorizationWebhook(t *testing.T) {
	j := &judge{}
	_, webhook := startWebhook(t, j)
	s := startWhole(t, "--authorization-mode=Node,Webhook,RBAC", "--authorization-webhook-config-file="+webhook,
		"--authorization-webhook-version=v1", "--token-auth-file="+file(t, "tokens.csv", tokens))
	for token, want := range map[string]int{"a": http.StatusOK, "b": http.StatusForbidden, "c": http.StatusForbidden} {
		if got := s.list(token, ""); got != want {
			t.Errorf("token %s: %d, want %d", token, got, want)
		}
	}
	s.list("a", "?fieldSelector=metadata.name%3Done&labelSelector=app%3Dx")
	asked, count := j.last()
	if r := asked.ResourceAttributes; r == nil || r.Name != "one" || r.FieldSelector == nil || len(r.FieldSelector.Requirements) != 1 ||
		r.LabelSelector == nil || len(r.LabelSelector.Requirements) != 1 || r.LabelSelector.Requirements[0].Key != "app" {
		t.Errorf("asked about selectors: %+v", r)
	}
	s.list("a", "")
	if _, again := j.last(); again != count {
		t.Errorf("what was allowed is asked again")
	}
	admin := s.clientset(s.admin()).AuthorizationV1()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "bob", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"}}}
	review, err := admin.SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil || review.Status.Allowed || !review.Status.Denied || !strings.Contains(review.Status.Reason, "judge") {
		t.Errorf("a review of bob: %+v %v", review.Status, err)
	}
	rules, err := admin.SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}}, metav1.CreateOptions{})
	if err != nil || !rules.Status.Incomplete || !strings.Contains(rules.Status.EvaluationError, "webhook authorizer does not support user rule resolution") {
		t.Errorf("own rules: %+v %v", rules.Status, err)
	}
	if !strings.Contains(s.metrics(), `apiserver_authorization_decisions_total{decision="denied",name="default",type="Webhook"}`) {
		t.Error("/metrics does not count what the webhook denied")
	}
}

func TestABAC(t *testing.T) {
	policies := `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"alice","namespace":"default","resource":"secrets","apiGroup":"","readonly":true}}`
	s := startWhole(t, "--authorization-mode=ABAC", "--authorization-policy-file="+file(t, "policies.jsonl", policies), "--token-auth-file="+file(t, "tokens.csv", tokens))
	if got := s.list("a", ""); got != http.StatusOK {
		t.Errorf("alice lists: %d", got)
	}
	if code, body := s.do(s.withToken("a"), "POST", "/api/v1/namespaces/default/secrets", "{}"); code != http.StatusForbidden || !strings.Contains(body, "No policy matched.") {
		t.Errorf("alice creates: %d %s", code, body)
	}
	if got := s.list("b", ""); got != http.StatusForbidden {
		t.Errorf("bob lists: %d", got)
	}
}

const authorizers = `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: judge
  webhook:
    timeout: 3s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: %s
    cacheAuthorizedRequests: false
    cacheUnauthorizedRequests: false
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: %q}
    matchConditions:
    - expression: has(request.resourceAttributes) && request.resourceAttributes.resource == '%s'
- {type: Node, name: node}
- {type: RBAC, name: rbac}
`

func TestAuthorizationConfig(t *testing.T) {
	j := &judge{}
	server, connection := startWebhook(t, j)
	path := file(t, "authorization.yaml", fmt.Sprintf(authorizers, "NoOpinion", connection, "pods"))
	s := startWhole(t, "--authorization-config="+path, "--token-auth-file="+file(t, "tokens.csv", tokens))
	if got := s.list("a", ""); got != http.StatusForbidden {
		t.Errorf("what the webhook is not asked about: %d", got)
	}
	change := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change(fmt.Sprintf(authorizers, "Deny", connection, "secrets"))
	eventually(t, "the webhook that is asked about secrets", func() bool { return s.list("a", "") == http.StatusOK })
	change(fmt.Sprintf(authorizers, "Sometimes", connection, "secrets"))
	eventually(t, "the refusal of a faulty configuration", func() bool {
		_, rest, found := strings.Cut(s.metrics(), "\napiserver_authorization_config_controller_automatic_reloads_total{apiserver_id_hash=")
		return found && strings.Contains(strings.SplitN(rest, "\n", 2)[0], `status="failure"`)
	})
	if got := s.list("a", ""); got != http.StatusOK {
		t.Errorf("after a faulty configuration: %d", got)
	}
	server.Close()
	if got := s.list("a", ""); got != http.StatusInternalServerError {
		t.Errorf("when the webhook that must answer does not: %d", got)
	}
	if code, _ := s.do(s.admin(), "GET", "/api/v1/namespaces/default/secrets", ""); code != http.StatusOK {
		t.Errorf("an admin is asked about: %d", code)
	}
}

func TestAuthorizationConfigErrors(t *testing.T) {
	f := apiserver.NewOptions()
	f.Authorization.ConfigFile = file(t, "authorization.yaml", fmt.Sprintf(authorizers, "Sometimes", "", "x' + "))
	err := refusal(t, f)
	for _, field := range []string{"authorizers[0].failurePolicy", "authorizers[0].connectionInfo.kubeConfigFile", "authorizers[0].matchConditions[0].expression"} {
		if !strings.Contains(err, field) {
			t.Errorf("%s\nnames no %s", err, field)
		}
	}
}

func TestAuthorizationFlags(t *testing.T) {
	for name, test := range map[string]struct {
		modes   []string
		options apiserver.AuthorizationOptions
		want    []string
	}{
		"none":    {nil, apiserver.AuthorizationOptions{WebhookVersion: "v1"}, []string{"at least one authorization-mode must be passed"}},
		"unknown": {[]string{"Nobody", "RBAC", "RBAC"}, apiserver.AuthorizationOptions{WebhookVersion: "v3"}, []string{"--authorization-mode=Nobody", "specified more than once", "--authorization-webhook-version=v3"}},
		"missing": {[]string{"ABAC", "Webhook"}, apiserver.AuthorizationOptions{WebhookVersion: "v1"}, []string{"ABAC's authorization policy file not passed", "Webhook's authorization config file not passed"}},
		"unused": {[]string{"RBAC"}, apiserver.AuthorizationOptions{WebhookVersion: "v1", PolicyFile: "x", WebhookConfigFile: "y"},
			[]string{"cannot specify --authorization-policy-file without mode ABAC", "cannot specify --authorization-webhook-config-file without mode Webhook"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := apiserver.NewOptions()
			f.Authorization = test.options
			f.Authorization.Modes = test.modes
			err := fmt.Sprint(f.Validate())
			for _, want := range test.want {
				if !strings.Contains(err, want) {
					t.Errorf("%s, want %s", err, want)
				}
			}
		})
	}
}
