package apiserver

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
)

// Answered describes a request that has been answered.
type Answered struct {
	Info    *apirequest.RequestInfo
	Started time.Time
	Code    int
	Size    int // of the response body in bytes
	Read    int // bytes of the request's body
	DryRun  bool
	Apply   bool
	// Elsewhere is how long the request waited for its turn and users' webhooks took.
	Elsewhere time.Duration
	// Dropped says that the server refused the request to protect itself.
	Dropped bool
	// Deprecated says that the version is, and Removed which release comes
	// without it, as 1.40; "" is unknown.
	Deprecated bool
	Removed    string
	// Known says that the resource and subresource in Info exist.
	Known bool
}

// Observer is told of every answered request. It must not keep Info.
type Observer func(Answered)

// finish turns a panic into an answer and reports the request.
func (q *request) finish() {
	q.held.Release()
	q.kept.Release()
	reason := recover()
	if reason != nil {
		q.panicked(reason)
	}
	if log := klog.FromContext(q.Context).V(3); log.Enabled() {
		name := ""
		if q.User != nil {
			name = q.User.GetName()
		}
		about := []any{"verb", q.Info.Verb, "uri", q.http.RequestURI, "code", q.code, "latency", q.server.Clock.Since(q.Now), "user", name, "userAgent", q.http.UserAgent()}
		if flow := &q.seat.flow; flow.Schema() != "" {
			about = append(about, "apf_fs", flow.Schema(), "apf_pl", flow.Level(), "apf_iseats", flow.Seats(), "apf_queued", flow.Waited)
		}
		log.Info("HTTP", about...)
	}
	if q.server.Observe != nil {
		q.server.Observe(q.answered())
	}
	if reason != nil && q.cut {
		panic(http.ErrAbortHandler) // the connection, or the stream, ends: the client knows that the answer is not whole
	}
}

// errPanicked is what upstream answers, not as a Status.
const errPanicked = "This request caused apiserver to panic. Look in the logs for details."

// panicked answers, if that is still possible, and logs and counts the panic.
// What the request held has been given back on the way here by those who took
// it.
func (q *request) panicked(reason any) {
	counted := counted(new(q.answered()))
	if reason == http.ErrAbortHandler { //nolint:errorlint // the sentinel of net/http
		q.cut = true
		q.server.Metrics.Requests.Aborted(counted)
		return
	}
	q.server.Metrics.Requests.Panicked(counted)
	klog.FromContext(q.Context).Error(fmt.Errorf("%v", reason), "Panic while serving a request", "method", q.http.Method, "uri", q.http.RequestURI,
		"auditID", q.w.Header().Get("Audit-Id"), "stack", string(debug.Stack()))
	if q.cut = q.code != 0; !q.cut {
		q.code = http.StatusInternalServerError
		http.Error(q.w, errPanicked, q.code)
	}
}

func (q *request) answered() Answered {
	a := Answered{
		Info: &q.Info, Started: q.Now, Code: q.code, Size: q.size, Read: q.body.received, Dropped: q.dropped,
		Known:  q.Endpoint != nil && (q.Info.Subresource == "" || q.Subresource != nil),
		DryRun: strings.Contains(q.http.URL.RawQuery, "dryRun="),
		Apply:  q.Info.Verb == "patch" && applies(q.http),
	}
	a.Elsewhere = q.seat.flow.Waited
	if q.WebhookLatency != nil {
		a.Elsewhere += q.WebhookLatency.MutatingWebhookTracker.GetLatency() + q.WebhookLatency.ValidatingWebhookTracker.GetLatency()
	}
	if a.Known && q.Endpoint.Version.Deprecated != "" {
		a.Deprecated = true
		_, after, _ := strings.Cut(q.Endpoint.Version.Deprecated, "unavailable in v")
		a.Removed, _, _ = strings.Cut(after, "+")
	}
	return a
}

// applies says that a patch is one that applies.
func applies(r *http.Request) bool {
	contentType := r.Header["Content-Type"]
	return len(contentType) > 0 && strings.HasPrefix(contentType[0], "application/apply-patch+")
}
