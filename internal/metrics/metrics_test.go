package metrics_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/metrics"
)

// page returns what a scrape of the registry reads.
func page(r *metrics.Registry) string {
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func want(t *testing.T, page string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(page, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, "{")
			t.Errorf("missing: %s\nthere is:\n%s", line, grep(page, name))
		}
	}
}

func grep(page, name string) string {
	var found []string
	for line := range strings.SplitSeq(page, "\n") {
		if strings.HasPrefix(line, name) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "\n")
}

// A request that is counted while its resource is forgotten does not hide later ones.
func TestForgetWhileCounting(t *testing.T) {
	m := metrics.NewAPIServer(nil)
	count := func() {
		m.Requests.Observe(metrics.Request{Verb: "get", Group: "example.com", Version: "v1", Resource: "things", IsResource: true, Code: 200}, metrics.Answer{})
	}
	for range 200 {
		begun, stop := make(chan struct{}), make(chan struct{})
		var counting sync.WaitGroup
		counting.Go(func() {
			count()
			close(begun)
			for {
				select {
				case <-stop:
					return
				default:
					count()
				}
			}
		})
		<-begun
		m.Forget(schema.GroupResource{Group: "example.com", Resource: "things"})
		close(stop)
		counting.Wait()
		if count(); !strings.Contains(page(m.Registry), `resource="things"`) {
			t.Fatal("a request is not shown")
		}
	}
}

// A resource that is no longer served leaves no series behind.
func TestForget(t *testing.T) {
	m := metrics.NewAPIServer(nil)
	for _, group := range []string{"gone.example.com", "kept.example.com"} {
		r := metrics.Request{Verb: "list", Group: group, Version: "v1", Resource: "things", IsResource: true, Code: 429}
		m.Requests.Observe(r, metrics.Answer{Written: 1, Dropped: true, Deprecated: true})
		r.Verb = "watch"
		m.Requests.Begin(r)()
		m.Watches.Of(group, "v1", "things").Sent(1)
		m.Watches.Listed(r, time.Second)
		m.Store.Operation("list", group, "things").Observe(time.Second, nil)
	}
	m.Forget(schema.GroupResource{Group: "gone.example.com", Resource: "things"})
	for line := range strings.Lines(page(m.Registry)) {
		if strings.Contains(line, "gone.example.com") {
			t.Errorf("left: %s", line)
		}
	}
	if kept := m.Requests.Kept(); kept != 1 {
		t.Errorf("%d kinds of requests are counted, want the one of the other group", kept)
	}
	want(t, page(m.Registry), `apiserver_watch_events_total{group="kept.example.com",resource="things",version="v1"} 1`)
}

func TestRequests(t *testing.T) {
	m := metrics.NewAPIServer(nil)
	pods := metrics.Request{Version: "v1", Resource: "pods", Namespaced: true, IsResource: true, Code: 200}
	with := func(change func(*metrics.Request)) metrics.Request {
		r := pods
		change(&r)
		return r
	}
	m.Requests.Observe(with(func(r *metrics.Request) { r.Verb = "list" }), metrics.Answer{Latency: 70 * time.Millisecond, Written: 5000})
	m.Requests.Observe(with(func(r *metrics.Request) { r.Verb, r.Code = "create", 201 }), metrics.Answer{
		Latency: 90 * time.Millisecond, Elsewhere: 80 * time.Millisecond, Read: 60_000,
	})
	m.Requests.Observe(with(func(r *metrics.Request) { r.Verb, r.Named, r.Apply, r.DryRun = "patch", true, true, true }), metrics.Answer{})
	m.Requests.Observe(with(func(r *metrics.Request) { r.Verb, r.Named, r.Subresource = "get", true, "log" }), metrics.Answer{})
	m.Requests.Observe(with(func(r *metrics.Request) { r.Verb, r.Code = "list", 429 }), metrics.Answer{Dropped: true})
	m.Requests.Observe(metrics.Request{Verb: "get", Subresource: "/livez", Code: 200}, metrics.Answer{})
	m.Requests.Observe(with(func(r *metrics.Request) { r.Verb, r.Resource = "get", "endpoints" }), metrics.Answer{Deprecated: true, Removed: "1.40"})
	end := m.Requests.Begin(with(func(r *metrics.Request) { r.Verb = "watch" }))
	p := page(m.Registry)
	end()
	want(t, p,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 1`,
		`apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 1`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="All",group="",resource="pods",scope="resource",subresource="",verb="APPLY",version="v1"} 1`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="log",verb="CONNECT",version="v1"} 1`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="",scope="",subresource="/livez",verb="GET",version=""} 1`,
		`apiserver_request_duration_seconds_bucket{component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1",le="0.05"} 0`,
		`apiserver_request_sli_duration_seconds_bucket{component="apiserver",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1",le="0.05"} 1`,
		`apiserver_request_body_size_bytes_bucket{group="",resource="pods",verb="create",le="150000"} 1`,
		`apiserver_response_sizes_bucket{component="apiserver",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1",le="10000"} 2`,
		`apiserver_request_terminations_total{code="429",component="apiserver",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 1`,
		`apiserver_requested_deprecated_apis{group="",removed_release="1.40",resource="endpoints",subresource="",version="v1"} 1`,
		`apiserver_longrunning_requests{component="apiserver",group="",resource="pods",scope="namespace",subresource="",verb="WATCH",version="v1"} 1`,
	)
	if strings.Contains(p, `apiserver_request_sli_duration_seconds_count{component="apiserver",group="",resource="pods",scope="resource",subresource="",verb="APPLY"`) {
		t.Error("a dry run counts for the service level")
	}
	want(t, page(m.Registry), `apiserver_longrunning_requests{component="apiserver",group="",resource="pods",scope="namespace",subresource="",verb="WATCH",version="v1"} 0`)
}

