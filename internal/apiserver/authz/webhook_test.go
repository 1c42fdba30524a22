package authz

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// The webhook bounds its cache by the number of requests.
func TestLongRequestsAreNotCached(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true}}`)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(`{clusters: [{name: c, cluster: {server: "`+server.URL+`"}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}`), 0o600); err != nil {
		t.Fatal(err)
	}
	z, err := newWebhook(apiserver.AuthorizerConfiguration{Name: "it", Webhook: &apiserver.WebhookConfiguration{
		SubjectAccessReviewVersion: "v1", FailurePolicy: apiserver.FailurePolicyNoOpinion, Timeout: metav1.Duration{Duration: time.Minute},
		AuthorizedTTL: metav1.Duration{Duration: time.Hour}, CacheAuthorizedRequests: true,
		ConnectionInfo: apiserver.WebhookConnectionInfo{KubeConfigFile: &file},
	}}, wait.Backoff{Steps: 1})
	if err != nil {
		t.Fatal(err)
	}
	one := &user.DefaultInfo{Name: "one"}
	many := &user.DefaultInfo{Name: "one", Groups: strings.Split(strings.Repeat("g ", maxCachedSize), " ")}
	var values []string
	for i := range maxCachedSize {
		values = append(values, strconv.Itoa(i))
	}
	selector, err := labels.ParseToRequirements("a in (" + strings.Join(values, ",") + ")")
	if err != nil {
		t.Fatal(err)
	}
	for what, test := range map[string]struct {
		authorizer.AttributesRecord
		times int64
	}{
		"short":     {authorizer.AttributesRecord{User: one, Verb: "get", Resource: "pods", ResourceRequest: true}, 1},
		"url":       {authorizer.AttributesRecord{User: one, Verb: "get", Path: "/x"}, 1},
		"groups":    {authorizer.AttributesRecord{User: many, Verb: "get", Resource: "pods", ResourceRequest: true}, 3},
		"url, too":  {authorizer.AttributesRecord{User: many, Verb: "get", Path: "/x"}, 3},
		"extra":     {authorizer.AttributesRecord{User: &user.DefaultInfo{Extra: map[string][]string{strings.Repeat("x", maxCachedSize): {""}}}, Verb: "get", Path: "/x"}, 3},
		"selectors": {authorizer.AttributesRecord{User: one, Verb: "list", Resource: "pods", ResourceRequest: true, LabelSelectorRequirements: selector}, 3},
	} {
		asked.Store(0)
		for range 3 {
			if decision, _, err := z.Authorize(t.Context(), test); decision != authorizer.DecisionAllow {
				t.Errorf("%s: %v %v", what, decision, err)
			}
		}
		if asked.Load() != test.times {
			t.Errorf("%s: asked %d times, want %d", what, asked.Load(), test.times)
		}
	}
}
