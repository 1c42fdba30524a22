package registry

import (
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"

	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// WatchStart is the start of a watch.
type WatchStart struct {
	After    int64                // events after this revision are sent
	Initial  *watchcache.Snapshot // sent first; nil for none
	Announce bool                 // send the bookmark that ends the initial events
}

// StartWatch determines the start of a watch:
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
