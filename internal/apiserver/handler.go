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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/apiserver/audit"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/compute"
	"github.com/coracle-io/coracle/internal/httpserver"
)

// request is one request on its way through the stages. It is the registry's
// request besides what HTTP adds.
type request struct {
	registry.Request // Context is bounded by the request's timeout
	response

	server *Server
	sender user.Info  // User, unless he acts as somebody else
	parsed url.Values // the query; nil as long as nobody asked for it
	body   requestBody
	cut    bool           // a panic came after the beginning of the answer
	audit  *audit.Request // nil unless requests are recorded
	// recognised is when, after Now, the sender was known.
	recognised time.Duration
}

// query is the parsed query; it is parsed at most once.
func (q *request) query() url.Values {
	if q.parsed == nil && q.http.URL.RawQuery != "" {
		q.parsed = q.http.URL.Query()
	}
	return q.parsed
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := &request{
		Request:  registry.Request{Registry: s.registry, Context: r.Context(), Now: s.Clock.Now()},
		response: response{w: w, wire: w, http: r, seat: seat{server: s}},
		server:   s,
	}
	q.Warnings = &q.warnings
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

// growStackToAuthenticate makes the room that each request takes before its
// sender is known. More would be what bodies that never end take, too.
//
//go:noinline
func growStackToAuthenticate(at uint8) byte {
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
	info, err := parseInfo(q.http, q.query)
	q.Info = info
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	longRunning := isLongRunning(&q.Info)
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
	q.sender = q.User
	if err := q.impersonate(); err != nil {
		return err
	}
	if longRunning {
		defer q.endOnShutdown()()
		defer q.server.beginLongRunning(&q.Info)()
	} else if sendsBody(q.http) {
		return q.serveBody()
	}
	if isMutating(q.http.Method) {
		growStack(0)
	}
	if !longRunning || q.Info.Verb == "watch" {
		if err := q.seat.enter(q, q.Now.Add(q.recognised)); err != nil {
			return err
		}
		defer q.seat.leave()
	}
	if err := q.authorize(); err != nil {
		return err
	}
	if longRunning {
		httpserver.Unhurried(q.wire) // the client may send and read for as long as it lasts
		done, ok := q.beginOnward()
		if !ok {
			return q.drop()
		}
		defer done()
	}
	return q.answer()
}

// beginOnward takes a place for a request that lasts and is passed on to a
// node, a pod, a service or another server. done gives it back.
func (q *request) beginOnward() (done func(), ok bool) {
	if q.Info.Verb == "watch" && !q.isElsewhere() {
		return func() {}, true
	}
	return q.server.onward.Begin(q.User)
}

// serveBody serves a request that sends a body.
func (q *request) serveBody() error {
	if err := q.authorize(); err != nil {
		return err
	}
	var cut context.CancelFunc
	q.Context, cut = context.WithCancel(q.Context)
	defer cut()
	body := q.server.intake.Begin(tenant(q.sender), rank(q.sender), cut)
	defer body.Release()
	if err := q.receive(body); err != nil {
		return err
	}
	growStack(0)
	large := q.body.isLarge(q.http) && !isPrivileged(q.sender) && !q.isElsewhere()
	if large && !q.seat.enterLarge(q.Context, tenant(q.sender)) {
		return q.drop()
	}
	defer q.seat.leave()
	if err := q.seat.enter(q, q.server.Clock.Now()); err != nil {
		return err
	}
	if !body.Served() {
		return q.drop()
	}
	if large {
		turn, err := q.server.processors.Enter(q.Context, tenant(q.sender))
		if err != nil {
			return err
		}
		defer turn.Leave() // which the verb pauses where it waits for something else
		q.computing = turn
		q.Context = compute.With(q.Context, turn)
	}
	return q.answer()
}

// answer does what the request asks for.
func (q *request) answer() error {
	if q.Info.IsResourceRequest {
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
	q.Context, cancel = context.WithTimeout(q.Context, timeout)
	return cancel, nil
}
