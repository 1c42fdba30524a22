package apiserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/httpserver"
)

// A request's body is received after the request is known to be allowed and
// before it takes a seat:
//
//	authenticate ─ authorize ─ receive ─┬─ small ──────────────┬─ seat ─ verb
//	                                    └─ large: a large place ┘
//
// So a client that may not do what it asks for has no byte of its body read,
// and one whose body takes its time holds no seat: what it holds is memory,
// which the intake bounds for each user and for all, until the request's
// deadline at most. Requests without a body take their seat before they are
// authorized, as upstream does.
//
// A large body, or patch, is work for many times as long as a plain request.
// Few of those are served at a time, so that others find a processor.

const (
	// intakeOfAll and intakeOfUser bound the bytes of the bodies of all
	// requests, and of one user's, that are not answered yet.
	intakeOfAll  = 256 << 20
	intakeOfUser = 64 << 20
	// leastIntake is what a request takes whose body is smaller: its share of
	// the connection, its goroutine.
	leastIntake = 16 << 10

	// largeBody and largePatch are the sizes from which a request is large.
	// What a patch costs depends on the object as much as on the patch.
	largeBody  = 256 << 10
	largePatch = 16 << 10
	// largePatience bounds the wait for a large place.
	largePatience = 15 * time.Second

	// slowAnswer is how long a client may take to read an answer before the
	// request gives its seat back: what others may be kept waiting by clients
	// that do not read. All that is left to do then is to send.
	slowAnswer = 50 * time.Millisecond
	// promptAnswer is the size up to which an answer needs no reader.
	promptAnswer = 4 << 10
)

// intake bounds the memory that bodies take. Its methods may be called from
// any goroutine.
type intake struct {
	mu    sync.Mutex // guards the following
	total int
	users map[string]int
}

// take adds bytes to what a user's requests hold; false says that it would be
// too much.
func (i *intake) take(user string, bytes int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.total+bytes > intakeOfAll || i.users[user]+bytes > intakeOfUser {
		return false
	}
	if i.users == nil {
		i.users = map[string]int{}
	}
	i.total += bytes
	i.users[user] += bytes
	return true
}

func (i *intake) give(user string, bytes int) {
	if bytes == 0 {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.total -= bytes
	if i.users[user] -= bytes; i.users[user] <= 0 {
		delete(i.users, user)
	}
}

// sendsBody says that the client may send a body.
func (q *request) sendsBody() bool {
	body := q.http.Body
	return body != nil && body != http.NoBody && (q.http.ContentLength != 0 || isMutating(q.http.Method))
}

// receive reads the body: all of it, or as much of it as any verb takes.
// done gives back what it holds, when the request has been answered.
func (q *request) receive() (done func(), err error) {
	name, held := q.user.GetName(), 0
	done = func() { q.server.intake.give(name, held) }
	hold := func(bytes int) bool {
		if bytes <= held || q.server.intake.take(name, bytes-held) {
			held = max(held, bytes)
			return true
		}
		return false
	}
	if q.http.ContentLength > maxBodySize {
		q.rest = q.http.Body
		return done, nil
	}
	defer q.cutBody()()
	body := make([]byte, 0, min(max(q.http.ContentLength+1, 512), leastIntake))
	for {
		if !hold(max(cap(body), leastIntake)) {
			return done, q.drop()
		}
		n, err := q.http.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		q.received = len(body)
		switch {
		case err == io.EOF: //nolint:errorlint // readers return it unwrapped
			q.body = body
			return done, nil
		case err != nil && q.ctx.Err() != nil:
			if q.http.ProtoMajor == 1 { // HTTP/2 ends the stream alone
				q.w.Header().Set("Connection", "close") // the rest of the body is still to come
			}
			return done, q.ctx.Err()
		case err != nil:
			return done, apierrors.NewBadRequest(fmt.Sprintf("read the request's body: %v", err))
		case len(body) > maxBodySize:
			q.body, q.rest = body, q.http.Body
			return done, nil
		}
		if len(body) == cap(body) {
			grown := make([]byte, len(body), min(4*cap(body), maxBodySize+512))
			copy(grown, body)
			body = grown
		}
	}
}

// cutBody ends the reading of the body at the request's deadline. stop ends
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
	return len(q.body) > largeBody || len(q.body) > largePatch && q.http.Method == http.MethodPatch ||
		len(q.body) > manyElements && elementsOf(q.body, q.http.Header.Get("Content-Type")) > manyElements
}

// enterLarge takes one of the few places of large requests.
func (q *request) enterLarge() error {
	patience := time.NewTimer(largePatience)
	defer patience.Stop()
	select {
	case q.server.large <- struct{}{}:
		q.turn.large = true
		q.turn.held.Store(true)
		return nil
	case <-patience.C:
	case <-q.ctx.Done():
	}
	return q.drop()
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
// read it, others get the request's seat.
func (q *request) answering(size int, write func()) {
	if size > promptAnswer && q.turn.held.Load() {
		defer time.AfterFunc(slowAnswer, q.leave).Stop()
	}
	write()
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
