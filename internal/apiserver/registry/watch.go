package registry

import (
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"

	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// WatchStart is where a watch begins.
type WatchStart struct {
	After    int64                // the revision whose successors are sent
	Initial  *watchcache.Snapshot // to be sent first; nil for none
	Announce bool                 // the end of the initial events
}

// StartWatch finds out where a watch begins:
//
//	resourceVersion  sendInitialEvents  begins with
//	"" or "0"        -                  everything there is
//	N                -                  the changes after N
//	any              true               everything, then the bookmark that says so
//	any              false              the changes from now, or after N
func (q *Request) StartWatch(options *internalversion.ListOptions) (WatchStart, error) {
	revision, err := status.ParseRevision(options.ResourceVersion)
	if err != nil {
		return WatchStart{}, err
	}
	announce := options.SendInitialEvents != nil && *options.SendInitialEvents
	if revision > 0 && !announce {
		return WatchStart{After: revision}, nil
	}
	if err := q.WaitFor(options.ResourceVersion, "watch"); err != nil {
		return WatchStart{}, err
	}
	snapshot := q.Endpoint.Kind.Snapshot()
	start := WatchStart{After: snapshot.Revision, Announce: announce}
	if options.SendInitialEvents == nil || announce {
		start.Initial = &snapshot
	}
	return start, nil
}

// Scope is the narrowest log that holds all that can be selected.
func (s *Selection) Scope() watchcache.Scope {
	if s.single() {
		return watchcache.Scope{Namespace: s.namespace, Name: s.name}
	}
	if s.index.Field != "" {
		return s.index
	}
	return watchcache.Scope{Namespace: s.namespace}
}

// Seen is what a change is to a watcher of the selection: "" for nothing. left
// says that the object is still there but no longer selected.
func (s *Selection) Seen(e *watchcache.Event) (eventType string, left bool) {
	if !s.inNamespace(e.Entry) {
		return "", false
	}
	before := e.Previous != nil && s.matches(e.Previous)
	if e.Type == watchcache.Deleted {
		if before {
			return "DELETED", false
		}
		return "", false
	}
	now := s.matches(e.Entry)
	switch {
	case now && before:
		return "MODIFIED", false
	case now:
		return "ADDED", false
	case before:
		return "DELETED", true
	}
	return "", false
}
