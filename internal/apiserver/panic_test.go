package apiserver_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	auditpolicy "k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/apiserver/audit"
	"github.com/coracle-io/coracle/internal/apiserver/fairness"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/resource"
)

// panics is a plugin and a hook of Services that panics where a test says.
type panics struct {
	registry.Lifecycle

	mu     sync.Mutex // guards the following
	at     string
	begun  int // of allocations
	undone int
	stages []string
}

func (p *panics) here(place string) {
	p.mu.Lock()
	wanted := p.at == place
	p.mu.Unlock()
	if wanted {
		panic("at " + place)
	}
}

func (p *panics) Handles(admission.Operation) bool { return true }
func (p *panics) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	p.here("admit")
	return nil
}

func (p *panics) Validate(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	p.here("validate")
	return nil
}

func (p *panics) BeginCreate(context.Context, resource.Object, bool) (func(bool), error) {
	return p.begin()
}

func (p *panics) BeginUpdate(context.Context, resource.Object, resource.Object, bool) (func(bool), error) {
	return p.begin()
}

func (p *panics) begin() (func(bool), error) {
	p.here("allocate")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun++
	return func(stored bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !stored {
			p.undone++
		}
	}, nil
}

// ProcessEvents implements audit.Sink.
func (p *panics) ProcessEvents(events ...*auditapi.Event) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range events {
		p.stages = append(p.stages, string(e.Stage))
	}
	return true
}

// TestPanicEndsOneRequest: a panic in a request is answered, logged and
// counted, and everything that the request held is free again.
func TestPanicEndsOneRequest(t *testing.T) {
	p := &panics{}
	counts := metrics.NewAPIServer(nil)
	fair := fairness.New(fairness.Config{Seats: 20, Patience: time.Minute, Clock: clock.RealClock{}, Metrics: counts.Fairness})
	s := apiservertest.Start(t, func(c *apiserver.Config) {
		c.Admission, c.Metrics, c.Fairness = p, counts, fair
		c.Lifecycles = map[schema.GroupResource]registry.Lifecycle{{Resource: "services"}: p}
		c.Audit = audit.New(p, auditpolicy.NewFakePolicyRuleEvaluator(auditapi.LevelMetadata, nil))
		c.Handlers = map[string]http.Handler{
			"/half": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "half")
				_ = http.NewResponseController(w).Flush()
				p.here("half")
			}),
			"/abort": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
		}
		c.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			p.here("authorize")
			return authorizer.DecisionAllow, "", nil
		})
	})
	const services = "/api/v1/namespaces/default/services"
	service := `{"metadata":{"name":"NAME"},"spec":{"clusterIP":"None","ports":[{"port":80}]}}`
	send := func(method, path, body string) (int, string, error) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if method == http.MethodPatch {
			r.Header.Set("Content-Type", "application/merge-patch+json")
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, "", err
		}
		defer func() { _ = answer.Body.Close() }()
		raw, err := io.ReadAll(answer.Body)
		return answer.StatusCode, string(raw), err
	}
	set := func(at string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.at, p.stages = at, nil
	}
	if code, body, err := send("POST", services, strings.ReplaceAll(service, "NAME", "there")); code != http.StatusCreated {
		t.Fatal(code, body, err)
	}
	for _, at := range []string{"authorize", "admit", "allocate", "validate"} {
		for range 25 { // more than there are seats
			set(at)
			for _, r := range [][2]string{{"POST", services}, {"PATCH", services + "/there"}} {
				code, body, err := send(r[0], r[1], strings.ReplaceAll(service, "NAME", "there"))
				if err != nil || code != http.StatusInternalServerError || body != "This request caused apiserver to panic. Look in the logs for details.\n" {
					t.Fatalf("%s %s: %d %q %v", at, r[0], code, body, err)
				}
			}
		}
		p.mu.Lock()
		if last := p.stages[len(p.stages)-1]; last != "Panic" {
			t.Errorf("%s: audited %v", at, p.stages)
		}
		p.mu.Unlock()
	}
	set("half")
	if _, body, err := send("GET", "/half", ""); err == nil {
		t.Errorf("half an answer passed for a whole one: %q", body)
	}
	if _, _, err := send("GET", "/abort", ""); err == nil {
		t.Error("an aborted answer passed for a whole one")
	}
	set("")
	if code, body, err := send("PATCH", services+"/there", `{"metadata":{"labels":{"a":"b"}}}`); code != http.StatusOK {
		t.Error(code, body, err)
	}
	if p.begun != p.undone+2 {
		t.Errorf("%d allocations, %d given back", p.begun, p.undone)
	}
	if reading, mutating := s.InFlight(); reading != 0 || mutating != 0 {
		t.Errorf("in flight: %d, %d", reading, mutating)
	}
	w := httptest.NewRecorder()
	counts.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		`coracle_request_panics_total{group="",resource="services",scope="resource",subresource="",verb="POST",version="v1"} 75`,
		`coracle_request_panics_total{group="",resource="services",scope="resource",subresource="",verb="PATCH",version="v1"} 75`,
		`apiserver_request_aborts_total{group="",resource="",scope="",subresource="",verb="GET",version=""} 1`,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("/metrics is without %s", want)
		}
	}
}

// TestMethodsDoNotFillMemory: what clients call their methods is not kept.
func TestMethodsDoNotFillMemory(t *testing.T) {
	counts := metrics.NewAPIServer(nil)
	s := apiservertest.Start(t, func(c *apiserver.Config) { c.Metrics = counts })
	for _, method := range []string{"MADEUP", "M2", "M3", "M4"} {
		s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, "/version", nil))
	}
	if kept := counts.Requests.Kept(); kept != 1 {
		t.Errorf("%d series for one kind of request", kept)
	}
}
