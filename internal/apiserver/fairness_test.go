package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/apiserver/fairness"
	"github.com/coracle-io/coracle/internal/apiserver/flowschemas"
	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/feature"
)

// fairServer is a server of 20 seats that authorizes everything. A GET
// of /slow lasts until it receives from slow.
type fairServer struct {
	*apiservertest.Server
	t     *testing.T
	admin *client.Client
	begun chan string // the users of requests of /slow that have their seats, in order
	slow  chan struct{}
}

func startFair(t *testing.T, configure ...func(*apiserver.Config)) *fairServer {
	s := &fairServer{t: t, begun: make(chan string, 1000), slow: make(chan struct{})}
	s.Server = apiservertest.StartInProcess(t, everybody, func(c *apiserver.Config) {
		c.Limits.PriorityAndFairness, c.Limits.MaxInFlight, c.Limits.MaxMutatingInFlight = true, 20, 0
		c.Handlers.Paths = map[string]http.Handler{"/slow": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			u, _ := apirequest.UserFrom(r.Context())
			s.begun <- u.GetName()
			select {
			case <-s.slow:
			case <-r.Context().Done():
			}
		})}
		for _, change := range configure {
			change(c)
		}
	})
	provider, err := client.NewInProcess(s.Handler(), s.Cache, apirequest.WithUser)
	if err != nil {
		t.Fatal(err)
	}
	if s.admin, err = provider.As("admin", user.SystemPrivilegedGroup); err != nil {
		t.Fatal(err)
	}
	return s
}

// level makes a level of 5 shares, as many as catch-all has, and a schema that
// sends the users to it.
func (s *fairServer) level(name string, response flowcontrolv1.LimitResponse, users ...string) (schemaUID, levelUID string) {
	s.t.Helper()
	flows := s.admin.Kubernetes.FlowcontrolV1()
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
	(&flowschemas.Watcher{Cache: s.Cache, Classify: s.Fairness().Configure}).Notify()
	return string(schema.UID), string(level.UID)
}

// fairAnswer is the HTTP response that a client received.
type fairAnswer struct {
	code   int
	header http.Header
	body   string
}

func (s *fairServer) get(user, path string) fairAnswer {
	w := httptest.NewRecorder()
	s.serve(s.t.Context(), w, user, path)
	return fairAnswer{w.Code, w.Header(), w.Body.String()}
}

func (s *fairServer) serve(ctx context.Context, w http.ResponseWriter, user, path string) {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	r.Header.Set("X-Test-User", user)
	s.Handler().ServeHTTP(w, r)
}

// hold sends as many requests of a user as there are seats to take. They end when
// s.slow allows it. done receives the code of each answer.
func (s *fairServer) hold(user string, seats int) (done chan int) {
	done = make(chan int, seats)
	for range seats {
		go func() { done <- s.get(user, "/slow").code }()
	}
	return done
}

// row returns the line of a dump that begins with a name.
func (s *fairServer) row(dump, name string) string {
	for line := range strings.Lines(s.get("admin", fairness.DumpPath+dump).body) {
		if strings.HasPrefix(line, name+",") {
			return strings.Join(strings.Fields(strings.ReplaceAll(line, ",", " ")), " ")
		}
	}
	return ""
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

// A user that takes all seats of one level is refused more of them, and no other
// user is.
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
		t.Errorf("%+v, want a Retry-After", refused)
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

// The requests of a flow that has few of them do not wait until all requests of
// another flow at the same level are done.
func TestFlowsDoNotDrownEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startFair(t)
		s.level("shared", flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeQueue,
			Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 1024, HandSize: 2, QueueLengthLimit: 100}}, "elephant", "mouse")
		elephant := s.hold("elephant", 60)
		synctest.Wait()
		mouse := s.hold("mouse", 1)
		synctest.Wait()
		if waiting := strings.Fields(s.row("dump_priority_levels", "shared"))[4]; waiting != "51" {
			t.Fatalf("%s requests wait, want 51", waiting)
		}
		for range 10 {
			<-s.begun
		}
		for ended := 1; ; ended++ {
			time.Sleep(10 * time.Millisecond) // the seats are used
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
	})
}

