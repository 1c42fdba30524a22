package apiserver

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/apiserver/audit"
	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/fairness"
	"github.com/coracle-io/coracle/internal/resource"
)

// request is one request on its way through the stages.
type request struct {
	server *Server
	w      http.ResponseWriter
	http   *http.Request
	ctx    context.Context // bounded by the request's timeout
	info   apirequest.RequestInfo
	user   user.Info
	now    time.Time

	turn turn

	endpoint *endpoint
	sub      *resource.Subresource // nil for the object itself

	parsed   url.Values
	warnings warnings
	code     int // of the answer; 0 as long as there is none
	size     int // of the answer's body
	received int // bytes of the request's body
	dropped  bool
	audit    *audit.Request // nil unless requests are recorded
	// recognised is when, after now, the sender was known.
	recognised time.Duration
	// webhooks is how long users' webhooks took; nil if there are none.
	webhooks *apirequest.LatencyTrackers
}

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

// query is the parsed query; it is parsed at most once.
func (q *request) query() url.Values {
	if q.parsed == nil && q.http.URL.RawQuery != "" {
		q.parsed = q.http.URL.Query()
	}
	return q.parsed
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := &request{server: s, w: w, http: r, ctx: r.Context(), now: s.Clock.Now()}
	defer q.finish()
	if r.Method != http.MethodGet {
		growStack(0)
	}
	header := w.Header()
	id := auditID(r)
	header["Audit-Id"] = []string{id}
	header["Cache-Control"] = noCache
	if err := q.run(id); err != nil {
		q.fail(err)
	}
}

var noCache = []string{"no-cache, private"}

// growStack makes room on the stack for a whole write at once. HTTP/2 serves
// each request on a new goroutine, whose stack would otherwise be copied again
// and again while calls go deeper, the last times with much on it. What it
// returns, always 0, keeps the compiler from leaving the room out.
//
//go:noinline
func growStack(at uint8) byte {
	var room [24 << 10]byte
	return room[at]
}

// auditID returns the client's id for the request, or a new random UUID.
func auditID(r *http.Request) string {
	if given := r.Header["Audit-Id"]; len(given) > 0 && given[0] != "" {
		return given[0]
	}
	var id [16]byte
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	var text [36]byte
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}

// finish turns a panic into an answer and reports the request.
func (q *request) finish() {
	if p := recover(); p != nil {
		if p == http.ErrAbortHandler { //nolint:errorlint // the sentinel of net/http
			panic(p)
		}
		log := klog.FromContext(q.ctx)
		log.Error(fmt.Errorf("%v", p), "Panic while serving a request", "method", q.http.Method, "uri", q.http.RequestURI, "stack", string(debug.Stack()))
		if q.code != 0 {
			panic(http.ErrAbortHandler)
		}
		q.fail(apierrors.NewInternalError(fmt.Errorf("this request caused apiserver to panic. Look in the logs for details")))
	}
	if log := klog.FromContext(q.ctx).V(3); log.Enabled() {
		name := ""
		if q.user != nil {
			name = q.user.GetName()
		}
		about := []any{"verb", q.info.Verb, "uri", q.http.RequestURI, "code", q.code, "latency", q.server.Clock.Since(q.now), "user", name, "userAgent", q.http.UserAgent()}
		if flow := &q.turn.flow; flow.Schema() != "" {
			about = append(about, "apf_fs", flow.Schema(), "apf_pl", flow.Level(), "apf_iseats", flow.Seats(), "apf_queued", flow.Waited)
		}
		log.Info("HTTP", about...)
	}
	if q.server.Observe != nil {
		q.server.Observe(q.answered())
	}
}

func (q *request) answered() Answered {
	a := Answered{
		Info: &q.info, Started: q.now, Code: q.code, Size: q.size, Read: q.received, Dropped: q.dropped,
		Known:  q.endpoint != nil && (q.info.Subresource == "" || q.sub != nil),
		DryRun: strings.Contains(q.http.URL.RawQuery, "dryRun="),
		Apply:  q.info.Verb == "patch" && q.applies(),
	}
	a.Elsewhere = q.turn.flow.Waited
	if q.webhooks != nil {
		a.Elsewhere += q.webhooks.MutatingWebhookTracker.GetLatency() + q.webhooks.ValidatingWebhookTracker.GetLatency()
	}
	if a.Known && q.endpoint.version.Deprecated != "" {
		a.Deprecated = true
		_, after, _ := strings.Cut(q.endpoint.version.Deprecated, "unavailable in v")
		a.Removed, _, _ = strings.Cut(after, "+")
	}
	return a
}

// applies says that a patch is one that applies.
func (q *request) applies() bool {
	contentType := q.http.Header["Content-Type"]
	return len(contentType) > 0 && strings.HasPrefix(contentType[0], "application/apply-patch+")
}

func (q *request) run(id string) error {
	info, err := parseInfo(q.http, q.query)
	q.info = info
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	longRunning := isLongRunning(&q.info)
	if q.server.Audit != nil {
		q.beginAudit(id, longRunning)
	}
	if !longRunning {
		cancel, err := q.limitTime()
		if err != nil {
			return q.refused(err)
		}
		defer cancel()
	}
	if err := q.authenticate(); err != nil {
		return q.refused(err)
	}
	if q.audit != nil {
		return q.audited(func() error { return q.serve(longRunning) })
	}
	return q.serve(longRunning)
}

// serve passes the request of a known user through the other stages.
func (q *request) serve(longRunning bool) error {
	if err := q.impersonate(); err != nil {
		return err
	}
	if longRunning {
		defer q.server.beginLongRunning(&q.info)()
	}
	if !longRunning || q.info.Verb == "watch" {
		if err := q.enter(); err != nil {
			return err
		}
		defer q.leave()
	}
	if err := q.authorize(); err != nil {
		return err
	}
	if q.info.IsResourceRequest {
		return q.serveResource()
	}
	return q.serveOther()
}

