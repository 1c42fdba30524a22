package apiserver

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/apiserver/audit"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/compute"
	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/memory"
)

// request is one request on its way through the stages.
type request struct {
	server *Server
	http   *http.Request
	// call is the client's request to the registry. Its Context is bounded by
	// the request's timeout.
	call     registry.Request
	body     requestBody
	response response
	held     holdings

	parsed url.Values     // of the query, parsed on demand
	audit  *audit.Request // nil if auditing is off
	span   trace.Span     // nil if tracing is off, and until the sender is known
	// authenticatedAfter is the time from the start of the request until the
	// sender was known.
	authenticatedAfter time.Duration
}

// holdings are the server's resources that a request holds until its response
// is sent: a seat, a compute slot and memory.
type holdings struct {
	server *Server
	// sender is the authenticated user; nil until it is known. The request's
	// call.User may be impersonated.
	sender  user.Info
	seat    seat
	slot    *compute.Slot      // of a large request; nil for others
	working memory.Reservation // to serve a large request
	unread  memory.Reservation // counted until the client has read the answer
	head    int                // the memory of the URL and the headers, in bytes
}

// query returns the parsed query. It parses the query at most once.
func (q *request) query() url.Values {
	if q.parsed == nil && q.http.URL.RawQuery != "" {
		q.parsed = q.http.URL.Query()
	}
	return q.parsed
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := &request{
		server: s, http: r,
		call:     registry.Request{Registry: s.registry, Context: r.Context(), Now: s.registry.Clock.Now()},
		response: response{w: w, wire: w, asked: r},
		held:     holdings{server: s, seat: seat{server: s}},
	}
	q.call.Warnings, q.response.held = &q.response.warnings, &q.held
	defer q.finish()
	growStackToAuthenticate(0)
	header := w.Header()
	id := auditID(r)
	header["Audit-Id"] = []string{id}
	header["Cache-Control"] = noCache
	if err := q.run(id); err != nil {
		q.fail(err)
	}
}

// noCache is a variable because every answer shares it, without a copy.
var noCache = []string{"no-cache, private"}

// growStack grows the stack once to the size that a write needs. HTTP/2 serves
// each request on a new goroutine, whose stack would otherwise be copied each
// time that it doubles. Callers pass 0, which the compiler does not know: the
// frame has room for an array that is never made, and so never cleared.
//
//go:noinline
func growStack(at uint8) byte {
	if at == 0 {
		return 0
	}
	var room [24 << 10]byte
	return room[at]
}

// growStackToAuthenticate grows the stack to what a request needs until it is
// authenticated. It stays small because requests with endless bodies hold it.
//
//go:noinline
func growStackToAuthenticate(at uint8) byte {
	if at == 0 {
		return 0
	}
	var room [4 << 10]byte
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

func (q *request) run(id string) error {
	var err error
	if q.held.head, err = checkHead(q.http); err != nil {
		q.response.closeAfter()
		return err
	}
	info, err := parseInfo(q.http, q.query)
	q.call.Info = info
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	longRunning := isLongRunning(&q.call.Info)
	if q.server.access.Audit != nil {
		q.beginAudit(id, longRunning)
	}
	if !longRunning {
		cancel, err := q.limitTime()
		if err != nil {
			return q.reject(err)
		}
		defer cancel()
	}
	if err := q.authenticate(); err != nil {
		return q.reject(err)
	}
	if q.server.tracer != nil {
		q.beginSpan(id)
	}
	if q.audit != nil {
		return q.serveAudited(func() error { return q.serve(longRunning) })
	}
	return q.serve(longRunning)
}

// serve passes an authenticated request through the remaining stages.
func (q *request) serve(longRunning bool) error {
	q.held.sender = q.call.User
	if err := q.held.retainHead(); err != nil {
		return err
	}
	if err := q.impersonate(); err != nil {
		return err
	}
	if longRunning {
		defer q.endOnShutdown()()
		defer q.server.beginLongRunning(&q.call.Info)()
	} else if hasBody(q.http) {
		return q.serveBody()
	}
	if isMutating(q.http.Method) {
		growStack(0)
	}
	if !longRunning || q.call.Info.Verb == "watch" {
		if err := q.held.seat.enter(q, q.call.Now.Add(q.authenticatedAfter)); err != nil {
			return err
		}
		defer q.held.seat.leave()
	}
	if err := q.authorize(); err != nil {
		return err
	}
	if longRunning {
		httpserver.ClearDeadlines(q.response.wire) // no deadlines for sending and reading
		done, ok := q.server.beginOnward(&q.call)
		if !ok {
			return errTooManyRequests
		}
		defer done()
	}
	return q.answer()
}

// beginOnward takes one of the bounded places for long-running requests that
// are proxied to a node, a pod, a Service or another server. done releases it.
func (s *Server) beginOnward(call *registry.Request) (done func(), ok bool) {
	if call.Info.Verb == "watch" && !s.aggregates(&call.Info) {
		return func() {}, true
	}
	return s.onward.Acquire(call.User)
}

// serveBody serves a request that sends a body.
func (q *request) serveBody() error {
	if err := q.authorize(); err != nil {
		return err
	}
	var cut context.CancelFunc
	q.call.Context, cut = context.WithCancel(q.call.Context)
	defer cut()
	body := q.server.bodies.Begin(tenant(q.held.sender), rank(q.held.sender), cut)
	defer body.Release()
	if err := q.receive(body); err != nil {
		return err
	}
	growStack(0)
	large := q.body.isLarge(q.http) && !isPrivileged(q.held.sender) && !q.server.aggregates(&q.call.Info)
	if large && !q.held.seat.enterLarge(q.call.Context, tenant(q.held.sender)) {
		return errTooManyRequests
	}
	defer q.held.seat.leave()
	if err := q.held.seat.enter(q, q.server.registry.Clock.Now()); err != nil {
		return err
	}
	if !body.Protect() {
		return errTooManyRequests
	}
	if large {
		slot, err := q.server.processors.Acquire(q.call.Context, tenant(q.held.sender))
		if err != nil {
			return err
		}
		defer slot.Release() // the verb pauses the turn while it waits
		q.held.slot = slot
		q.call.Context = compute.WithSlot(q.call.Context, slot)
	}
	return q.answer()
}

// answer carries out the request.
func (q *request) answer() error {
	if q.call.Info.IsResourceRequest {
		return q.serveResource()
	}
	return q.serveOther()
}

// limitTime bounds the request by the server's timeout, or by a shorter one in
// the query.
func (q *request) limitTime() (context.CancelFunc, error) {
	timeout := q.server.limits.RequestTimeout
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
	q.call.Context, cancel = context.WithTimeout(q.call.Context, timeout)
	return cancel, nil
}
