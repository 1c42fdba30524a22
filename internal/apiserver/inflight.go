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
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// inFlight counts the requests that are being served.
type inFlight struct {
	limit   int64 // 0 is none
	current atomic.Int64
}

// seat is a request's place among the requests that are being served.
type seat struct {
	server *Server
	held   atomic.Bool      // leave has something to release
	class  *inFlight        // nil without a seat
	large  *compute.Slot    // of a large request; nil for others
	flow   fairness.Request // with priority and fairness
}

// enter takes a seat. With priority and fairness it waits for its turn. The
// request must leave the seat when it has been served. A watch leaves it after
// its initial events, and other long-running requests need no seat. arrived is
// the time since which the request has been ready to be served.
func (s *seat) enter(q *request, arrived time.Time) error {
	class := &s.server.reading
	if isMutating(q.http.Method) {
		class = &s.server.mutating
	}
	if s.server.fairness != nil {
		return s.enterFairly(q, class, arrived)
	}
	if q.call.Info.Verb == "watch" {
		return nil
	}
	if n := class.current.Add(1); class.limit > 0 && n > class.limit && !slices.Contains(q.call.User.GetGroups(), user.SystemPrivilegedGroup) {
		class.current.Add(-1)
		return errTooManyRequests
	}
	s.class = class
	s.held.Store(true)
	return nil
}

func (s *seat) enterFairly(q *request, class *inFlight, arrived time.Time) error {
	flow := &s.flow
	end := q.measure(apirequest.TrackAPFQueueWaitLatency)
	ok := s.server.fairness.Begin(q.call.Context, flow, q.call.User, &q.call.Info, estimatedSeats(q.call.Registry, &q.call.Info, q.query), arrived)
	end()
	header := q.response.w.Header()
	header["X-Kubernetes-Pf-Flowschema-Uid"], header["X-Kubernetes-Pf-Prioritylevel-Uid"] = flow.UIDs()
	if !ok {
		return errTooManyRequests
	}
	class.current.Add(1)
	s.class = class
	s.held.Store(true)
	return nil
}

// enterLarge waits until a large request of a tenant may take a seat. It returns
// false if ctx or largePatience ends first.
func (s *seat) enterLarge(ctx context.Context, tenant string) bool {
	ctx, cancel := context.WithTimeout(ctx, largePatience)
	defer cancel()
	slot, err := s.server.largeRequests.Acquire(ctx, tenant)
	if err != nil {
		return false
	}
	s.large = slot
	s.held.Store(true)
	return true
}

// leave releases the seat. Further calls do nothing. It is safe to call from
// other goroutines than the request's.
func (s *seat) leave() {
	if !s.held.CompareAndSwap(true, false) {
		return
	}
	s.large.Release()
	if s.class == nil {
		return
	}
	s.class.current.Add(-1)
	if s.server.fairness != nil {
		s.flow.End(s.server.registry.Clock.Now())
	}
}

// estimatedSeats estimates how many seats a list, or the initial events of a watch,
// take: for the size of the objects, or for their number if SizeBasedListCostEstimate
// is off. It returns 0 for other requests, and for a resource
// all of which takes one seat at most.
func estimatedSeats(r *registry.Registry, i *apirequest.RequestInfo, query func() url.Values) int {
	if !i.IsResourceRequest || i.Name != "" || i.Subresource != "" || i.Verb != "list" && i.Verb != "watch" {
		return 0
	}
	e := r.Routes().Find(schema.GroupVersion{Group: i.APIGroup, Version: i.APIVersion}, i.Resource)
	if e == nil || e.Kind == nil || i.Verb == "watch" && !wantsInitialEvents(query()) {
		return 0
	}
	bySize, stored := r.Features.Enabled(feature.SizeBasedListCostEstimate), e.Kind.Stored()
	if bySize && stored <= fairness.BytesPerSeat {
		return 0
	}
	snapshot := e.Kind.Snapshot()
	all := snapshot.Len()
	if all == 0 || !bySize && all <= fairness.ObjectsPerSeat {
		return 0
	}
	count := all
	if i.Namespace != "" {
		count = snapshot.Count(i.Namespace, watchcache.Position{})
	}
	// A selector makes a list visit more objects than it returns, but it holds no more.
	if bySize || i.FieldSelector == "" && i.LabelSelector == "" {
		if text := query().Get("limit"); text != "" {
			if limit, err := strconv.Atoi(text); err == nil && limit > 0 {
				count = min(count, limit)
			}
		}
	}
	if !bySize {
		return fairness.SeatsOfObjects(count)
	}
	return fairness.SeatsOfBytes(int64(float64(stored) / float64(all) * float64(count)))
}

// wantsInitialEvents reports whether a watch begins with all existing objects.
func wantsInitialEvents(query url.Values) bool {
	revision := query.Get("resourceVersion")
	return revision == "" || revision == "0" || isTrue(query.Get("sendInitialEvents")) && query.Has("sendInitialEvents")
}

// InFlight returns how many reading and mutating requests are being served.
func (s *Server) InFlight() (reading, mutating int64) {
	return s.reading.current.Load(), s.mutating.current.Load()
}

func isMutating(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}
