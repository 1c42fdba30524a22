package apiserver

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/apiserver/fairness"
	"github.com/coracle-io/coracle/internal/compute"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// inFlight counts requests that are being served.
type inFlight struct {
	limit   int64 // below 0 is none
	current atomic.Int64
}

// turn is a request's place among those that are being served.
type turn struct {
	held  atomic.Bool      // there is something to give back
	class *inFlight        // nil outside
	large *compute.Turn    // among the large requests under way; nil for others
	flow  fairness.Request // with priority and fairness
}

// errTooManyRequests is answered as upstream does, not with a Status.
var errTooManyRequests = errors.New("Too many requests, please try again later.") //nolint:staticcheck // upstream's sentence

// enter lets the request be served now or, with priority and fairness, when
// its turn has come. The request must leave when it has been served. A watch
// leaves as soon as it has begun; other long-running requests need no turn.
// arrived is since when the request could be served.
func (q *request) enter(arrived time.Time) error {
	class := &q.server.reading
	if isMutating(q.http.Method) {
		class = &q.server.mutating
	}
	if q.server.Fairness != nil {
		return q.enterFairly(class, arrived)
	}
	if q.info.Verb == "watch" {
		return nil
	}
	if n := class.current.Add(1); class.limit >= 0 && n > class.limit && !slices.Contains(q.user.GetGroups(), user.SystemPrivilegedGroup) {
		class.current.Add(-1)
		return q.drop()
	}
	q.turn.class = class
	q.turn.held.Store(true)
	return nil
}

func (q *request) enterFairly(class *inFlight, arrived time.Time) error {
	flow := &q.turn.flow
	ok := q.server.Fairness.Begin(q.ctx, flow, q.user, &q.info, q.visits(), arrived)
	header := q.w.Header()
	header["X-Kubernetes-Pf-Flowschema-Uid"], header["X-Kubernetes-Pf-Prioritylevel-Uid"] = flow.UIDs()
	if !ok {
		return q.drop()
	}
	class.current.Add(1)
	q.turn.class = class
	q.turn.held.Store(true)
	return nil
}

// drop refuses the request to protect the server.
func (q *request) drop() error {
	q.dropped = true
	q.w.Header().Set("Retry-After", "1")
	return errTooManyRequests
}

// leave ends the request's turn; more calls do nothing. It may be called from
// another goroutine than the request's.
func (q *request) leave() {
	if !q.turn.held.CompareAndSwap(true, false) {
		return
	}
	q.turn.large.Leave()
	if q.turn.class == nil {
		return
	}
	q.turn.class.current.Add(-1)
	if q.server.Fairness != nil {
		q.turn.flow.End(q.server.Clock.Now())
	}
}

// visits is about how many objects a list, or the beginning of a watch, has
// the server go through; 0 for what is not about many.
func (q *request) visits() int {
	i := &q.info
	if !i.IsResourceRequest || i.Name != "" || i.Subresource != "" || i.Verb != "list" && i.Verb != "watch" {
		return 0
	}
	e := q.server.routes.Load().find(schema.GroupVersion{Group: i.APIGroup, Version: i.APIVersion}, i.Resource)
	if e == nil || e.kind == nil || i.Verb == "watch" && !q.wantsInitialEvents() {
		return 0
	}
	snapshot := e.kind.Snapshot()
	count := snapshot.Len()
	if count <= fairness.ObjectsPerSeat {
		return count
	}
	if i.Namespace != "" {
		count = snapshot.Count(i.Namespace, watchcache.Position{})
	}
	if i.FieldSelector == "" && i.LabelSelector == "" && strings.Contains(q.http.URL.RawQuery, "limit=") {
		if limit, err := strconv.Atoi(q.query().Get("limit")); err == nil && limit > 0 {
			count = min(count, limit)
		}
	}
	return count
}

// wantsInitialEvents says that a watch begins with everything there is.
func (q *request) wantsInitialEvents() bool {
	values := q.query()
	revision := values.Get("resourceVersion")
	return revision == "" || revision == "0" || isTrue(values.Get("sendInitialEvents")) && values.Has("sendInitialEvents")
}

// InFlight is how many reading and changing requests are being served now.
func (s *Server) InFlight() (reading, mutating int64) {
	return s.reading.current.Load(), s.mutating.current.Load()
}

func isMutating(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}
