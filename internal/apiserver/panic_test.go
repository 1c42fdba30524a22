package apiserver_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	auditpolicy "k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/apiserver/audit"
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

// set makes p panic at a place, "" for none, and forgets the audited stages.
func (p *panics) set(at string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.stages = at, nil
}

// configure makes a server call p at all places.
func (p *panics) configure(c *apiserver.Config) {
	c.Registry.Metrics = metrics.NewAPIServer(nil)
	c.Limits.PriorityAndFairness, c.Limits.MaxInFlight, c.Limits.MaxMutatingInFlight = true, 20, 0
	c.Registry.Admission = p
	c.Registry.Lifecycles = map[schema.GroupResource]registry.Lifecycle{{Resource: "services"}: p}
	c.Access.Audit = audit.New(p, auditpolicy.NewFakePolicyRuleEvaluator(auditapi.LevelMetadata, nil))
	c.Handlers.Paths = map[string]http.Handler{
		"/half": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			p.here("half")
		}),
		"/abort": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
	}
	c.Registry.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		p.here("authorize")
		return authorizer.DecisionAllow, "", nil
	})
}

// trySend sends a request, whose connection may be aborted.
func trySend(t *testing.T, s *apiservertest.Server, method, path, body string) (int, string, error) {
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

// A panic in a request is answered, logged and counted, and releases everything
// that the request held.
func TestPanicEndsOneRequest(t *testing.T) {
	p := &panics{}
	var counts *metrics.APIServer
	s := apiservertest.Start(t, func(c *apiserver.Config) {
		p.configure(c)
		counts = c.Registry.Metrics
	})
	const services = "/api/v1/namespaces/default/services"
	const service = `{"metadata":{"name":"there"},"spec":{"clusterIP":"None","ports":[{"port":80}]}}`
	if code, body, err := trySend(t, s, "POST", services, service); code != http.StatusCreated {
		t.Fatal(code, body, err)
	}
	for _, at := range []string{"authorize", "admit", "allocate", "validate"} {
		for range 25 { // more than there are seats
			p.set(at)
			for _, r := range [][2]string{{"POST", services}, {"PATCH", services + "/there"}} {
				code, body, err := trySend(t, s, r[0], r[1], service)
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
	p.set("")
	if code, body, err := trySend(t, s, "PATCH", services+"/there", `{"metadata":{"labels":{"a":"b"}}}`); code != http.StatusOK {
		t.Error(code, body, err)
	}
	if p.begun != p.undone+2 {
		t.Errorf("%d allocations, %d released", p.begun, p.undone)
	}
	if reading, mutating := s.InFlight(); reading != 0 || mutating != 0 {
		t.Errorf("in flight: %d, %d", reading, mutating)
	}
	wantMetrics(t, counts,
		`coracle_request_panics_total{group="",resource="services",scope="resource",subresource="",verb="POST",version="v1"} 75`,
		`coracle_request_panics_total{group="",resource="services",scope="resource",subresource="",verb="PATCH",version="v1"} 75`,
	)
}

// A panic after the start of an answer, and http.ErrAbortHandler, abort the
// connection.
func TestPanicAbortsAnAnswer(t *testing.T) {
	p := &panics{}
	var counts *metrics.APIServer
	s := apiservertest.Start(t, func(c *apiserver.Config) {
		p.configure(c)
		counts = c.Registry.Metrics
	})
	p.set("half")
	for _, path := range []string{"/half", "/abort"} {
		if _, body, err := trySend(t, s, "GET", path, ""); err == nil {
			t.Errorf("GET %s succeeds with %q", path, body)
		}
	}
	wantMetrics(t, counts, `apiserver_request_aborts_total{group="",resource="",scope="",subresource="",verb="GET",version=""} 1`)
}

// wantMetrics fails unless /metrics has the lines.
func wantMetrics(t *testing.T, counts *metrics.APIServer, lines ...string) {
	t.Helper()
	w := httptest.NewRecorder()
	counts.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range lines {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("/metrics is without %s", want)
		}
	}
}

// TestMethodsDoNotFillMemory: what clients call their methods is not kept.
func TestMethodsDoNotFillMemory(t *testing.T) {
	counts := metrics.NewAPIServer(nil)
	s := apiservertest.Start(t, func(c *apiserver.Config) { c.Registry.Metrics = counts })
	for _, method := range []string{"MADEUP", "M2", "M3", "M4"} {
		s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, "/version", nil))
	}
	if kept := counts.Requests.Kept(); kept != 1 {
		t.Errorf("%d series for one kind of request", kept)
	}
}
