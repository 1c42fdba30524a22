package apiserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/apiserver/intake"
	"github.com/coracle-io/coracle/internal/compute"
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

// sendsBody says that the client may send a body.
func (q *request) sendsBody() bool {
	body := q.http.Body
	return body != nil && body != http.NoBody && (q.http.ContentLength != 0 || isMutating(q.http.Method))
}

// rank is how much the cluster depends on the request's body.
func (q *request) rank() intake.Rank {
	switch {
	case q.privileged():
		return intake.Privileged
	case q.critical():
		return intake.Critical
	}
	return intake.Ordinary
}

// tenant is whom the request counts for.
func (q *request) tenant() string { return httpserver.Tenant(q.sender.GetName()) }

// receive reads the body: all of it, or as much of it as any verb takes. held
// says what room there is for it.
func (q *request) receive(held *intake.Body) error {
	if q.http.ContentLength > maxBodySize {
		q.rest = q.http.Body
		return nil
	}
	defer q.cutBody()()
	most := maxBodySize + 512
	if q.http.ContentLength > 0 {
		most = int(q.http.ContentLength) + 1
	}
	body := make([]byte, 0, min(most, intake.Unit))
	for held.Hold(max(len(body), 1)) {
		n, err := q.http.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		q.received = len(body)
		switch {
		case err == io.EOF: //nolint:errorlint // readers return it unwrapped
			q.body = body
			if !held.Hold(len(body)) {
				return q.drop()
			}
			return nil
		case err != nil && held.Cut():
			q.closeAfter()
			return q.drop()
		case err != nil && q.ctx.Err() != nil:
			q.closeAfter()
			return q.ctx.Err()
		case err != nil:
			return apierrors.NewBadRequest(fmt.Sprintf("read the request's body: %v", err))
		case len(body) > maxBodySize:
			q.body, q.rest = body, q.http.Body
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

// closeAfter ends the connection with the request, as the rest of the body is
// still to come. HTTP/2 ends the stream alone.
func (q *request) closeAfter() {
	if q.http.ProtoMajor == 1 {
		q.w.Header().Set("Connection", "close")
	}
}

// cutBody ends the reading of the body when the request ends. stop ends
// that, and waits for it if it has begun: nobody may use the connection's
// writer after the request.
func (q *request) cutBody() (stop func()) {
	control := http.NewResponseController(q.wire)
	cut := make(chan struct{})
	prevent := context.AfterFunc(q.ctx, func() {
		defer close(cut)
		_ = control.SetReadDeadline(time.Unix(1, 0))
	})
	return func() {
		if !prevent() {
			<-cut
		}
	}
}

// readBody returns the whole body, of up to 3 MiB.
func (q *request) readBody() ([]byte, error) {
	if q.http.ContentLength > maxBodySize || len(q.body) > maxBodySize {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBodySize))
	}
	return q.body, q.reserveBody()
}

// unreadBody is the body for a handler that reads it from its beginning.
func (q *request) unreadBody() io.ReadCloser {
	switch {
	case q.rest != nil:
		return &joined{io.MultiReader(&reader{rest: q.body}, q.rest), q.rest}
	case len(q.body) > 0:
		return &reader{rest: q.body}
	}
	return q.http.Body
}

// isLarge says that serving the request takes much memory and time.
func (q *request) isLarge() bool {
	size := len(q.body)
	large := size > largeBody || size > largePatch && q.http.Method == http.MethodPatch ||
		size > manyElements && elementsOf(q.body, q.http.Header.Get("Content-Type")) > manyElements
	return large && !q.privileged() && !q.isElsewhere()
}

// enterLarge waits until the request may take a seat beside other large ones.
func (q *request) enterLarge() error {
	ctx, cancel := context.WithTimeout(q.ctx, largePatience)
	defer cancel()
	turn, err := q.server.underWay.Enter(ctx, q.tenant())
	if err != nil {
		return q.drop()
	}
	q.turn.large = turn
	q.turn.held.Store(true)
	return nil
}

// compute waits for the large request's turn to compute. done ends it; the
// verb pauses it meanwhile where it waits for something else.
func (q *request) compute() (done func(), err error) {
	turn, err := q.server.processors.Enter(q.ctx, q.tenant())
	if err != nil {
		return nil, err
	}
	q.computing = turn
	q.ctx = compute.With(q.ctx, turn)
	return turn.Leave, nil
}

// isElsewhere says that another server answers for what the request is about.
func (q *request) isElsewhere() bool {
	return q.server.Aggregated != nil && q.info.IsResourceRequest &&
		q.server.Aggregated.Handler(schema.GroupVersion{Group: q.info.APIGroup, Version: q.info.APIVersion}) != nil
}

// unhurried lets the client of a long-running request send and read for as
// long as it lasts.
func (q *request) unhurried() {
	httpserver.Unhurried(q.wire)
}

// answering waits for an answer to be written. Should the client be slow to
// read it, others get the request's seat. What was promised for the request is
// given back as far as the answer has gone out.
func (q *request) answering(size int, write func(io.Writer)) {
	q.computing.Leave()
	q.held.Shrink(int64(size))
	if size <= promptAnswer {
		write(q.w)
		return
	}
	if q.turn.held.Load() {
		defer time.AfterFunc(slowAnswer, q.leave).Stop()
	}
	write(&sending{q.w, &q.held, size})
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
