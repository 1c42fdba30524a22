package dns

import (
	"context"
	"net/netip"

	"github.com/coracle-io/coracle/internal/gates"
)

const (
	// maxQueries bounds the queries under way, and maxQueriesPerClient bounds them for
	// one client. Further ones get no answer, and are asked again.
	maxQueries          = 4096
	maxQueriesPerClient = 512
	// maxAnswers is how many answers are made at a time, and maxAnswersPerClient how
	// many for one client. One with the endpoints of a large Service takes megabytes and
	// milliseconds.
	maxAnswers          = 8
	maxAnswersPerClient = 2
)

// turns bounds the queries under way, so that one client neither keeps the others
// waiting nor fills the memory: each datagram begins a goroutine. A nil turns bounds
// nothing.
type turns struct {
	quota   *quota                  // of queries under way
	answers chan struct{}           // has an element for each answer that is made
	clients gates.Gates[netip.Addr] // for the answers of each client
}

func newTurns() *turns {
	return &turns{quota: newQuota(maxQueries, maxQueriesPerClient), answers: make(chan struct{}, maxAnswers)}
}

// enter counts a query under way. It returns false if the query gets no answer.
// Otherwise the caller must call leave. The query's context ends if others need its
// place.
func (t *turns) enter(ctx context.Context, client netip.Addr) (query context.Context, leave func(), ok bool) {
	if t == nil {
		return ctx, func() {}, true
	}
	query, cancel := context.WithCancel(ctx)
	release, ok := t.quota.acquire(client, cancel)
	if !ok {
		cancel()
		return nil, nil, false
	}
	return query, func() { release(); cancel() }, true
}

// take waits until it is the client's turn to have an answer made. It returns false if
// ctx ends before. Otherwise the caller must call end, once.
func (t *turns) take(ctx context.Context, client netip.Addr) (end func(), ok bool) {
	if t == nil {
		return func() {}, true
	}
	leave, err := t.clients.Enter(ctx, client, maxAnswersPerClient)
	if err != nil {
		return nil, false
	}
	select {
	case t.answers <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, false
	}
	return func() {
		<-t.answers
		leave()
	}, true
}