// limitTime bounds the request by the server's timeout, or by the shorter one
// in its query.
func (q *request) limitTime() (context.CancelFunc, error) {
	timeout := q.server.RequestTimeout
	if strings.Contains(q.http.URL.RawQuery, "timeout=") {
		if given := q.query().Get("timeout"); given != "" {
			d, err := time.ParseDuration(given)
			if err != nil {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid timeout specified in the request URL - %v", err))
			}
			if d > 0 {
				timeout = min(d, timeout)
			}
		}
	}
	var cancel context.CancelFunc
	q.ctx, cancel = context.WithTimeout(q.ctx, timeout)
	return cancel, nil
}

// serveOther answers what is not about a resource.
func (q *request) serveOther() error {
	path := q.http.URL.Path
	switch h := q.server.handlerFor(path); {
	case h != nil:
		q.handOver(h)
	case q.delegate(groupVersionOf(path)):
	case q.server.discovery.Serves(path):
		if q.http.Method != http.MethodGet {
			return errMethodNotAllowed()
		}
		q.handOver(q.server.discovery)
	case path == "/" || path == "/index.html":
		return q.listPaths()
	default:
		return errUnknownPath
	}
	return nil
}

// listPaths answers "/" with everything that can be asked for.
func (q *request) listPaths() error {
	paths := q.server.discovery.Paths()
	for path := range q.server.Handlers {
		if path != fairness.DumpPath { // which upstream does not list
			paths = append(paths, strings.TrimSuffix(path, "/"))
		}
	}
	slices.Sort(paths)
	body, err := json.MarshalIndent(map[string][]string{"paths": slices.Compact(paths)}, "", "  ")
	if err != nil {
		return err
	}
	q.send(http.StatusOK, codec.JSON, body)
	return nil
}

func (s *Server) handlerFor(path string) http.Handler {
	if h := s.Handlers[path]; h != nil {
		return h
	}
	for prefix := path; prefix != ""; {
		i := strings.LastIndexByte(strings.TrimSuffix(prefix, "/"), '/')
		if i < 0 {
			break
		}
		prefix = prefix[:i+1]
		if h := s.Handlers[prefix]; h != nil && prefix != "/" {
			return h
		}
	}
	return nil
}

// errUnknownPath is answered as net/http does, not with a Status.
var errUnknownPath = errors.New("404 page not found")

// serveResource finds the endpoint and calls its verb.
func (q *request) serveResource() error {
	table := q.server.routes.Load()
	gv := schema.GroupVersion{Group: q.info.APIGroup, Version: q.info.APIVersion}
	if q.delegate(gv) {
		return nil
	}
	q.endpoint = table.find(gv, q.info.Resource)
	if q.endpoint == nil || !inScope(q.endpoint.resource, &q.info) {
		if table.serves(gv) {
			return errNoSuchResource()
		}
		return errUnknownPath
	}
	if q.endpoint.version.Deprecated != "" {
		q.warnings.AddWarning("", q.endpoint.version.Deprecated)
	}
	if q.info.Subresource != "" {
		return q.serveSubresource()
	}
	return q.serveVerb()
}

// inScope says whether the path has a namespace where the resource has one. That
// of a namespace itself counts as one.
func inScope(r *resource.Resource, info *apirequest.RequestInfo) bool {
	switch {
	case r.Namespaced:
		return info.Namespace != "" || namespaceOptional(info)
	case r.Group == "" && r.Plural == "namespaces":
		return info.Namespace == "" || info.Namespace == info.Name
	}
	return info.Namespace == ""
}

// namespaceOptional says that a namespaced resource can be asked for without
// a namespace: in all of them.
func namespaceOptional(info *apirequest.RequestInfo) bool {
	return info.Verb == "list" || info.Verb == "watch" || info.Verb == "deletecollection" && info.Name == ""
}

func (q *request) serveVerb() error {
	if q.endpoint.kind == nil {
		return q.serveVirtual()
	}
	verb := q.info.Verb
	if !q.endpoint.allows(verb) || !q.fits() {
		return errMethodNotAllowed()
	}
	switch verb {
	case "get":
		return q.get()
	case "list":
		return q.list()
	case "watch":
		return q.watch()
	case "create":
		return q.create()
	case "update":
		return q.update()
	case "patch":
		return q.patch()
	case "delete":
		return q.delete()
	case "deletecollection":
		return q.deleteCollection()
	}
	return errMethodNotAllowed()
}

// fits says whether the path is one for the verb: of an object, a collection
// or a collection in a namespace. HEAD is for custom resources alone.
func (q *request) fits() bool {
	if q.http.Method == http.MethodHead && q.endpoint.fields != nil {
		return false
	}
	switch q.info.Verb {
	case "create":
		return q.info.Name == ""
	case "update", "patch":
		return q.info.Name != ""
	case "deletecollection":
		return !q.endpoint.resource.Namespaced || q.info.Namespace != ""
	}
	return true
}

// admissionContext carries what admission plugins look for in a context.
func (q *request) admissionContext() context.Context {
	ctx := apirequest.WithRequestInfo(q.ctx, &q.info)
	ctx = apirequest.WithUser(ctx, q.user)
	ctx = apirequest.WithNamespace(ctx, q.info.Namespace)
	if q.server.callsWebhooks() {
		if q.audit == nil {
			ctx = apirequest.WithLatencyTrackers(ctx)
		}
		q.webhooks, _ = apirequest.LatencyTrackersFrom(ctx)
	}
	return warning.WithWarningRecorder(ctx, &q.warnings)
}
