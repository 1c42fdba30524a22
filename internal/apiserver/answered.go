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
	// Elsewhere is the time that the request spent in queues and webhooks.
	Elsewhere time.Duration
	// Dropped reports that the server refused the request to protect itself.
	Dropped bool
	// Deprecated reports that the served version is deprecated. Removed is the
	// release that removes it, as 1.40, or "" if unknown.
	Deprecated bool
	Removed    string
	// Known reports that the resource and subresource in Info exist.
	Known bool
}

// Observer is called for every answered request. It must not retain Info.
type Observer func(Answered)

// finish turns a panic into an answer and reports the request.
func (q *request) finish() {
	q.held.releaseMemory()
	reason := recover()
	if reason != nil {
		q.panicked(reason)
	}
	if log := klog.FromContext(q.call.Context).V(3); log.Enabled() {
		name := ""
		if q.call.User != nil {
			name = q.call.User.GetName()
		}
		about := []any{"verb", q.call.Info.Verb, "uri", q.http.RequestURI, "code", q.response.code, "latency", q.server.registry.Clock.Since(q.call.Now), "user", name, "userAgent", q.http.UserAgent()}
		if flow := &q.held.seat.flow; flow.Schema() != "" {
			about = append(about, "apf_fs", flow.Schema(), "apf_pl", flow.Level(), "apf_iseats", flow.Seats(), "apf_queued", flow.Waited)
		}
		log.Info("HTTP", about...)
	}
	if q.server.observe != nil {
		q.server.observe(q.answered())
	}
	if q.span != nil {
		q.endSpan()
	}
	if reason != nil && q.response.truncated {
		panic(http.ErrAbortHandler) // aborts the connection or stream, so that the client notices the truncated answer
	}
}

// errPanicked is upstream's plain-text answer.
const errPanicked = "This request caused apiserver to panic. Look in the logs for details."

// panicked logs and counts a panic, and answers with an error unless the answer
// has begun. Deferred calls have released what the request held.
func (q *request) panicked(reason any) {
	counted := counted(new(q.answered()))
	if reason == http.ErrAbortHandler { //nolint:errorlint // the sentinel of net/http
		q.response.truncated = true
		q.server.registry.Metrics.Requests.Aborted(counted)
		return
	}
	q.server.registry.Metrics.Requests.Panicked(counted)
	klog.FromContext(q.call.Context).Error(fmt.Errorf("%v", reason), "Panic while serving a request", "method", q.http.Method, "uri", q.http.RequestURI,
		"auditID", q.response.w.Header().Get("Audit-Id"), "stack", string(debug.Stack()))
	if q.response.truncated = q.response.code != 0; !q.response.truncated {
		q.response.code = http.StatusInternalServerError
		http.Error(q.response.w, errPanicked, q.response.code)
	}
}

func (q *request) answered() Answered {
	a := Answered{
		Info: &q.call.Info, Started: q.call.Now, Code: q.response.code, Size: q.response.size, Read: q.body.received, Dropped: q.response.dropped,
		Known:  q.call.Endpoint != nil && (q.call.Info.Subresource == "" || q.call.Subresource != nil),
		DryRun: strings.Contains(q.http.URL.RawQuery, "dryRun="),
		Apply:  q.call.Info.Verb == "patch" && applies(q.http),
	}
	a.Elsewhere = q.held.seat.flow.Waited
	if q.call.WebhookLatency != nil {
		a.Elsewhere += q.call.WebhookLatency.MutatingWebhookTracker.GetLatency() + q.call.WebhookLatency.ValidatingWebhookTracker.GetLatency()
	}
	if a.Known && q.call.Endpoint.Version.Deprecated != "" {
		a.Deprecated = true
		_, after, _ := strings.Cut(q.call.Endpoint.Version.Deprecated, "unavailable in v")
		a.Removed, _, _ = strings.Cut(after, "+")
	}
	return a
}

// applies reports whether a patch is a server-side apply.
func applies(r *http.Request) bool {
	contentType := r.Header["Content-Type"]
	return len(contentType) > 0 && strings.HasPrefix(contentType[0], "application/apply-patch+")
}
