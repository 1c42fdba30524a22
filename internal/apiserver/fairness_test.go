package apiserver_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/apiserver/fairness"
	"github.com/coracle-io/coracle/internal/apiserver/flowschemas"
	"github.com/coracle-io/coracle/internal/metrics"
)

// fairServer is a server of 20 seats where everybody may do everything. A GET
// of /slow lasts until release is called.
type fairServer struct {
	*apiservertest.Server
	t          *testing.T
	controller *fairness.Controller
	begun      chan string // the users of requests of /slow that have their seats, in order
	slow       chan struct{}
}

func startFair(t *testing.T) *fairServer {
	s := &fairServer{t: t, begun: make(chan string, 1000), slow: make(chan struct{})}
	counts := metrics.NewAPIServer(nil)
	s.controller = fairness.New(fairness.Config{Seats: 20, Patience: time.Minute, Clock: clock.RealClock{}, Metrics: counts.Fairness})
	s.Server = apiservertest.Start(t, func(c *apiserver.Config) {
		c.Fairness, c.Metrics = s.controller, counts
		c.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		})
		c.Handlers = map[string]http.Handler{"/slow": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			u, _ := apirequest.UserFrom(r.Context())
			s.begun <- u.GetName()
			select {
			case <-s.slow:
			case <-r.Context().Done():
			}
		})}
	})
	return s
}

// level makes a level of 5 shares, as many as catch-all has, and a schema that
// sends the users to it.
func (s *fairServer) level(name string, response flowcontrolv1.LimitResponse, users ...string) (schemaUID, levelUID string) {
	s.t.Helper()
	flows := kubernetes.NewForConfigOrDie(s.Config).FlowcontrolV1()
	shares := int32(5)
	level, err := flows.PriorityLevelConfigurations().Create(s.t.Context(), &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: &shares, LimitResponse: response, BorrowingLimitPercent: new(int32)}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	var subjects []flowcontrolv1.Subject
	for _, u := range users {
		subjects = append(subjects, flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: u}})
	}
	all := []string{"*"}
	schema, err := flows.FlowSchemas().Create(s.t.Context(), &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: name}, MatchingPrecedence: 1000,
			DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects:         subjects,
				ResourceRules:    []flowcontrolv1.ResourcePolicyRule{{Verbs: all, APIGroups: all, Resources: all, Namespaces: all, ClusterScope: true}},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.Cache.Fresh(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	(&flowschemas.Watcher{Cache: s.Cache, Classify: s.controller.Configure}).Tell()
	return string(schema.UID), string(level.UID)
}

// fairAnswer is what a client saw.
type fairAnswer struct {
	code   int
	header http.Header
	body   string
}

func (s *fairServer) get(user, path string) fairAnswer {
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		s.t.Error(err)
		return fairAnswer{}
	}
	r.Header.Set("X-Test-User", user)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Error(err)
		return fairAnswer{}
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	return fairAnswer{response.StatusCode, response.Header, string(body)}
}

// hold has a user take so many seats until the test ends; done tells the code
// of each answer.
func (s *fairServer) hold(user string, seats int) (done chan int) {
	done = make(chan int, seats)
	for range seats {
		go func() { done <- s.get(user, "/slow").code }()
	}
	return done
}

// row is the line of a dump that begins with a name.
func (s *fairServer) row(dump, name string) string {
	for line := range strings.Lines(s.get("admin", fairness.DumpPath+dump).body) {
		if strings.HasPrefix(line, name+",") {
			return strings.Join(strings.Fields(strings.ReplaceAll(line, ",", " ")), " ")
		}
	}
	return ""
}

func (s *fairServer) eventually(what string, ok func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			s.t.Fatal("not within half a minute: ", what)
		}
	}
}

func TestEachResponseSaysHowItWasClassified(t *testing.T) {
	s := startFair(t)
	schema, level := s.level("shop", flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}, "jane")
	for _, path := range []string{"/version", "/api/v1/pods", "/api/v1/namespaces/default/pods/missing", "/nowhere"} {
		got := s.get("jane", path).header
		if got.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID) != schema || got.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID) != level {
			t.Errorf("%s: %v, want the flow schema %s and the level %s", path, got, schema, level)
		}
		for _, other := range []string{"joe", "admin"} {
			got := s.get(other, path).header
			if _, ok := got["X-Kubernetes-Pf-Flowschema-Uid"]; !ok || got.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID) == schema {
				t.Errorf("%s of %s: %v, want another flow schema", path, other, got)
			}
		}
	}
}