func TestAccessAndAdmission(t *testing.T) {
	m := metrics.NewAPIServer(nil)
	m.Access.Authenticated(metrics.Success, "jane@example.com", time.Millisecond)
	m.Access.Authenticated(metrics.Success, "system:node:a", time.Millisecond)
	m.Access.Authenticated(metrics.Failed, "", time.Millisecond)
	m.Access.Authorized(metrics.Denied, time.Millisecond)
	m.Access.Certificate(time.Hour)
	m.Admission.Step(metrics.Pass{Validate: true, Operation: "CREATE", Rejected: true}, 30*time.Millisecond)
	m.Admission.Plugin("ResourceQuota").Observe(metrics.Pass{Operation: "UPDATE"}, time.Millisecond)
	m.Store.Operation("create", "apps", "deployments").Observe(time.Millisecond, errors.New("away"))
	m.Watches.Of("", "v1", "pods").Sent(1500)
	want(t, page(m.Registry),
		`authenticated_user_requests{username="email_id"} 1`,
		`authenticated_user_requests{username="other"} 1`,
		`authentication_attempts{result="error"} 1`,
		`authorization_attempts_total{result="denied"} 1`,
		`apiserver_client_certificate_expiration_seconds_bucket{le="3600"} 1`,
		`apiserver_admission_step_admission_duration_seconds_bucket{operation="CREATE",rejected="true",type="validate",le="0.1"} 1`,
		`apiserver_admission_controller_admission_duration_seconds_count{name="ResourceQuota",operation="UPDATE",rejected="false",type="admit"} 1`,
		`etcd_requests_total{group="apps",operation="create",resource="deployments"} 1`,
		`etcd_request_errors_total{group="apps",operation="create",resource="deployments"} 1`,
		`apiserver_watch_events_total{group="",resource="pods",version="v1"} 1`,
		`apiserver_watch_events_sizes_bucket{group="",resource="pods",version="v1",le="2048"} 1`,
	)
}

func TestQueues(t *testing.T) {
	r := metrics.NewRegistry(nil)
	queues := metrics.NewQueues(r)
	q := metrics.NewQueue("job", func() int { return 3 })
	q.Added()
	q.Retried()
	q.Taken(time.Millisecond)
	hide := queues.Show(q)
	end := q.Work()
	p := page(r)
	want(t, p, `workqueue_depth{name="job"} 3`, `workqueue_adds_total{name="job"} 1`, `workqueue_retries_total{name="job"} 1`, `workqueue_queue_duration_seconds_count{name="job"} 1`)
	if strings.Contains(p, `workqueue_longest_running_processor_seconds{name="job"} 0`+"\n") {
		t.Error("work under way is not shown")
	}
	end()
	want(t, page(r), `workqueue_unfinished_work_seconds{name="job"} 0`, `workqueue_work_duration_seconds_count{name="job"} 1`)
	hide()
	if strings.Contains(page(r), "workqueue_depth{") {
		t.Error("a queue that has ended is shown")
	}
}

func TestEveryComponentShowsWhatItIs(t *testing.T) {
	p := page(metrics.NewRegistry(nil))
	for _, name := range []string{"kubernetes_build_info{", "kubernetes_feature_enabled{", "go_goroutines ", "process_start_time_seconds "} {
		if !strings.Contains(p, "\n"+name) {
			t.Errorf("missing: %s", name)
		}
	}
}

func TestFeatures(t *testing.T) {
	features, err := feature.Parse([]string{"AllBeta=true", "WatchList=false"})
	if err != nil {
		t.Fatal(err)
	}
	want(t, page(metrics.NewRegistry(features)),
		`kubernetes_feature_enabled{name="AllBeta",stage="BETA"} 1`,
		`kubernetes_feature_enabled{name="GenericWorkload",stage="BETA"} 1`,
		`kubernetes_feature_enabled{name="JobManagedBy",stage=""} 1`,
		`kubernetes_feature_enabled{name="KMSv1",stage="DEPRECATED"} 0`,
		`kubernetes_feature_enabled{name="WatchList",stage="BETA"} 0`,
	)
}

func TestChecks(t *testing.T) {
	c := metrics.NewChecks()
	c.Observe("readyz", "etcd", nil)
	c.Observe("readyz", "etcd", errors.New("away"))
	w := httptest.NewRecorder()
	c.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics/slis", nil))
	want(t, w.Body.String(), `kubernetes_healthcheck{name="etcd",type="readyz"} 0`, `kubernetes_healthchecks_total{name="etcd",status="success",type="readyz"} 1`)
}

func BenchmarkObserve(b *testing.B) {
	m := metrics.NewAPIServer(nil)
	r := metrics.Request{Verb: "get", Version: "v1", Resource: "pods", Namespaced: true, Named: true, IsResource: true, Code: 200}
	b.ReportAllocs()
	for b.Loop() {
		m.Requests.Observe(r, metrics.Answer{Latency: time.Millisecond, Written: 1000})
	}
}

func BenchmarkAccess(b *testing.B) {
	m := metrics.NewAPIServer(nil)
	b.ReportAllocs()
	for b.Loop() {
		m.Access.Authenticated(metrics.Success, "kubernetes-admin", time.Microsecond)
		m.Access.Authorized(metrics.Allowed, time.Microsecond)
	}
}