// A watch releases its seat once it has begun, and so does a watch that fails.
func TestWatchesHoldNoSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startFair(t)
		s.level("low", flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}, "elephant")
		ctx, cancel := context.WithCancel(t.Context())
		var watches sync.WaitGroup
		defer watches.Wait()
		defer cancel()
		for _, path := range []string{"/api/v1/pods?watch=true", "/api/v1/pods?watch=true&resourceVersion=1", "/api/v1/pods?watch=true&resourceVersion=nonsense", "/api/v1/nowhere?watch=true"} {
			for range 12 {
				w := httptest.NewRecorder()
				watches.Go(func() { s.serve(ctx, w, "elephant", path) })
				synctest.Wait()
				if w.Code == http.StatusTooManyRequests {
					t.Fatalf("%s: too many requests", path)
				}
				if seats := strings.Fields(s.row("dump_priority_levels", "low"))[5]; seats != "0" {
					t.Fatalf("%s: %s seats are taken", path, seats)
				}
			}
		}
	})
}

// A list takes seats for the size of what it returns, or for the number of objects if
// SizeBasedListCostEstimate is off.
func TestSeatsOfLists(t *testing.T) {
	for _, test := range []struct {
		gates                          string
		many, large, few, ofOther, one int // seats
	}{
		{"", 1, 2, 1, 1, 1},
		{"SizeBasedListCostEstimate=false", 2, 1, 1, 1, 1},
	} {
		features, err := feature.Parse([]string{test.gates})
		if err != nil {
			t.Fatal(err)
		}
		s := startFair(t, func(c *apiserver.Config) { c.Registry.Features = features })
		s.level("low", flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}, "jane") // at most two seats for each request
		for n := range 101 {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("s", n)}}
			if _, err := s.admin.Kubernetes.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for n := range 3 {
			large := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("c", n)}, Data: map[string]string{"a": strings.Repeat("a", 60_000)}}
			if _, err := s.admin.Kubernetes.CoreV1().ConfigMaps("default").Create(t.Context(), large, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Cache.Fresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		total := 0
		for _, list := range []struct {
			path  string
			seats int
		}{
			{"/api/v1/secrets", test.many}, {"/api/v1/configmaps", test.large}, {"/api/v1/configmaps?limit=1", test.few},
			{"/api/v1/namespaces/other/secrets", test.ofOther}, {"/api/v1/namespaces/default/configmaps/c0", test.one},
		} {
			if got := s.get("jane", list.path); got.code != http.StatusOK {
				t.Errorf("%q: %s: %+v", test.gates, list.path, got)
			}
			total += list.seats
			want := fmt.Sprintf("apiserver_flowcontrol_work_estimated_seats_sum{flow_schema=\"low\",priority_level=\"low\"} %d\n", total)
			if !strings.Contains(s.get("admin", "/metrics").body, want) {
				t.Errorf("%q: after %s the metrics lack %s", test.gates, list.path, want)
			}
		}
	}
}

func TestPlainLimits(t *testing.T) {
	begun, slow := make(chan struct{}, 10), make(chan struct{})
	s := apiservertest.StartInProcess(t, everybody, func(c *apiserver.Config) {
		c.Limits.MaxInFlight, c.Limits.MaxMutatingInFlight = 1, 0
		c.Handlers.Paths = map[string]http.Handler{"/slow": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			begun <- struct{}{}
			<-slow
		})}
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
	for _, on := range []bool{false, true} {
		for _, user := range []string{"admin", "jane"} {
			b.Run(fmt.Sprintf("on=%v/%s", on, user), func(b *testing.B) {
				s := apiservertest.Start(b, everybody, func(c *apiserver.Config) { c.Limits.PriorityAndFairness = on })
				if on {
					s.Fairness().Configure(bootstrap.SuggestedFlowSchemas, bootstrap.SuggestedPriorityLevelConfigurations)
				}
				b.ReportAllocs()
				for b.Loop() {
					serve(b, s.Handler(), http.StatusOK, "GET", "/api/v1/namespaces?limit=1&resourceVersion=0", nil, "X-Test-User", user)
				}
			})
		}
	}
}