// Who takes all seats of one level is refused more of them, and nobody else is.
func TestLevelsDoNotDrownEachOther(t *testing.T) {
	s := startFair(t)
	schema, _ := s.level("low", flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}, "elephant")
	held := s.hold("elephant", 10)
	for range 10 {
		<-s.begun
	}
	refused := s.get("elephant", "/version")
	if refused.code != http.StatusTooManyRequests || refused.header.Get("Retry-After") != "1" ||
		refused.body != "Too many requests, please try again later.\n" || refused.header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID) != schema {
		t.Errorf("%+v, want to be told to come again", refused)
	}
	for _, other := range []string{"mouse", "admin"} {
		if got := s.get(other, "/version"); got.code != http.StatusOK {
			t.Errorf("%s: %+v", other, got)
		}
	}
	if got, want := s.row("dump_priority_levels", "low"), "low 0 false false 0 10 10 1 0 0"; got != want {
		t.Errorf("the dump says %q, want %q", got, want)
	}
	if got := s.row("dump_requests", "low"); !strings.HasPrefix(got, "low low -1 -1 ") {
		t.Errorf("the dump says %q of a request", got)
	}
	counted := s.get("admin", "/metrics").body
	for _, want := range []string{
		`apiserver_flowcontrol_rejected_requests_total{flow_schema="low",priority_level="low",reason="concurrency-limit"} 1`,
		`apiserver_flowcontrol_current_executing_requests{flow_schema="low",priority_level="low"} 10`,
		`apiserver_flowcontrol_current_executing_seats{flow_schema="low",priority_level="low"} 10`,
		`apiserver_flowcontrol_dispatched_requests_total{flow_schema="low",priority_level="low"} 10`,
		`apiserver_flowcontrol_nominal_limit_seats{priority_level="low"} 10`,
		`apiserver_flowcontrol_current_limit_seats{priority_level="low"} 10`,
	} {
		if !strings.Contains(counted, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	close(s.slow)
	for range 10 {
		if code := <-held; code != http.StatusOK {
			t.Errorf("a request that had its seat was answered with %d", code)
		}
	}
}

// Of two flows at one level, the one that has few requests does not wait until
// the other's are done.
func TestFlowsDoNotDrownEachOther(t *testing.T) {
	s := startFair(t)
	s.level("shared", flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeQueue,
		Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 1024, HandSize: 2, QueueLengthLimit: 100}}, "elephant", "mouse")
	waiting := func(n int) func() bool {
		return func() bool { return strings.Fields(s.row("dump_priority_levels", "shared"))[4] == fmt.Sprint(n) }
	}
	elephant := s.hold("elephant", 60)
	s.eventually("50 requests wait", waiting(50))
	mouse := s.hold("mouse", 1)
	s.eventually("the mouse waits, too", waiting(51))
	for range 10 {
		<-s.begun
	}
	for ended := 1; ; ended++ {
		s.slow <- struct{}{}
		if <-s.begun == "mouse" {
			break
		}
		if ended == 5 {
			t.Fatal("five requests of the elephant came before the mouse's one")
		}
	}
	close(s.slow)
	for range 60 {
		if code := <-elephant; code != http.StatusOK {
			t.Errorf("a request of the elephant was answered with %d", code)
		}
	}
	<-mouse
}

// A watch gives its seat back once it has begun, and so do those that never do.
func TestWatchesHoldNoSeats(t *testing.T) {
	s := startFair(t)
	s.level("low", flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}, "elephant")
	for _, path := range []string{"/api/v1/pods?watch=true", "/api/v1/pods?watch=true&resourceVersion=1", "/api/v1/pods?watch=true&resourceVersion=nonsense", "/api/v1/nowhere?watch=true"} {
		for range 12 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Test-User", "elephant")
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			if response.StatusCode == http.StatusTooManyRequests {
				t.Fatalf("%s: too many requests", path)
			}
			s.eventually("the seat is free", func() bool { return strings.Fields(s.row("dump_priority_levels", "low"))[5] == "0" })
		}
	}
}

func TestPlainLimits(t *testing.T) {
	begun, slow := make(chan struct{}, 10), make(chan struct{})
	s := apiservertest.Start(t, func(c *apiserver.Config) {
		c.MaxInFlight, c.MaxMutatingInFlight = 1, -1
		c.Handlers = map[string]http.Handler{"/slow": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			begun <- struct{}{}
			<-slow
		})}
		c.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		})
	})
	f := &fairServer{Server: s, t: t}
	done := f.hold("jane", 1)
	<-begun
	if got := f.get("joe", "/version"); got.code != http.StatusTooManyRequests || got.header.Get("Retry-After") != "1" {
		t.Errorf("%+v, want 429", got)
	}
	if got := f.get("admin", "/version"); got.code != http.StatusOK {
		t.Errorf("an administrator was refused: %+v", got)
	}
	close(slow)
	<-done
}

// BenchmarkFairness shows what priority and fairness adds to the cheapest
// request.
func BenchmarkFairness(b *testing.B) {
	everything := func(c *apiserver.Config) {
		c.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		})
	}
	fair := func(c *apiserver.Config) {
		c.Metrics = metrics.NewAPIServer(nil)
		c.Fairness = fairness.New(fairness.Config{Seats: 600, Patience: time.Minute, Clock: clock.RealClock{}, Metrics: c.Metrics.Fairness})
		c.Fairness.Configure(bootstrap.SuggestedFlowSchemas, bootstrap.SuggestedPriorityLevelConfigurations)
	}
	for _, on := range []bool{false, true} {
		for _, user := range []string{"admin", "jane"} {
			b.Run(fmt.Sprintf("on=%v/%s", on, user), func(b *testing.B) {
				s := apiservertest.Start(b, func(c *apiserver.Config) {
					if everything(c); on {
						fair(c)
					}
				})
				b.ReportAllocs()
				for b.Loop() {
					serve(b, s.Handler(), http.StatusOK, "GET", "/api/v1/namespaces?limit=1&resourceVersion=0", nil, "X-Test-User", user)
				}
			})
		}
	}
}
