package apiserver_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	auditapi "k8s.io/apiserver/pkg/apis/audit"
	auditpolicy "k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/apiserver/audit"
)

// lastEvent keeps the last event.
type lastEvent struct {
	mu    sync.Mutex
	event *auditapi.Event
}

// ProcessEvents implements audit.Sink.
func (l *lastEvent) ProcessEvents(events ...*auditapi.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		l.event = e.DeepCopy()
	}
	return true
}

// The audit event of a request that takes longer than half a second says which stage
// took how long.
func TestLatencyInAuditEvents(t *testing.T) {
	for takes, want := range map[time.Duration]string{100 * time.Millisecond: "", 600 * time.Millisecond: "600ms"} {
		synctest.Test(t, func(t *testing.T) {
			last := &lastEvent{}
			s := apiservertest.StartInProcess(t, func(c *apiserver.Config) {
				c.Access.Audit = audit.New(last, auditpolicy.NewFakePolicyRuleEvaluator(auditapi.LevelMetadata, nil))
				c.Registry.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
					time.Sleep(takes)
					return authorizer.DecisionAllow, "", nil
				})
			})
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/namespaces/default/configmaps", http.NoBody))
			if w.Code != http.StatusOK || last.event == nil {
				t.Fatal(w.Code, w.Body.String(), last.event)
			}
			got, total := last.event.Annotations["apiserver.latency.k8s.io/authorization"], last.event.Annotations["apiserver.latency.k8s.io/total"]
			if got != want || (total == "") != (want == "") {
				t.Errorf("authorization that takes %v took %q, want %q; the request took %q", takes, got, want, total)
			}
		})
	}
}
