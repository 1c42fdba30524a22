package apiserver

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coracle-io/coracle/internal/apiserver/fairness"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/compute"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// inFlight counts requests that are being served.
type inFlight struct {
	limit   int64 // below 0 is none
	current atomic.Int64
}

// seat is a request's place among those that are being served.
type seat struct {
	server *Server
	held   atomic.Bool      // there is something to give back
	class  *inFlight        // nil outside
	large  *compute.Turn    // among the large requests under way; nil for others
	flow   fairness.Request // with priority and fairness
}

// enter lets the request be served now or, with priority and fairness, when
// its turn has come. The request must leave when it has been served. A watch
// leaves as soon as it has begun; other long-running requests need no seat.
// arrived is since when the request could be served.
func (s *seat) enter(q *request, arrived time.Time) error {
	class := &s.server.reading
	if isMutating(q.http.Method) {
		class = &s.server.mutating
	}
	if s.server.Fairness != nil {
		return s.enterFairly(q, class, arrived)
	}
	if q.Info.Verb == "watch" {
		return nil
	}
	if n := class.current.Add(1); class.limit >= 0 && n > class.limit && !slices.Contains(q.User.GetGroups(), user.SystemPrivilegedGroup) {
		class.current.Add(-1)
		return q.drop()
	}
	s.class = class
	s.held.Store(true)
	return nil
}

func (s *seat) enterFairly(q *request, class *inFlight, arrived time.Time) error {
	flow := &s.flow
	ok := s.server.Fairness.Begin(q.Context, flow, q.User, &q.Info, visits(q.Registry.Routes(), &q.Info, q.query), arrived)
	header := q.w.Header()
	header["X-Kubernetes-Pf-Flowschema-Uid"], header["X-Kubernetes-Pf-Prioritylevel-Uid"] = flow.UIDs()
	if !ok {
		return q.drop()
	}
	class.current.Add(1)
	s.class = class
	s.held.Store(true)
	return nil
}

// enterLarge waits until the request of a tenant may take a seat beside other
// large ones; false says that it may not.
func (s *seat) enterLarge(ctx context.Context, tenant string) bool {
	ctx, cancel := context.WithTimeout(ctx, largePatience)
	defer cancel()
	turn, err := s.server.underWay.Enter(ctx, tenant)
	if err != nil {
		return false
	}
	s.large = turn
	s.held.Store(true)
	return true
}

// leave gives the seat back; more calls do nothing. It may be called from
// another goroutine than the request's.
func (s *seat) leave() {
	if !s.held.CompareAndSwap(true, false) {
		return
	}
	s.large.Leave()
	if s.class == nil {
		return
	}
	s.class.current.Add(-1)
	if s.server.Fairness != nil {
		s.flow.End(s.server.Clock.Now())
	}
}

// visits is about how many objects a list, or the beginning of a watch, has
// the server go through; 0 for what is not about many.
func visits(routes *registry.Routes, i *apirequest.RequestInfo, query func() url.Values) int {
	if !i.IsResourceRequest || i.Name != "" || i.Subresource != "" || i.Verb != "list" && i.Verb != "watch" {
		return 0
	}
	e := routes.Find(schema.GroupVersion{Group: i.APIGroup, Version: i.APIVersion}, i.Resource)
	if e == nil || e.Kind == nil || i.Verb == "watch" && !wantsInitialEvents(query()) {
		return 0
	}
	snapshot := e.Kind.Snapshot()
	count := snapshot.Len()
	if count <= fairness.ObjectsPerSeat {
		return count
	}
	if i.Namespace != "" {
		count = snapshot.Count(i.Namespace, watchcache.Position{})
	}
	if i.FieldSelector == "" && i.LabelSelector == "" {
		if text := query().Get("limit"); text != "" {
			if limit, err := strconv.Atoi(text); err == nil && limit > 0 {
				count = min(count, limit)
			}
		}
	}
	return count
}

// wantsInitialEvents says that a watch begins with everything there is.
func wantsInitialEvents(query url.Values) bool {
	revision := query.Get("resourceVersion")
	return revision == "" || revision == "0" || isTrue(query.Get("sendInitialEvents")) && query.Has("sendInitialEvents")
}

// InFlight is how many reading and changing requests are being served now.
func (s *Server) InFlight() (reading, mutating int64) {
	return s.reading.current.Load(), s.mutating.current.Load()
}

func isMutating(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}
