package audit

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/impersonation"
)

// sink collects events.
type sink []*auditapi.Event

// ProcessEvents implements audit.Sink.
func (s *sink) ProcessEvents(events ...*auditapi.Event) bool {
	for _, e := range events {
		*s = append(*s, e.DeepCopy())
	}
	return true
}

// policy is one configuration for all requests.
type policy audit.RequestAuditConfig

// EvaluatePolicyRule implements audit.PolicyRuleEvaluator.
func (p policy) EvaluatePolicyRule(authorizer.Attributes) audit.RequestAuditConfig {
	return audit.RequestAuditConfig(p)
}

// begin starts the record of jane's creation of a config map.
func begin(t *testing.T, p policy) (*sink, *Request, *http.Request) {
	t.Helper()
	events := &sink{}
	info := &apirequest.RequestInfo{IsResourceRequest: true, Verb: "create", APIVersion: "v1", Namespace: "web", Resource: "configmaps"}
	ctx, r := New(events, p).Begin(t.Context(), info, "id-1", time.Unix(1000, 0), false)
	ctx = apirequest.WithUser(ctx, &user.DefaultInfo{Name: "jane"})
	return events, r, httptest.NewRequestWithContext(ctx, http.MethodPost, "/api/v1/namespaces/web/configmaps", http.NoBody)
}

func configMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "settings", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "one"}}},
		Data:       map[string]string{"color": "blue"},
	}
}

// serve records the creation of a config map at a level, and returns the last
// event.
func serve(t *testing.T, p policy) *auditapi.Event {
	t.Helper()
	events, r, req := begin(t, p)
	r.Serve(httptest.NewRecorder(), req, func(w http.ResponseWriter, req *http.Request) {
		kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
		r.Object(req.Context(), configMap(), kind, corev1.SchemeGroupVersion.WithResource("configmaps"), "")
		r.Impersonated(impersonation.Identity{User: &user.DefaultInfo{Name: "ann"}, Constraint: "impersonate:user-info"})
		r.Response(codec.Encode(configMap(), codec.JSON))
		w.WriteHeader(http.StatusCreated)
	})
	if len(*events) != 2 || (*events)[0].Stage != auditapi.StageRequestReceived || (*events)[1].Stage != auditapi.StageResponseComplete {
		t.Fatalf("events: %+v", *events)
	}
	return (*events)[1]
}

func TestLevels(t *testing.T) {
	for _, test := range []struct {
		level             auditapi.Level
		request, response bool
	}{
		{auditapi.LevelMetadata, false, false},
		{auditapi.LevelRequest, true, false},
		{auditapi.LevelRequestResponse, true, true},
	} {
		e := serve(t, policy{Level: test.level})
		if e.AuditID != "id-1" || e.User.Username != "jane" || e.ImpersonatedUser == nil || e.ImpersonatedUser.Username != "ann" ||
			e.ObjectRef == nil || e.ObjectRef.Name != "settings" || e.ResponseStatus.Code != http.StatusCreated {
			t.Errorf("%s: %+v", test.level, e)
		}
		if hasRequest := e.RequestObject != nil && strings.Contains(string(e.RequestObject.Raw), "blue"); hasRequest != test.request {
			t.Errorf("%s: has the request's object: %v, want %v", test.level, hasRequest, test.request)
		}
		if hasResponse := e.ResponseObject != nil && strings.Contains(string(e.ResponseObject.Raw), "blue"); hasResponse != test.response {
			t.Errorf("%s: has the response's object: %v, want %v", test.level, hasResponse, test.response)
		}
	}
}

func TestOmitManagedFields(t *testing.T) {
	for _, omit := range []bool{false, true} {
		e := serve(t, policy{Level: auditapi.LevelRequestResponse, OmitManagedFields: omit})
		for what, raw := range map[string][]byte{"request": e.RequestObject.Raw, "response": e.ResponseObject.Raw} {
			if got := strings.Contains(string(raw), "managedFields"); got == omit {
				t.Errorf("omit %v: managed fields in the %s: %v", omit, what, got)
			}
		}
	}
}

func TestLevelNoneRecordsNothing(t *testing.T) {
	events, r, req := begin(t, policy{Level: auditapi.LevelNone})
	served := false
	r.Serve(httptest.NewRecorder(), req, func(http.ResponseWriter, *http.Request) {
		served = true
		r.Answer(configMap())
	})
	if !served || len(*events) != 0 {
		t.Errorf("served %v, events %+v", served, *events)
	}
}

// A request without a user has one event, with its status.
func TestRefuse(t *testing.T) {
	events, r, req := begin(t, policy{Level: auditapi.LevelMetadata})
	r.Refuse(httptest.NewRecorder(), req, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	if len(*events) != 1 || (*events)[0].Stage != auditapi.StageResponseStarted || (*events)[0].ResponseStatus.Code != http.StatusUnauthorized {
		t.Errorf("events: %+v", *events)
	}
}

func TestStatusAndPatch(t *testing.T) {
	events, r, req := begin(t, policy{Level: auditapi.LevelRequestResponse})
	r.Serve(httptest.NewRecorder(), req, func(w http.ResponseWriter, _ *http.Request) {
		r.Patch(func() ([]byte, error) { return []byte(`{"data":null}`), nil })
		r.Answer(&metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonConflict, Code: http.StatusConflict})
		r.Response(nil, errors.New("not encoded"))
		w.WriteHeader(http.StatusConflict)
	})
	last := (*events)[len(*events)-1]
	if last.RequestObject == nil || string(last.RequestObject.Raw) != `{"data":null}` {
		t.Errorf("request: %+v", last.RequestObject)
	}
	if last.ResponseStatus.Reason != metav1.StatusReasonConflict || last.ResponseObject == nil || !strings.Contains(string(last.ResponseObject.Raw), "Conflict") {
		t.Errorf("response: %+v, %+v", last.ResponseStatus, last.ResponseObject)
	}
}

// All methods that handlers call do nothing on a nil Request.
func TestNilRequest(t *testing.T) {
	var r *Request
	r.Object(context.Background(), configMap(), corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithResource("configmaps"), "")
	r.Patch(func() ([]byte, error) { t.Error("a patch is encoded"); return nil, nil })
	r.Status(&metav1.Status{})
	r.Answer(configMap())
	r.Impersonated(impersonation.Identity{})
	if r.Responses() {
		t.Error("responses are recorded")
	}
}

func TestWithoutManagedFields(t *testing.T) {
	for in, want := range map[string]string{
		`{"metadata":{"managedFields":[],"name":"a"}}`:                                              `{"metadata":{"name":"a"}}`,
		`{"metadata":{"name":"a"}}`:                                                                 `{"metadata":{"name":"a"}}`,
		`{"items":[{"metadata":{"managedFields":[],"name":"a"}},{"metadata":{"name":"b"}}]}`:        `{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`,
		`{"rows":[{"cells":[1],"object":{"metadata":{"managedFields":[{"manager":"x"}]}}}]}`:        `{"rows":[{"cells":[1],"object":{"metadata":{}}}]}`,
		`{"metadata":"managedFields"}`:                                                              `{"metadata":"managedFields"}`,
		`not JSON "managedFields"`:                                                                  `not JSON "managedFields"`,
		`{"data":{"managedFields":"kept"},"metadata":{"annotations":{"managedFields":"kept too"}}}`: `{"data":{"managedFields":"kept"},"metadata":{"annotations":{"managedFields":"kept too"}}}`,
	} {
		if got := string(withoutManagedFields([]byte(in))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
