package apiserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/apiserver/bodylimit"
	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/memory"
)

// The server receives the body of a request after authorizing the request and
// before the request takes a seat:
//
//	authenticate ─ authorize ─ receive ─┬─ small ──────── seat ─────────────────────┬─ verb
//	                                    └─ large: under way ─ seat ─ computes ───────┘
//	                                                                  └ pauses: admission, the store
//
// So the server reads no body of a forbidden request, and a slow body holds no
// seat. It holds only memory, until the request's deadline at most. Package
// bodylimit bounds that memory per tenant and in total. Requests without a body
// take their seat before they are authorized, as upstream does.
//
// A large body or patch takes many times as long as a plain request. Few large
// requests compute at a time, and tenants take turns, so that other requests
// find a processor. The number of large requests that wait in seats is bounded,
// too. The tenant is the authenticated user, not the impersonated one.

const (
	// bodiesTotal bounds the bytes of the bodies of all requests that are not
	// answered yet. A buffer is at most twice as large as its content.
	bodiesTotal = 256 << 20

	// largeBody and largePatch are the sizes in bytes above which a request is
	// large. The cost of a patch depends on the object as much as on the patch.
	largeBody  = 256 << 10
	largePatch = 16 << 10
	// largeUnderWay and largeOfTenant bound the large requests with seats, of
	// all and of one tenant.
	largeUnderWay = 64
	largeOfTenant = 16
	// largePatience is how long a large request waits for a seat.
	largePatience = 15 * time.Second
	// largeLease is how long a large request computes alone. After that others
	// compute beside it, because it may be waiting for a conversion webhook.
	largeLease = time.Second

	// slowAnswer is how long a client may take to read an answer before the
	// request releases its seat, so that clients that do not read do not keep
	// others waiting. Only sending is left to do then.
	slowAnswer = 50 * time.Millisecond
	// promptAnswer is the size in bytes up to which an answer fits into the
	// buffers of the connection, even if the client does not read.
	promptAnswer = 4 << 10
	// answerPiece is how much of an answer is written at a time.
	answerPiece = 256 << 10
)

// requestBody is the received part of a request's body.
type requestBody struct {
	data     []byte
	rest     io.ReadCloser // of a body that is too large for a verb; nil for none
	received int           // bytes
	elements *int          // countElementsIn(data), computed on demand
}

// countElements returns countElementsIn of the body and caches it.
func (b *requestBody) countElements(contentType string) int {
	if b.elements == nil {
		n := countElementsIn(b.data, contentType)
		b.elements = &n
	}
	return *b.elements
}

// hasBody reports whether the client may send a body.
func hasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && (r.ContentLength != 0 || isMutating(r.Method))
}

// rank returns how much the cluster depends on requests of a user.
func rank(sender user.Info) bodylimit.Rank {
	switch {
	case isPrivileged(sender):
		return bodylimit.Privileged
	case isCritical(sender):
		return bodylimit.Critical
	}
	return bodylimit.Ordinary
}

// tenant returns the name under which the requests of a user are counted.
func tenant(sender user.Info) string { return httpserver.Tenant(sender.GetName()) }

// receive reads the body, at most as much as any verb accepts. It reserves the
// memory in held.
func (q *request) receive(held *bodylimit.Body) error {
	if q.http.ContentLength > maxBodySize {
		q.body.rest = q.http.Body
		return nil
	}
	shutdown := *q.server.stop.Load()
	defer cutBody(q.call.Context, q.response.wire)()
	defer cutBody(shutdown, q.response.wire)()
	most := maxBodySize + 512
	if q.http.ContentLength > 0 {
		most = int(q.http.ContentLength) + 1
	}
	body := make([]byte, 0, min(most, bodylimit.Unit))
	for held.Reserve(max(len(body), 1)) {
		n, err := q.http.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		q.body.received = len(body)
		switch {
		case err == io.EOF: //nolint:errorlint // readers return it unwrapped
			q.body.data = body
			if !held.Reserve(len(body)) {
				return errTooManyRequests
			}
			return nil
		case err != nil && (held.Aborted() || shutdown.Err() != nil):
			q.response.closeAfter()
			return errTooManyRequests
		case err != nil && q.call.Context.Err() != nil:
			q.response.closeAfter()
			return q.call.Context.Err()
		case err != nil:
			return apierrors.NewBadRequest(fmt.Sprintf("read the request's body: %v", err))
		case len(body) > maxBodySize:
			q.body.data, q.body.rest = body, q.http.Body
			return nil
		}
		if len(body) == cap(body) {
			grown := make([]byte, len(body), min(2*cap(body), most))
			copy(grown, body)
			body = grown
		}
	}
	return errTooManyRequests
}

// cutBody makes reads of the body fail when ctx ends. stop cancels this and
// waits if it has begun, because the connection's writer must not be used after
// the request.
func cutBody(ctx context.Context, wire http.ResponseWriter) (stop func()) {
	control := http.NewResponseController(wire)
	cut := make(chan struct{})
	prevent := context.AfterFunc(ctx, func() {
		defer close(cut)
		_ = control.SetReadDeadline(time.Unix(1, 0))
	})
	return func() {
		if !prevent() {
			<-cut
		}
	}
}

// unread returns a body that starts at the beginning of sent, for handlers that
// read it themselves.
func (b *requestBody) unread(sent io.ReadCloser) io.ReadCloser {
	switch {
	case b.rest != nil:
		return &joined{io.MultiReader(&reader{rest: b.data}, b.rest), b.rest}
	case len(b.data) > 0:
		return &reader{rest: b.data}
	}
	return sent
}

// isLarge reports whether serving the request takes much memory and time.
func (b *requestBody) isLarge(r *http.Request) bool {
	size := len(b.data)
	return size > largeBody || size > largePatch && r.Method == http.MethodPatch ||
		size > manyElements && b.countElements(r.Header.Get("Content-Type")) > manyElements
}

// sending writes an answer in pieces and releases the memory of each.
type sending struct {
	w    io.Writer
	held *memory.Reservation
	left int // bytes still to write
}

// Write implements io.Writer.
func (s *sending) Write(data []byte) (written int, err error) {
	for len(data) > 0 && err == nil {
		var n int
		n, err = s.w.Write(data[:min(len(data), answerPiece)])
		data = data[n:]
		written += n
		s.left -= n
		s.held.Shrink(int64(max(s.left, 0)))
	}
	return written, err
}

// reader reads a body that is in memory.
type reader struct{ rest []byte }

func (r *reader) Read(into []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(into, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (*reader) Close() error { return nil }

// joined is a body whose beginning comes from memory.
type joined struct {
	io.Reader
	io.Closer
}
