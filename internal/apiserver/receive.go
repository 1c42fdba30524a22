package apiserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/apiserver/intake"
	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/memory"
)

// A request's body is received after the request is known to be allowed and
// before it takes a seat:
//
//	authenticate ─ authorize ─ receive ─┬─ small ──────── seat ─────────────────────┬─ verb
//	                                    └─ large: under way ─ seat ─ computes ───────┘
//	                                                                  └ pauses: admission, the store
//
// So a client that may not do what it asks for has no byte of its body read,
// and one whose body takes its time holds no seat: what it holds is memory,
// which the intake bounds for each tenant and for all, until the request's
// deadline at most. Requests without a body take their seat before they are
// authorized, as upstream does.
//
// A large body, or patch, is work for many times as long as a plain request.
// Few of those compute at a time, those of different tenants in turn, so that
// others find a processor. How many may wait for that in seats is bounded, too.
// Tenants are told apart by who sends the requests, whomever they act as.

const (
	// intakeOfAll bounds the bytes of the bodies of all requests that are not
	// answered yet. A buffer is at most twice as large as what is in it.
	intakeOfAll = 256 << 20

	// largeBody and largePatch are the sizes from which a request is large.
	// What a patch costs depends on the object as much as on the patch.
	largeBody  = 256 << 10
	largePatch = 16 << 10
	// largeUnderWay and largeOfTenant bound the large requests with seats, of
	// all and of one tenant.
	largeUnderWay = 64
	largeOfTenant = 16
	// largePatience bounds the wait for that.
	largePatience = 15 * time.Second
	// largeLease is how long a large request computes before others do so at
	// the same time: it may be waiting for a webhook that converts objects.
	largeLease = time.Second

	// slowAnswer is how long a client may take to read an answer before the
	// request gives its seat back: what others may be kept waiting by clients
	// that do not read. All that is left to do then is to send.
	slowAnswer = 50 * time.Millisecond
	// promptAnswer is the size up to which an answer needs no reader.
	promptAnswer = 4 << 10
	// answerPiece is how much of an answer is written at a time.
	answerPiece = 256 << 10
)

// requestBody is the body of a request, as far as it has been received.
type requestBody struct {
	data     []byte
	rest     io.ReadCloser // of a body that is too large for a verb; nil for none
	received int           // bytes
	elements *int          // elementsOf what was received; nil until it is asked for
}

// countElements is elementsOf the body, which is read through at most once.
func (b *requestBody) countElements(contentType string) int {
	if b.elements == nil {
		n := elementsOf(b.data, contentType)
		b.elements = &n
	}
	return *b.elements
}

// sendsBody says that the client may send a body.
func sendsBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && (r.ContentLength != 0 || isMutating(r.Method))
}

// rank is how much the cluster depends on the bodies that a user sends.
func rank(sender user.Info) intake.Rank {
	switch {
	case isPrivileged(sender):
		return intake.Privileged
	case isCritical(sender):
		return intake.Critical
	}
	return intake.Ordinary
}

// tenant is whom the requests of a user count for.
func tenant(sender user.Info) string { return httpserver.Tenant(sender.GetName()) }

// receive reads the body: all of it, or as much of it as any verb takes. held
// says what room there is for it.
func (q *request) receive(held *intake.Body) error {
	if q.http.ContentLength > maxBodySize {
		q.body.rest = q.http.Body
		return nil
	}
	shutdown := *q.server.stop.Load()
	defer cutBody(q.Context, q.wire)()
	defer cutBody(shutdown, q.wire)()
	most := maxBodySize + 512
	if q.http.ContentLength > 0 {
		most = int(q.http.ContentLength) + 1
	}
	body := make([]byte, 0, min(most, intake.Unit))
	for held.Hold(max(len(body), 1)) {
		n, err := q.http.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		q.body.received = len(body)
		switch {
		case err == io.EOF: //nolint:errorlint // readers return it unwrapped
			q.body.data = body
			if !held.Hold(len(body)) {
				return q.drop()
			}
			return nil
		case err != nil && (held.Cut() || shutdown.Err() != nil):
			q.closeAfter()
			return q.drop()
		case err != nil && q.Context.Err() != nil:
			q.closeAfter()
			return q.Context.Err()
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
	return q.drop()
}

// cutBody ends the reading of the body when ctx ends, as with the request. stop
// ends that, and waits for it if it has begun: nobody may use the connection's
// writer after the request.
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

// wholeBody returns the whole body, of up to 3 MiB.
func (q operation) wholeBody() ([]byte, error) {
	if q.http.ContentLength > maxBodySize || len(q.body.data) > maxBodySize {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBodySize))
	}
	return q.body.data, q.reserveBody()
}

// unread is the body for a handler that reads it from its beginning, if any of
// the sent one has been read.
func (b *requestBody) unread(sent io.ReadCloser) io.ReadCloser {
	switch {
	case b.rest != nil:
		return &joined{io.MultiReader(&reader{rest: b.data}, b.rest), b.rest}
	case len(b.data) > 0:
		return &reader{rest: b.data}
	}
	return sent
}

// isLarge says that serving the request takes much memory and time.
func (b *requestBody) isLarge(r *http.Request) bool {
	size := len(b.data)
	return size > largeBody || size > largePatch && r.Method == http.MethodPatch ||
		size > manyElements && b.countElements(r.Header.Get("Content-Type")) > manyElements
}

// isElsewhere says that another server answers for what the request is about.
func (q *request) isElsewhere() bool {
	return q.server.Aggregated != nil && q.Info.IsResourceRequest &&
		q.server.Aggregated.Handler(schema.GroupVersion{Group: q.Info.APIGroup, Version: q.Info.APIVersion}) != nil
}

// sending writes an answer piece by piece.
type sending struct {
	w    io.Writer
	held *memory.Held
	left int // bytes still to come
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

// joined is a body of which a part has been read.
type joined struct {
	io.Reader
	io.Closer
}
